//! Faults in which a server loses charges.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::replica_pair::ReplicaPair;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    FlushAll,
    FlushDb,
    /// The database in use is swapped with another.
    SwapDb,
    /// Keys with an expiry are evicted; the lineage record has none.
    EvictVolatile,
    /// Any keys are evicted.
    EvictAll,
    /// Keys with an expiry are evicted. Another process writes the key again and dies before it checks for
    /// evictions.
    EvictUnchecked,
    /// `kill -9`, and an empty start.
    Restart,
    /// `kill -9`, and a start from the append-only file.
    RestartAof,
    /// The primary dies, and a replica takes over that was partitioned before, unless its acknowledgment is
    /// waited for.
    Promote,
}

impl Fault {
    pub(super) const ALL: [Self; 9] = [
        Self::FlushAll,
        Self::FlushDb,
        Self::SwapDb,
        Self::EvictVolatile,
        Self::EvictAll,
        Self::EvictUnchecked,
        Self::Restart,
        Self::RestartAof,
        Self::Promote,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FlushAll => "flushall",
            Self::FlushDb => "flushdb",
            Self::SwapDb => "swapdb",
            Self::EvictVolatile => "evict volatile",
            Self::EvictAll => "evict allkeys",
            Self::EvictUnchecked => "evict unchecked",
            Self::Restart => "restart",
            Self::RestartAof => "restart aof",
            Self::Promote => "promote",
        }
    }

    /// Returns `true` if charges are certainly lost. A file that is written before each response has all of
    /// them.
    pub(super) fn loses(self) -> bool {
        self != Self::RestartAof
    }

    pub(super) async fn strike(self, pair: &mut ReplicaPair) -> Result<()> {
        match self {
            Self::FlushAll => pair.primary().ask::<()>("FLUSHALL").await,
            Self::FlushDb => pair.primary().ask::<()>("FLUSHDB").await,
            Self::SwapDb => pair.primary().ask::<()>("SWAPDB 0 1").await,
            Self::EvictVolatile | Self::EvictUnchecked => evict(pair, "volatile-ttl").await,
            Self::EvictAll => evict(pair, "allkeys-lru").await,
            Self::Restart => pair.restart(&[]).await,
            Self::RestartAof => {
                pair.primary().ask::<()>("CONFIG SET appendonly yes").await?;
                pair.primary().until_said("INFO persistence", "aof_rewrite_in_progress:0").await?;
                pair.restart(&["--appendonly", "yes"]).await
            }
            Self::Promote => pair.fail_over().await,
        }
    }
}

/// Configures the server like an operator who turns it into a cache: the policy first, then a limit below the
/// memory in use.
async fn evict(pair: &ReplicaPair, policy: &str) -> Result<()> {
    let primary = pair.primary();
    primary.ask::<()>(&format!("CONFIG SET maxmemory-policy {policy}")).await?;
    primary.ask::<()>("CONFIG SET maxmemory 1").await?;
    sleep(Duration::from_millis(5)).await;
    primary.ask::<()>("CONFIG SET maxmemory 0").await?;
    primary.ask::<()>("CONFIG SET maxmemory-policy noeviction").await
}
