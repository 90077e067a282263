//! Counters of an endpoint.

use std::sync::atomic::AtomicU64;

#[derive(Default)]
pub(super) struct Counters {
    pub(super) calls: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) refused_open: AtomicU64,
    pub(super) refused_full: AtomicU64,
    pub(super) opened: AtomicU64,
    pub(super) probes: AtomicU64,
}

/// What a line has seen since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStats {
    /// Calls that went out.
    pub calls: u64,
    /// Of them, those that ended in any error but the deadline.
    pub failed: u64,
    /// Of them, those that missed the deadline.
    pub timed_out: u64,
    /// Calls refused because the breaker was open.
    pub refused_open: u64,
    /// Calls refused because too many were under way.
    pub refused_full: u64,
    /// How often the breaker opened.
    pub opened: u64,
    /// Probes sent while it was open.
    pub probes: u64,
    /// Calls under way now.
    pub in_flight: u64,
    /// Whether the breaker is open now.
    pub open: bool,
}

impl LineStats {
    /// Both together, for an engine of several nodes.
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            failed: self.failed + other.failed,
            timed_out: self.timed_out + other.timed_out,
            refused_open: self.refused_open + other.refused_open,
            refused_full: self.refused_full + other.refused_full,
            opened: self.opened + other.opened,
            probes: self.probes + other.probes,
            in_flight: self.in_flight + other.in_flight,
            open: self.open || other.open,
        }
    }

    /// What remains of a line that is no longer used.
    pub fn past(self) -> Self {
        Self { in_flight: 0, open: false, ..self }
    }
}
