//! A primary, its replica, and three sentinels that watch them under the name `mymaster`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::command::{self, Words};
use super::install::{Need, program};
use super::ports::Ports;
use super::server::{self, Server};
use super::{Engine, redis};

pub(super) const ENGINE: Engine = Engine {
    name: "sentinel",
    needs: &NEEDS,
    lay_out,
    start,
    env: |servers| vec![("THROTTLEKIT_SENTINEL", server::list(&servers[DATA_NODES..], ""))],
};

const NEEDS: [Need; 3] = [redis::NEEDS[0], redis::NEEDS[1], ("redis-sentinel", "redis-sentinel")];
const DATA_NODES: usize = 2;
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
const REPLICATION: [&str; 2] = ["info", "replication"];
const LINKED: &str = "master_link_status:up";
const LINK_WAIT_MAX: Duration = Duration::from_secs(3);

fn lay_out(folder: &Path, ports: &mut Ports) -> Result<Vec<Server>> {
    let primary = ports.take()?;
    let follow = format!("replicaof 127.0.0.1 {primary}");
    let mut servers = vec![
        redis::lay_out_server(folder, "sentinel-primary", primary, "")?,
        redis::lay_out_server(folder, "sentinel-replica", ports.take()?, &follow)?,
    ];
    for n in 1..=SENTINELS {
        servers.push(lay_out_sentinel(folder, &format!("sentinel-{n}"), ports.take()?, primary)?);
    }
    Ok(servers)
}

fn lay_out_sentinel(folder: &Path, name: &str, port: u16, primary: u16) -> Result<Server> {
    let mut server = redis::lay_out_server(folder, name, port, "")?;
    let watch = format!(
        "sentinel monitor mymaster 127.0.0.1 {primary} {QUORUM}\n\
         sentinel down-after-milliseconds mymaster 1000\n\
         sentinel failover-timeout mymaster 5000\n"
    );
    fs::write(&server.start[1], redis::process(&server) + &watch)?;
    server.start[0] = program("redis-sentinel")?;
    Ok(server)
}

/// The sentinels come last: one that sees no replica at first does not look again for ten seconds.
fn start(servers: &[Server]) -> Result<()> {
    let (data, sentinels) = servers.split_at(DATA_NODES);
    server::start_all(data)?;
    link(data)?;
    server::start_all(sentinels)?;
    for sentinel in sentinels {
        let all_seen =
            |answer: &str| answer.contains("status=ok,") && answer.contains("slaves=1,sentinels=3");
        server::wait_for_answer(&redis::cli(sentinel.port, ["info", "sentinel"])?, all_seen)?;
    }
    Ok(())
}

/// Waits until one follows the other. No error if not: the sentinels reconfigure a replaced primary that
/// comes back.
fn link(data: &[Server]) -> Result<()> {
    let [a, b] = [redis::cli(data[0].port, REPLICATION)?, redis::cli(data[1].port, REPLICATION)?];
    let follows = |question: &Words| command::output(question).is_ok_and(|answer| answer.contains(LINKED));
    let _ = command::wait_until(LINK_WAIT_MAX, || follows(&a) || follows(&b));
    Ok(())
}
