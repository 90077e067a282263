//! Circuit breaker for an engine that does not respond.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Circuit breaker: opens after a number of outages in a row; closes when the engine responds again.
///
/// ```text
/// // Closed => Open (outages in a row) | Closed (any answer)
/// // Open   => Closed (a probe was answered)
/// ```
#[derive(Debug)]
pub(super) struct Breaker {
    opens_after: u32,
    in_a_row: AtomicU32,
    open: AtomicBool,
}

impl Breaker {
    pub(super) fn new(opens_after: u32) -> Self {
        Self { opens_after: opens_after.max(1), in_a_row: AtomicU32::new(0), open: AtomicBool::new(false) }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// Records a response of any kind.
    pub(super) fn answered(&self) {
        if self.in_a_row.load(Relaxed) != 0 {
            self.in_a_row.store(0, Relaxed);
        }
    }

    /// Records an outage, and returns whether this one opened the breaker.
    pub(super) fn failed(&self) -> bool {
        let before = self.in_a_row.fetch_add(1, Relaxed);
        before.saturating_add(1) >= self.opens_after && self.open()
    }

    /// Opens, and returns whether it was closed before.
    pub(super) fn open(&self) -> bool {
        !self.open.swap(true, Relaxed)
    }

    pub(super) fn close(&self) {
        self.in_a_row.store(0, Relaxed);
        self.open.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_once_after_consecutive_outages_and_closes_on_recovery() {
        let breaker = Breaker::new(3);
        assert_eq!([breaker.failed(), breaker.failed()], [false, false]);
        breaker.answered();
        assert_eq!([breaker.failed(), breaker.failed(), breaker.failed()], [false, false, true]);
        assert!(breaker.is_open());
        assert!(!breaker.failed(), "only one outage opens it");
        breaker.close();
        assert!(!breaker.is_open());
        assert!(!breaker.failed(), "and counting starts again");
    }
}
