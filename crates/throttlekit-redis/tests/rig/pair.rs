//! A primary and its replica, behind an address that can be pointed at either, like a load balancer.

use std::time::Duration;

use super::proxy::Proxy;
use super::server::Server;
use super::until;

const IN_STEP_MAX: Duration = Duration::from_secs(10);
/// A replica gets its copy at once.
const OPTIONS: [&str; 4] = ["--repl-diskless-sync", "no", "--hz", "100"];

pub(crate) struct Pair {
    pub(crate) primary: Server,
    pub(crate) replica: Server,
    pub(crate) way: Proxy,
}

impl Pair {
    pub(crate) async fn start() -> Self {
        let (primary, replica) = (Server::start(&OPTIONS).await, Server::start(&OPTIONS).await);
        let way = Proxy::before(primary.port).await;
        let pair = Self { primary, replica, way };
        pair.follow().await;
        pair
    }

    /// Makes one the replica of the other, and returns when both are in sync.
    pub(crate) async fn follow(&self) {
        self.replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", self.primary.port)).await;
        until("both in step", IN_STEP_MAX, async || {
            self.primary.ask::<String>("INFO replication").await.contains("state=online")
        })
        .await;
        self.be_in_step().await;
    }

    /// Returns when the replica has acknowledged everything.
    pub(crate) async fn be_in_step(&self) {
        let mut connection = self.primary.connection().await.unwrap();
        super::ask::<()>(&mut connection, "SET in-step 1").await.unwrap();
        assert_eq!(super::ask::<u64>(&mut connection, "WAIT 1 5000").await.unwrap(), 1);
    }

    /// Promotes the replica, and points callers at it.
    pub(crate) async fn promote(&self) {
        self.replica.ask::<()>("REPLICAOF NO ONE").await;
        self.way.lead_to(self.replica.port);
    }

    /// Disconnects the replica for a moment in which `charge` runs; then kills the primary and promotes the
    /// replica.
    pub(crate) async fn lose<T>(&mut self, charge: impl Future<Output = T>) -> T {
        self.replica.signal("STOP");
        self.primary.ask::<u64>("CLIENT KILL TYPE replica").await;
        let charged = charge.await;
        self.primary.kill();
        self.replica.signal("CONT");
        self.promote().await;
        charged
    }
}
