//! Handling of charges that a failover may lose.

use std::time::Duration;

use throttlekit::store::StoreError;

/// Handling of charges that a failover may lose.
///
/// Redis responds before it has replicated, so a replica that is promoted may lack the last charges. *L* is the limit,
/// *Λ* the units that were charged and lost. `docs/operate/redis.md` helps to choose.
///
/// | mode | bound | cost |
/// |---|---|---|
/// | `Async` | L + Λ, labeled `bounded`; with `sample`, Λ is counted | none; one `INFO` per sample |
/// | `Wait` | ≤ L if one of the replicas that acknowledged is promoted | one round trip to the replicas per charge |
/// | `Fence` | ≤ L | no charge of a key whose window has seen a failover, until the next window |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failover {
    /// Responds as soon as the primary has. A failover may lose charges that were not replicated.
    Async {
        /// Interval at which each primary's replication offsets are sampled. Then
        /// [`RedisStore::exposure`](crate::RedisStore::exposure) reports how much a failover would lose and what past
        /// ones may have lost, and responses after one are labeled `bounded` for as long as a window counts it.
        sample: Option<Duration>,
    },
    /// Waits until this many replicas have acknowledged a charge. One that is not acknowledged in time is an outage; it
    /// stays charged, and must not be spent.
    Wait {
        /// Number of replicas. Must be all that may be promoted, or a failover to another may lose charges.
        replicas: u32,
        /// Timeout of the wait; shorter than the deadline of a call.
        within: Duration,
    },
    /// Charges only keys whose state is known to be complete. After a failover, a restart, a flush or an eviction each
    /// key is refused, as in an outage, until no charge counts any more that may have been lost.
    Fence {
        /// Longest time for which a replaced primary may still accept writes, and by which the servers' clocks differ:
        /// `cluster-node-timeout`, or `min-replicas-max-lag` plus a second.
        isolation: Duration,
    },
}

impl Default for Failover {
    fn default() -> Self {
        Self::Async { sample: None }
    }
}

impl Failover {
    /// Rejects invalid settings.
    pub(crate) fn refuse_nonsense(self, deadline: Duration) -> Result<(), StoreError> {
        let no = |why: &str| Err(StoreError::misconfigured(why));
        match self {
            Self::Async { sample: Some(Duration::ZERO) } => {
                no("invalid `sample`: expected an interval above zero")
            }
            Self::Wait { replicas: 0, .. } => {
                no("invalid `replicas`: expected at least 1; use `Async` to wait for none")
            }
            Self::Wait { within, .. } if within < Duration::from_millis(1) => {
                no("invalid `within`: expected at least 1 ms")
            }
            Self::Wait { within, .. } if within >= deadline => {
                no("invalid `within`: expected less than the deadline of a call")
            }
            _ => Ok(()),
        }
    }

    /// Returns the sampling interval of the replication offsets.
    pub(crate) fn sample(self) -> Option<Duration> {
        match self {
            Self::Async { sample } => sample,
            Self::Wait { .. } | Self::Fence { .. } => None,
        }
    }

    pub(crate) fn isolation(self) -> Option<Duration> {
        match self {
            Self::Fence { isolation } => Some(isolation),
            Self::Async { .. } | Self::Wait { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_fits_into_the_deadline_and_needs_a_replica() {
        let deadline = Duration::from_millis(100);
        let wait = |replicas, ms| {
            Failover::Wait { replicas, within: Duration::from_millis(ms) }.refuse_nonsense(deadline)
        };
        assert!(wait(1, 99).is_ok());
        assert!([wait(1, 100), wait(0, 50), wait(1, 0)].iter().all(Result::is_err));
        assert!(Failover::Async { sample: Some(Duration::ZERO) }.refuse_nonsense(deadline).is_err());
        assert!(Failover::default().refuse_nonsense(deadline).is_ok());
    }
}
