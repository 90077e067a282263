//! What an answer is worth.

use std::fmt;

/// What an answer is worth. Every answer carries one, and each is counted, but for those that a node gives by itself
/// from what it was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// The shared limit itself holds.
    Exact,
    /// Counted to within this many units: at most so many beyond the shared limit. Of a `MemoryStore` beyond its memory
    /// budget, at most so many short of it, and none beyond.
    Bounded(u64),
    /// The store did not answer; this node's stated share of the limit holds, beside what others admit.
    Local,
    /// The store did not answer, and the ask passed uncounted.
    Open,
    /// The store did not answer, and the ask was refused for that.
    Closed,
}

impl Guarantee {
    /// The weaker of two: what an answer is worth that rests on both.
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

    /// Its name in metrics and logs.
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
