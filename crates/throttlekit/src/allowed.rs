//! Decisions that are computed in registers.

use throttlekit_core::{Decision, Retry, Timestamp};

/// An allowed decision without a wait, short enough to stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_at: Timestamp,
}

impl Allowed {
    /// The neutral element of [`and`](Self::and): [`ALLOW_FULL`](throttlekit_core::ALLOW_FULL).
    pub(crate) const FULL: Self = Self { limit: u64::MAX, remaining: u64::MAX, reset_at: Timestamp::EPOCH };

    /// Combines two as [`combine`](throttlekit_core::combine) does.
    #[inline(always)]
    pub(crate) fn and(self, other: Option<Self>) -> Self {
        let Self { limit, remaining, reset_at } = other.unwrap_or(Self::FULL);
        Self {
            limit: self.limit.min(limit),
            remaining: self.remaining.min(remaining),
            reset_at: self.reset_at.max(reset_at),
        }
    }

    #[inline(always)]
    pub(crate) fn decision(self) -> Decision {
        let Self { limit, remaining, reset_at } = self;
        Decision { allowed: true, limit, remaining, reset_at, retry_after: Retry::Now }
    }
}
