//! A cluster of three primaries, each with a replica.

use std::time::Duration;

use futures_util::future::join_all;
use throttlekit_redis::slot_of;

use super::server::Server;
use super::until;

pub(crate) const NODE_TIMEOUT_MS: u64 = 1_000;
const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;
const READY_MAX: Duration = Duration::from_secs(15);

/// Nodes 0 to 2 start as primaries; node `n + 3` is the replica of `n`.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    pub(crate) async fn start(options: &[&str]) -> Self {
        let timeout = NODE_TIMEOUT_MS.to_string();
        let all = [&["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout], options].concat();
        let nodes = join_all((0..2 * PRIMARIES).map(|_| Server::start(&all))).await;
        let cluster = Self { nodes };
        cluster.join().await;
        cluster
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    pub(crate) fn replica_of(&self, primary: usize) -> &Server {
        &self.nodes[primary + PRIMARIES]
    }

    /// Returns a caller's key whose state is on this primary, for a fixed window.
    pub(crate) fn key_on(&self, primary: usize, policy: &str) -> String {
        let (first, last) = range(primary);
        let lives_there = |key: &String| (first..=last).contains(&slot_of(&window_key(policy, key)).into());
        (0..).map(|n| format!("key{n}")).find(lives_there).unwrap()
    }

    async fn join(&self) {
        for (n, node) in self.nodes.iter().enumerate() {
            node.ask::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1)).await;
            if n < PRIMARIES {
                let (first, last) = range(n);
                node.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")).await;
            }
        }
        for node in &self.nodes[1..] {
            self.nodes[0].ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {}", node.port)).await;
        }
        for node in &self.nodes {
            self.wait_for(node, "CLUSTER INFO", &["cluster_known_nodes:6"]).await;
        }
        for n in 0..PRIMARIES {
            let id: String = self.nodes[n].ask("CLUSTER MYID").await;
            let replica = self.replica_of(n);
            until("to know the primary", READY_MAX, async || {
                replica.try_ask::<()>(&format!("CLUSTER REPLICATE {id}")).await.is_ok()
            })
            .await;
        }
        for n in 0..PRIMARIES {
            self.wait_for(self.replica_of(n), "INFO replication", &["master_link_status:up"]).await;
            self.wait_for(&self.nodes[n], "INFO replication", &["state=online"]).await;
        }
        for node in &self.nodes {
            self.wait_for(node, "CLUSTER INFO", &["cluster_state:ok", "cluster_size:3"]).await;
            until("all replicas are known", READY_MAX, async || {
                node.ask::<String>("CLUSTER NODES").await.matches("slave").count() == PRIMARIES
            })
            .await;
        }
    }

    async fn wait_for(&self, node: &Server, question: &str, parts: &[&str]) {
        until(question, READY_MAX, async || {
            let answer: String = node.ask(question).await;
            parts.iter().all(|part| answer.contains(part))
        })
        .await;
    }
}

/// Returns the stored name of a key in a fixed window of this policy.
pub(crate) fn window_key(policy: &str, key: &str) -> String {
    format!("tk:{{{policy}/{key}}}w:")
}

fn range(primary: usize) -> (usize, usize) {
    (primary * SLOTS / PRIMARIES, (primary + 1) * SLOTS / PRIMARIES - 1)
}
