//! Memory of servers that have seen many keys once each.

use std::sync::Arc;

use anyhow::{Context, Result};

use crate::Bench;
use crate::apis::{Api, CRAB_GRPC, OURS_GRPC, RLS};
use crate::keys::key;
use crate::load::{self, Load};
use crate::report::round;
use crate::servers::{CRAB, FIVE, LIMITADOR, OURS, Server, Store};

/// Keys that are encoded and sent at a time.
const PART: usize = 100_000;
/// Numbers of keys at which memory is read: Limitador is not taken further than the first, since it needs 1 KiB a key and
/// more.
const FEW: usize = 300_000;
const MANY: usize = 1_000_000;

const APIS: [(&str, Api, usize); 3] =
    [(OURS, OURS_GRPC, MANY), (CRAB, CRAB_GRPC, MANY), (LIMITADOR, RLS, FEW)];

/// Resident MiB: at the start, after few keys, and at the end.
struct Memory {
    idle: f64,
    few: f64,
    end: f64,
    denied: usize,
}

pub fn run(bench: &mut Bench) -> Result<()> {
    println!("\n### resident memory after keys that were used once");
    println!("| contender | idle MiB | {FEW} keys, MiB | {MANY} keys, MiB | denied |\n|---|---|---|---|---|");
    let running = bench.programs.start_all(Store::Memory)?;
    let mut at_end = Vec::new();
    for (name, api, keys) in APIS {
        let Some(server) = running.get(name) else {
            let why = running.absence(name, api).unwrap_or_default();
            println!("| {name} | {why} | | | |");
            bench.report.record_text(&format!("memory: {name}"), &why);
            continue;
        };
        let memory = fill(bench, name, server, api, keys).with_context(|| format!("memory: {name}"))?;
        let many = if keys == MANY { round(memory.end).to_string() } else { String::new() };
        let (idle, few) = (round(memory.idle), round(memory.few));
        println!("| {name} | {idle} | {few} | {many} | {} |", memory.denied);
        bench.report.record(&format!("memory: MiB of {name} after {FEW} keys"), memory.few);
        bench.report.record(&format!("memory: MiB of {name} after {keys} keys"), memory.end);
        at_end.push((name, memory));
    }
    judge(bench, &at_end);
    Ok(())
}

fn judge(bench: &mut Bench, at_end: &[(&str, Memory)]) {
    let of = |name| at_end.iter().find(|(other, _)| *other == name).map(|(_, memory)| memory);
    let Some(ours) = of(OURS) else { return };
    bench.report.exactly("memory: keys of ours denied at their first request", ours.denied, 0);
    if let Some(crab) = of(CRAB) {
        bench.report.at_most("memory: MiB of ours / throttlecrab", ours.end / crab.end, 1.0);
    }
    if let Some(limitador) = of(LIMITADOR) {
        bench.report.at_most(
            &format!("memory: MiB of ours / Limitador, {FEW} keys"),
            ours.few / limitador.few,
            1.0,
        );
    }
}

/// Sends one request of each key.
fn fill(bench: &Bench, name: &str, server: &Server, api: Api, keys: usize) -> Result<Memory> {
    let idle = server.process.resident_mib()?;
    let mut memory = Memory { idle, few: idle, end: idle, denied: 0 };
    for first in (0..keys).step_by(PART) {
        eprintln!("… memory, {name}: {first} of {keys} keys");
        let requests = Arc::new(load::encode(api, FIVE, (first..first + PART).map(key)));
        let load = Load { requests, order: Arc::new((0..PART as u32).collect()), pace: None };
        let outcome = bench.runtime.block_on(load::run(&[server], api, load))?;
        memory.denied += outcome.decided - outcome.allowed;
        memory.end = server.process.resident_mib()?;
        if first + PART == FEW {
            memory.few = memory.end;
        }
    }
    Ok(memory)
}
