//! Speed: at saturation and at half load, in memory and on Redis.

use anyhow::{Context, Result};

use crate::Bench;
use crate::apis::{
    Api, CRAB_GRPC, CRAB_HTTP, CRAB_RESP, LIMITADOR_HTTP, OURS_GRPC, OURS_HTTP, OURS_RESP, OURS_SESSION, RLS,
};
use crate::row::{Row, Threshold};
use crate::servers::{CRAB, LIMITADOR, OURS, Store, UNARY};

/// Keys of the loads that are not about one hot key.
const KEYS: usize = 100_000;
const HALF_LOAD_DECISIONS: usize = 30_000;
const REDIS_DECISIONS: usize = 15_000;

/// One protocol in memory.
struct Protocol {
    name: &'static str,
    apis: &'static [(&'static str, Api)],
    /// Decisions of a turn, which takes 1.5 s or so.
    decisions: usize,
    /// The threshold of the ratio of processor times.
    cpu_max: f64,
}

const ENVOY: Protocol =
    Protocol { name: "Envoy RLS", apis: &[(OURS, RLS), (LIMITADOR, RLS)], decisions: 50_000, cpu_max: 0.85 };
const GRPC: Protocol = Protocol {
    name: "native gRPC",
    apis: &[(OURS, OURS_GRPC), (CRAB, CRAB_GRPC)],
    decisions: 75_000,
    cpu_max: 0.85,
};
const HTTP: Protocol = Protocol {
    name: "HTTP JSON",
    apis: &[(OURS, OURS_HTTP), (CRAB, CRAB_HTTP), (LIMITADOR, LIMITADOR_HTTP)],
    decisions: 90_000,
    cpu_max: 0.95,
};
const RESP: Protocol = Protocol {
    name: "RESP",
    apis: &[(OURS, OURS_RESP), (CRAB, CRAB_RESP)],
    decisions: 120_000,
    cpu_max: 0.90,
};
const PIPELINED: Protocol = Protocol {
    name: "RESP pipelined by 16",
    apis: &[(OURS, OURS_RESP.pipelined(16)), (CRAB, CRAB_RESP.pipelined(16))],
    decisions: 200_000,
    cpu_max: 0.60,
};

const SESSION: Protocol = Protocol {
    name: "Session, one decision a message",
    apis: &[(OURS, OURS_SESSION), (UNARY, OURS_GRPC)],
    decisions: 100_000,
    cpu_max: 0.33,
};
const SESSION_BY_100: Protocol = Protocol {
    name: "Session, 100 decisions a message",
    apis: &[(OURS, OURS_SESSION.pipelined(100)), (UNARY, OURS_GRPC)],
    decisions: 200_000,
    cpu_max: 0.05,
};

pub fn in_memory(bench: &mut Bench) -> Result<()> {
    let running = bench.programs.start_all(Store::Memory)?;
    for Protocol { name, apis, decisions, cpu_max } in [ENVOY, GRPC, HTTP, RESP, PIPELINED] {
        for keys in [1, KEYS] {
            let title = format!("{name} in memory, {}", describe(keys));
            let threshold = Threshold::CpuAtMost(cpu_max);
            Row { title, apis, keys, decisions, half_load: false, threshold }.run(bench, &running)?;
        }
    }
    for Protocol { name, apis, .. } in [ENVOY, GRPC, HTTP, RESP] {
        for keys in [1, KEYS] {
            let title = format!("{name} in memory at half load, {}", describe(keys));
            let (decisions, threshold) = (HALF_LOAD_DECISIONS, Threshold::P99AtMost(1.0));
            Row { title, apis, keys, decisions, half_load: true, threshold }.run(bench, &running)?;
        }
    }
    Ok(())
}

/// Measures what a decision costs our server in a session, beside its unary method.
pub fn sessions(bench: &mut Bench) -> Result<()> {
    let running = bench.programs.start_unary()?;
    for Protocol { name, apis, decisions, cpu_max } in [SESSION, SESSION_BY_100] {
        let title = format!("{name} in memory, {}", describe(1));
        let threshold = Threshold::CpuAtMost(cpu_max);
        Row { title, apis, keys: 1, decisions, half_load: false, threshold }.run(bench, &running)?;
    }
    Ok(())
}

/// Measures servers that call Redis for every decision: leases and caches are off.
pub fn on_redis(bench: &mut Bench) -> Result<()> {
    let url = redis_url()?;
    let running = bench.programs.start_all(Store::Redis(&url))?;
    for keys in [1, KEYS] {
        let title = format!("{} on Redis, {}", ENVOY.name, describe(keys));
        let threshold = Threshold::PerSecondAtLeast(2.0);
        let (apis, decisions) = (ENVOY.apis, REDIS_DECISIONS);
        Row { title, apis, keys, decisions, half_load: false, threshold }.run(bench, &running)?;
    }
    Ok(())
}

pub fn redis_url() -> Result<String> {
    std::env::var("THROTTLEKIT_REDIS").context("THROTTLEKIT_REDIS is not set: run `cargo xtask bench peers`")
}

fn describe(keys: usize) -> String {
    if keys == 1 { "hot key".into() } else { format!("{keys} keys, Zipf") }
}
