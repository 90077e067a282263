//! A cluster of three primaries, each with a replica.

use std::path::Path;

use anyhow::Result;

use super::command::{self, words};
use super::ports::Ports;
use super::server::{self, Server};
use super::{Engine, redis};

pub(super) const ENGINE: Engine = Engine {
    name: "cluster",
    needs: &redis::NEEDS,
    lay_out,
    start,
    env: |servers| vec![("THROTTLEKIT_REDIS_CLUSTER", server::list(servers, "redis://"))],
};

const NODES: usize = 6;
const WHOLE: [&str; 2] = ["cluster_state:ok", "cluster_known_nodes:6"];

fn lay_out(folder: &Path, ports: &mut Ports) -> Result<Vec<Server>> {
    let more = "cluster-enabled yes\ncluster-node-timeout 1000";
    let node = |n| redis::lay_out_server(folder, &format!("cluster-{n}"), ports.take()?, more);
    (1..=NODES).map(node).collect()
}

fn start(nodes: &[Server]) -> Result<()> {
    server::start_all(nodes)?;
    if is_alone(&nodes[0])? {
        join(nodes)?;
    }
    for node in nodes {
        let whole = |answer: &str| WHOLE.iter().all(|part| answer.contains(part));
        server::wait_for_answer(&redis::cli(node.port, ["cluster", "info"])?, whole)?;
        let synced =
            |answer: &str| answer.contains("role:master") || answer.contains("master_link_status:up");
        server::wait_for_answer(&redis::cli(node.port, ["info", "replication"])?, synced)?;
    }
    Ok(())
}

/// Returns `true` if the node is in no cluster: a killed node remembers its cluster.
fn is_alone(node: &Server) -> Result<bool> {
    let answer = command::output(&redis::cli(node.port, ["cluster", "info"])?)?;
    Ok(answer.contains("cluster_known_nodes:1\r"))
}

fn join(nodes: &[Server]) -> Result<()> {
    let create = redis::cli(nodes[0].port, ["--cluster", "create"])?;
    let addresses = nodes.iter().map(Server::address).collect();
    let options = words(["--cluster-replicas", "1", "--cluster-yes"]);
    command::run(&[create, addresses, options].concat(), &nodes[0].folder)
}
