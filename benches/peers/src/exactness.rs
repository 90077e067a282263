//! Exactness beside speed: a limit of 100 admits 100, whatever the concurrency.

use std::iter::once;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use crate::Bench;
use crate::apis::{
    Api, CRAB_GRPC, CRAB_HTTP, CRAB_RESP, LIMITADOR_HTTP, OURS_GRPC, OURS_HTTP, OURS_RESP, RLS,
};
use crate::keys::key;
use crate::load::{self, CALLERS, Load};
use crate::servers::{CRAB, HUNDRED, LIMITADOR, OURS, Running, Server, Store, absent};
use crate::speed::redis_url;

const REQUESTS: usize = 3_000;

const APIS: [(&str, &str, Api); 9] = [
    (OURS, "Envoy RLS", RLS),
    (OURS, "native gRPC", OURS_GRPC),
    (OURS, "HTTP", OURS_HTTP),
    (OURS, "RESP", OURS_RESP),
    (CRAB, "native gRPC", CRAB_GRPC),
    (CRAB, "HTTP", CRAB_HTTP),
    (CRAB, "RESP", CRAB_RESP),
    (LIMITADOR, "Envoy RLS", RLS),
    (LIMITADOR, "HTTP", LIMITADOR_HTTP),
];

pub fn run(bench: &mut Bench) -> Result<()> {
    println!("\n### limit {}: {REQUESTS} requests of one key, {CALLERS} concurrent: admitted", HUNDRED.units);
    one_server(bench)?;
    two_servers(bench)
}

fn one_server(bench: &mut Bench) -> Result<()> {
    let running = bench.programs.start_all(Store::Memory)?;
    for (n, (name, protocol, api)) in APIS.into_iter().enumerate() {
        let title = format!("admitted of {}: {name}, {protocol}", HUNDRED.units);
        match (running.get(name), running.absence(name, api)) {
            (Some(server), None) => {
                let admitted = admitted(bench, &[server], api, n);
                show(bench, name, &title, admitted.with_context(|| title.clone())?);
            }
            (_, why) => bench.report.text(&title, &why.unwrap_or_default()),
        }
    }
    Ok(())
}

/// Two servers on one Redis share the limit.
fn two_servers(bench: &mut Bench) -> Result<()> {
    let url = redis_url()?;
    let pairs: [Running; 2] =
        [bench.programs.start_all(Store::Redis(&url))?, bench.programs.start_all(Store::Redis(&url))?];
    for (n, name) in [OURS, LIMITADOR].into_iter().enumerate() {
        let title = format!("admitted of {}: {name}, two servers on one Redis", HUNDRED.units);
        let pair: Vec<&Server> = pairs.iter().filter_map(|running| running.get(name)).collect();
        if pair.is_empty() {
            bench.report.text(&title, &absent(name));
            continue;
        }
        let admitted = admitted(bench, &pair, RLS, APIS.len() + n);
        show(bench, name, &title, admitted.with_context(|| title.clone())?);
    }
    Ok(())
}

/// Judges ours. Peers are only shown.
fn show(bench: &mut Bench, name: &str, title: &str, admitted: usize) {
    if name == OURS {
        bench.report.exactly(title, admitted, HUNDRED.units as usize);
    } else {
        println!("         {title}: {admitted}");
        bench.report.record(title, admitted as f64);
    }
}

/// Sends the requests of one key, spread over the servers, and returns how many are allowed.
pub fn admitted(bench: &Bench, servers: &[&Server], api: Api, key_index: usize) -> Result<usize> {
    let requests = Arc::new(load::encode(api, HUNDRED, once(key(key_index))));
    let load = Load { requests, order: Arc::new(vec![0; REQUESTS]), pace: None };
    let outcome = bench.runtime.block_on(load::run(servers, api, load))?;
    ensure!(outcome.decided == REQUESTS, "{} of {REQUESTS} were decided", outcome.decided);
    Ok(outcome.allowed)
}
