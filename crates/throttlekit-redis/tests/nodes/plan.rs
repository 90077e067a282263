//! What a fleet is made of. Parent and nodes build the same plan, so that none of it has to be passed on.

use std::time::Duration;

use throttlekit::{Limit, Rate};

use super::Fault;

/// One fleet.
pub(crate) struct Plan {
    /// The name of the test, which nodes run again.
    pub(crate) test: &'static str,
    pub(crate) rule: Rule,
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) faults: &'static [Fault],
}

/// The limit all nodes keep together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Window { limit: u64, length: Duration },
    Gcra { per_second: u32, burst: u64, hold: Duration },
}

/// How one node is set up.
#[derive(Clone, Debug)]
pub(crate) struct NodePlan {
    /// Leases only for keys with many requests.
    pub(crate) auto: bool,
    /// Learned, if none.
    pub(crate) batch: Option<u64>,
    pub(crate) refill_at_percent: u8,
    pub(crate) share: u64,
    pub(crate) return_after: Duration,
    /// One of its callers draws units into a thread cache of its own. What a thread cache holds when the node fetches
    /// more is lost.
    pub(crate) thread_cache: bool,
    /// Carries units over, as one of so many nodes.
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

/// What is wrong with a node that a judge must catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Its clock shows one second for so many.
    SlowClock(u32),
    /// Its clock stands still while the process is stopped, as one that counts processor time does.
    FrozenClock,
    /// Units live from when the reply came and not from when the request went.
    AnchoredAtReply,
    /// A return is tried again under another name.
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

    /// Seldom asked, seldom lent to; sizes learned.
    pub(crate) fn auto() -> Self {
        Self { auto: true, batch: None, ..Self::leased(0) }
    }

    /// Gives back soon what it does not need.
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

    /// Demand changes this often; with the windows, where there are any.
    pub(crate) fn phase(self) -> Duration {
        match self {
            Self::Window { length, .. } => length,
            Self::Gcra { hold, .. } => hold * 8,
        }
    }

    /// What may pass in a phase, but for bursts.
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
