//! A mock model and a gateway before it, as processes, on the Redis of the test services.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use llm_gateway::gate::Meter;
use llm_gateway::process::{Process, Scratch};
use serde_json::{Value, json};

/// So long that no test ever sees one end: windows begin at the same time for all, so a short one could end at any.
const WEEK_MS: u64 = 7 * 24 * 3_600_000;

/// The two servers, until this is dropped.
pub(crate) struct Stand {
    pub(crate) gateway: Process,
    pub(crate) model: Process,
    pub(crate) meter: Meter,
    pub(crate) limits: Limits,
    _config: Scratch,
}

/// What the model is like.
pub(crate) struct Model {
    /// How many tokens each answer has, unless the caller wants fewer.
    pub(crate) length: u64,
    pub(crate) chunk: u64,
    pub(crate) delay_ms: u64,
}

/// One tenant with the key `sk-test`.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) rpm: u64,
    pub(crate) tpm: u64,
    pub(crate) concurrency: u32,
}

impl Stand {
    pub(crate) fn with_store(meter: Meter, model: &Model, limits: &Limits, redis: &str) -> Self {
        let binary = Path::new(env!("CARGO_BIN_EXE_llm-gateway"));
        let flags = [
            ("median", model.length.to_string()),
            ("sigma", "0".to_owned()),
            ("chunk", model.chunk.to_string()),
            ("delay-ms", model.delay_ms.to_string()),
        ];
        let model = Process::start(binary, "mock", &flags).unwrap();
        let name = format!("gateway-test-{:x}", RandomState::new().hash_one(1));
        let config = Scratch::new(&name, &config(&model.url, limits).to_string()).unwrap();
        let flags = [
            ("config", config.path()),
            ("meter", meter.label().to_owned()),
            ("redis", redis.to_owned()),
            ("policy", name),
            // Tests share two cores with whatever else runs.
            ("store-deadline-ms", "5000".to_owned()),
        ];
        let gateway = Process::start(binary, "serve", &flags).unwrap();
        Self { gateway, model, meter, limits: *limits, _config: config }
    }

    pub(crate) fn new(meter: Meter, model: &Model, limits: &Limits) -> Self {
        Self::with_store(meter, model, limits, &redis())
    }
}

/// From `cargo xtask services up`. A test that needs an engine fails without it.
pub(crate) fn redis() -> String {
    let name = "THROTTLEKIT_REDIS";
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(cargo xtask services up)\""))
}

pub(crate) fn config(upstream: &str, limits: &Limits) -> Value {
    let Limits { rpm, tpm, concurrency } = limits;
    let tenant = json!({
        "name": "test", "key": "sk-test", "weight": 1, "rpm": rpm, "tpm": tpm, "concurrency": concurrency,
    });
    json!({ "upstream": upstream, "capacity": 1_000_000, "window_ms": WEEK_MS, "tenants": [tenant] })
}
