//! A Redis Cluster: three primaries, each with a replica.

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;

use super::engine::Fault;
use crate::failover::servers::Server;

const PROGRAM: &str = "redis-server";
const GROUPS: usize = 3;
const SLOTS: usize = 16_384;
/// Below the ports of servers.
const BUS_BELOW: u16 = 9_000;

pub(super) struct Cluster {
    /// The members of each group, and which of them is the primary.
    groups: Vec<([Server; 2], usize)>,
    rounds: usize,
}

impl Cluster {
    pub(super) async fn start() -> Result<Self> {
        let options = |port: u16| {
            let text = format!(
                "--cluster-enabled yes --cluster-node-timeout 800 --cluster-port {} \
                 --cluster-require-full-coverage no --cluster-replica-validity-factor 0",
                port - BUS_BELOW
            );
            text.split_whitespace().map(str::to_owned).collect()
        };
        let mut groups = Vec::new();
        for _ in 0..GROUPS {
            let pair =
                [Server::start_with(PROGRAM, options).await?, Server::start_with(PROGRAM, options).await?];
            groups.push((pair, 0));
        }
        let cluster = Self { groups, rounds: 0 };
        cluster.join().await?;
        Ok(cluster)
    }

    async fn join(&self) -> Result<()> {
        for (n, (pair, _)) in self.groups.iter().enumerate() {
            let (first, last) = (n * SLOTS / GROUPS, (n + 1) * SLOTS / GROUPS - 1);
            pair[0].ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")).await?;
            pair[0].ask::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1)).await?;
        }
        let first = &self.groups[0].0[0];
        for server in self.servers().skip(1) {
            first
                .ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {}", server.port, server.port - BUS_BELOW))
                .await?;
        }
        for server in self.servers() {
            server.until_said("CLUSTER INFO", "cluster_known_nodes:6").await?;
        }
        for (pair, _) in &self.groups {
            let primary: String = pair[0].ask("CLUSTER MYID").await?;
            let replicates = format!("CLUSTER REPLICATE {primary}");
            // A node that has just been met does not know its primary yet.
            let follows = async |server: &Server| server.ask::<()>(&replicates).await.is_ok();
            pair[1].until("it follows its primary", follows).await?;
        }
        self.until_whole().await
    }

    fn servers(&self) -> impl Iterator<Item = &Server> {
        self.groups.iter().flat_map(|(pair, _)| pair)
    }

    async fn until_whole(&self) -> Result<()> {
        let each = self.servers().map(|server| server.until_said("CLUSTER INFO", "cluster_state:ok"));
        try_join_all(each).await?;
        for (pair, primary) in &self.groups {
            pair[*primary].until_said("INFO replication", "role:master").await?;
            pair[*primary].until_said("INFO replication", "state=online").await?;
            pair[1 - *primary].until_said("INFO replication", "master_link_status:up").await?;
        }
        Ok(())
    }

    pub(super) fn url(&self) -> String {
        let nodes: Vec<_> = self.servers().map(Server::address).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    pub(super) async fn prepare(&mut self) -> Result<()> {
        self.rounds += 1;
        for (pair, primary) in &mut self.groups {
            // On a busy machine a primary that was only to be restarted may have been replaced.
            if pair[*primary].ask::<String>("INFO replication").await?.contains("role:slave") {
                *primary = 1 - *primary;
            }
        }
        self.until_whole().await
    }

    /// Returns the index of the group whose primary fails in this round.
    fn struck(&self) -> usize {
        self.rounds % GROUPS
    }

    pub(super) async fn cut_off(&self) -> Result<()> {
        let (pair, primary) = &self.groups[self.struck()];
        pair[1 - primary].signal("STOP")?;
        pair[*primary].ask::<u64>("CLIENT KILL TYPE replica").await?;
        Ok(())
    }

    pub(super) async fn strike(&mut self, fault: Fault) -> Result<()> {
        let struck = self.struck();
        let (pair, primary) = &mut self.groups[struck];
        let (old, new) = (*primary, 1 - *primary);
        match fault {
            Fault::Restart => {
                pair[old].kill();
                return pair[old].up().await;
            }
            Fault::Kill => pair[old].kill(),
            Fault::Stall => {
                pair[old].kill();
                pair[new].signal("CONT")?;
            }
            Fault::Switch => {
                let answer: String = pair[new].ask("CLUSTER FAILOVER").await?;
                ensure!(answer == "OK", "the replica does not take over: {answer}");
            }
        }
        pair[old].taken_over_by(&pair[new]).await?;
        *primary = new;
        if fault == Fault::Switch { Ok(()) } else { pair[old].up().await }
    }
}
