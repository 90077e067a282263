//! Counters of an endpoint.

counters! {
    /// Statistics of an endpoint since it was created.
    pub struct StoreClientStats, counted by Counters {
        /// Calls that were sent.
        calls,
        /// Of them, those that ended in any error but the deadline.
        failed,
        /// Of them, those that missed the deadline.
        timed_out,
        /// Calls rejected because the breaker was open.
        refused_open,
        /// Calls rejected because too many were in flight.
        refused_full,
        /// Number of times that the breaker opened.
        opened,
        /// Probes sent while it was open.
        probes,
    }
    beside {
        /// Calls in flight now.
        in_flight: u64,
        /// True while the breaker is open.
        open: bool,
    }
}

impl StoreClientStats {
    /// Returns the sum of both, for an engine of several nodes.
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

    /// Returns the counters of an endpoint that is no longer used.
    pub fn past(self) -> Self {
        Self { in_flight: 0, open: false, ..self }
    }
}
