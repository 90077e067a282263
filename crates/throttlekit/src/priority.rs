//! Priorities of calls.

/// A priority: 0 is the most urgent and may use every slot; each further one leaves some to those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The priority that may use every slot: the only one unless a builder adds more.
    pub const HIGHEST: Self = Self(0);
    /// Maximum number of priorities of a guard.
    pub const LEVELS_MAX: usize = 8;

    /// Returns the priority of this level, counted from zero. A guard with fewer priorities treats it as its last.
    pub const fn new(level: u8) -> Self {
        Self(level)
    }

    /// Returns the level, as a class of waiters.
    #[cfg(feature = "wait")]
    pub(crate) const fn class(self) -> u8 {
        self.0
    }

    /// Returns the level, counted from zero.
    pub const fn level(self) -> usize {
        self.0 as usize
    }
}

impl From<u8> for Priority {
    fn from(level: u8) -> Self {
        Self::new(level)
    }
}
