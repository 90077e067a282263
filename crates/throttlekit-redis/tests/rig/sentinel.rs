//! A primary, its replica, and three Sentinels.

use std::fs;
use std::time::Duration;

use futures_util::future::join_all;

use super::server::Server;
use super::until;

pub(crate) struct Sentinels {
    pub(crate) primary: Server,
    pub(crate) replica: Server,
    pub(crate) sentinels: Vec<Server>,
}

impl Sentinels {
    /// Creates running servers and the configuration of the Sentinels.
    pub(crate) async fn lay_out() -> Self {
        let primary = Server::start(&[]).await;
        let follow = format!("--replicaof 127.0.0.1 {}", primary.port);
        let replica = Server::start(&follow.split(' ').collect::<Vec<_>>()).await;
        until("the replica", Duration::from_secs(10), async || {
            replica.ask::<String>("INFO replication").await.contains("master_link_status:up")
        })
        .await;
        let sentinels = (0..3).map(|_| lay_out_sentinel(primary.port)).collect();
        Self { primary, replica, sentinels }
    }

    pub(crate) async fn start_sentinels(&mut self) {
        join_all(self.sentinels.iter_mut().map(Server::up)).await;
        for sentinel in &self.sentinels {
            until("Sentinels to meet", Duration::from_secs(15), async || {
                let said: String = sentinel.ask("INFO sentinel").await;
                said.contains("slaves=1,sentinels=3") && said.contains("status=ok")
            })
            .await;
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// Returns the number of Sentinels that name this port.
    pub(crate) async fn votes(&self, port: u16) -> usize {
        let named = join_all(self.sentinels.iter().map(|sentinel| async move {
            let named: (String, u16) = sentinel.ask("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster").await;
            named.1 == port
        }));
        named.await.into_iter().filter(|is| *is).count()
    }
}

fn lay_out_sentinel(primary: u16) -> Server {
    let mut sentinel = Server::absent(&[]);
    let file = sentinel.folder().join("sentinel.conf");
    let watch = format!(
        "port {}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n",
        sentinel.port
    );
    fs::write(&file, watch).unwrap();
    sentinel.be_sentinel(&file);
    sentinel
}
