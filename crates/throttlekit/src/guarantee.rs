//! The guarantee of a decision.

use std::fmt;

/// The guarantee of a decision. Every decision carries one, and each is counted, except for decisions that a node makes
/// locally from its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// The shared limit itself holds.
    Exact,
    /// Counted to within this many units: at most `n` beyond the shared limit. For a `MemoryStore` beyond its memory
    /// budget, at most `n` short of it, and none beyond.
    Bounded(u64),
    /// The store did not respond; this node's configured share of the limit holds, in addition to what others admit.
    Local,
    /// The store did not respond, and the request was allowed uncounted (fail open).
    Open,
    /// The store did not respond, and the request was denied for that reason (fail closed).
    Closed,
}

impl Guarantee {
    /// Returns the weaker of two: the guarantee of a decision that depends on both.
    pub fn weaker(self, other: Self) -> Self {
        let rank = |guarantee| match guarantee {
            Self::Exact => (0, 0),
            Self::Bounded(over) => (1, over),
            Self::Local => (2, 0),
            Self::Open => (3, 0),
            Self::Closed => (4, 0),
        };
        if rank(other) > rank(self) { other } else { self }
    }

    /// Returns the name used in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Bounded(_) => "bounded",
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bounded(units) => write!(f, "bounded by {units} units"),
            other => f.write_str(other.label()),
        }
    }
}
