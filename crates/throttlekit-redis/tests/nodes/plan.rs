//! The configuration of all nodes. Parent and nodes build the same plan, so that none of it has to be passed
//! on.

use std::time::Duration;

use throttlekit::{Limit, Rate};

use super::Fault;

/// One configuration.
pub(crate) struct Plan {
    /// The name of the test, which nodes run again.
    pub(crate) test: &'static str,
    pub(crate) rule: Rule,
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) faults: &'static [Fault],
}

/// The shared limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Window { limit: u64, length: Duration },
    Gcra { per_second: u32, burst: u64, hold: Duration },
}

/// The configuration of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodePlan {
    /// Leases only for keys with many requests.
    pub(crate) auto: bool,
    /// Learned if `None`.
    pub(crate) batch: Option<u64>,
    pub(crate) refill_at_percent: u8,
    pub(crate) share: u64,
    pub(crate) return_after: Duration,
    /// One of its callers takes units into its own thread cache. Units in a thread cache are lost when the
    /// node leases more.
    pub(crate) thread_cache: bool,
    /// Carries units over, as one of this many nodes.
    pub(crate) carry: Option<u64>,
    pub(crate) clock: NodeClock,
    pub(crate) broken: Option<Broken>,
}

/// The clocks a node may hold leases by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeClock {
    Boot,
    Precise,
    Tick,
}

/// A seeded bug of a node, which the judge must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Its clock counts one second for this many.
    SlowClock(u32),
    /// Its clock stands still while the process is stopped, as one that counts processor time does.
    FrozenClock,
    /// Units live from the arrival of the reply and not from the sending of the request.
    AnchoredAtReply,
    /// A return is retried under another identifier.
    ReturnsTwice,
}

impl NodePlan {
    pub(crate) fn leased(batch: u64) -> Self {
        Self {
            auto: false,
            batch: Some(batch),
            refill_at_percent: 25,
            share: 4,
            return_after: Duration::from_secs(1),
            thread_cache: true,
            carry: None,
            clock: NodeClock::Boot,
            broken: None,
        }
    }

    /// Few requests, few leases; sizes are learned.
    pub(crate) fn auto() -> Self {
        Self { auto: true, batch: None, ..Self::leased(0) }
    }

    /// Sends unused units back soon.
    pub(crate) fn generous(self) -> Self {
        Self { return_after: Duration::from_millis(40), ..self }
    }

    pub(crate) fn broken(self, how: Broken) -> Self {
        Self { broken: Some(how), ..self }
    }
}

impl Rule {
    pub(crate) fn limit(self) -> Limit {
        match self {
            Self::Window { limit, length } => Limit::fixed_window(limit, length),
            Self::Gcra { per_second, burst, .. } => {
                Limit::gcra(Rate::per_second(per_second.into()).burst(burst))
            }
        }
        .unwrap()
    }

    /// Returns the interval at which demand changes; the window, where there is one.
    pub(crate) fn phase(self) -> Duration {
        match self {
            Self::Window { length, .. } => length,
            Self::Gcra { hold, .. } => hold * 8,
        }
    }

    /// Returns the units that may pass in a phase, except for bursts.
    pub(crate) fn units_per_phase(self) -> u64 {
        match self {
            Self::Window { limit, .. } => limit,
            Self::Gcra { per_second, .. } => u64::from(per_second) * self.phase().as_millis() as u64 / 1_000,
        }
    }

    pub(crate) fn hold(self) -> Duration {
        match self {
            Self::Window { .. } => Duration::ZERO,
            Self::Gcra { hold, .. } => hold,
        }
    }
}
