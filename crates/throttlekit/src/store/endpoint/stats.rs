//! Counters of an endpoint.

counters! {
    /// What a line has seen since it was made.
    pub struct LineStats, counted by Counters {
        /// Calls that went out.
        calls,
        /// Of them, those that ended in any error but the deadline.
        failed,
        /// Of them, those that missed the deadline.
        timed_out,
        /// Calls refused because the breaker was open.
        refused_open,
        /// Calls refused because too many were under way.
        refused_full,
        /// How often the breaker opened.
        opened,
        /// Probes sent while it was open.
        probes,
    }
    beside {
        /// Calls under way now.
        in_flight: u64,
        /// Whether the breaker is open now.
        open: bool,
    }
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
