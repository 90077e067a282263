//! What a store does about charges that a failover may lose.

use std::time::Duration;

use throttlekit::store::StoreError;

/// What a store does about charges that a failover may lose.
///
/// Redis answers before its replicas have heard, so a replica that takes over may not know of the last charges. *L* is the
/// limit, *Λ* what was charged and lost. `docs/redis.md` helps to choose.
///
/// | mode | bound | what it costs |
/// |---|---|---|
/// | `Async` | L + Λ, labelled `bounded`; with `sample`, Λ is counted | nothing; one `INFO` now and then |
/// | `Wait` | ≤ L while one of the replicas that heard takes over | a round trip to the replicas for each charge |
/// | `Fence` | ≤ L | no charge of a key whose window has seen a failover, until the next |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failover {
    /// Answers as soon as the primary has. A failover may forget what its replicas had not heard.
    Async {
        /// How often each primary is asked what its replicas have heard. Then
        /// [`RedisStore::exposure`](crate::RedisStore::exposure) says how much a failover would lose and what past ones
        /// may have lost, and answers after one are labelled `bounded` for as long as a window remembers it.
        sample: Option<Duration>,
    },
    /// A charge counts once this many replicas have it. One that has not been heard of in time is an outage; it stays
    /// charged, and is not spent.
    Wait {
        /// All that may be promoted, or a failover to another may forget.
        replicas: u32,
        /// How long to wait for them; shorter than the deadline of a call.
        within: Duration,
    },
    /// A server charges only what it can vouch for: after a failover, a restart, a flush or an eviction each key is refused, as in an outage,
    /// until nothing counts any more that may have been lost.
    Fence {
        /// The longest time for which a primary that was replaced may still take writes, and by which the servers'
        /// clocks differ: `cluster-node-timeout`, or `min-replicas-max-lag` and a second.
        isolation: Duration,
    },
}

impl Default for Failover {
    fn default() -> Self {
        Self::Async { sample: None }
    }
}

impl Failover {
    /// Refuses what could not work.
    pub(crate) fn refuse_nonsense(self, deadline: Duration) -> Result<(), StoreError> {
        let no = |why: &str| Err(StoreError::misconfigured(why));
        match self {
            Self::Async { sample: Some(Duration::ZERO) } => no("`sample` is how often, so not zero"),
            Self::Wait { replicas: 0, .. } => no("`Wait` for no replica is `Async`"),
            Self::Wait { within, .. } if within < Duration::from_millis(1) => {
                no("`within` is a millisecond at the least")
            }
            Self::Wait { within, .. } if within >= deadline => {
                no("`within` must be shorter than the deadline of a call")
            }
            _ => Ok(()),
        }
    }

    /// How often to look what the replicas have heard.
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
    fn a_wait_fits_into_the_deadline_and_waits_for_someone() {
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
