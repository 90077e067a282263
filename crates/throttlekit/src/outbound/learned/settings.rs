//! Settings of what is learned.

use std::time::Duration;

use crate::BuildError;

/// Settings of [`Learned`](super::Learned).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::outbound) struct LearnSettings {
    /// Longest time for which responses can stop all calls, from one millisecond to an hour. Default: 60 s.
    pub(in crate::outbound) max_pause: Duration,
    /// Time without information from the provider after which all that was learned is forgotten: one second or more,
    /// and no less than `max_pause`. Default: 10 min.
    pub(in crate::outbound) expires: Duration,
    /// Time in which a lowered limit rises from nothing to the ceiling, from one second. Ten times as long if the provider
    /// does not report its limit. Default: 60 s.
    pub(in crate::outbound) raise_over: Duration,
}

impl Default for LearnSettings {
    fn default() -> Self {
        Self {
            max_pause: Duration::from_secs(60),
            expires: Duration::from_secs(600),
            raise_over: Duration::from_secs(60),
        }
    }
}

impl LearnSettings {
    /// Checks the ranges.
    pub(in crate::outbound) fn check(&self) -> Result<(), BuildError> {
        let wrong = |setting, expected| Err(BuildError::OutOfRange { setting, expected });
        let (milli, second, hour) =
            (Duration::from_millis(1), Duration::from_secs(1), Duration::from_secs(3_600));
        if self.max_pause < milli || self.max_pause > hour {
            return wrong("max_pause", "1 ms to 1 h");
        }
        if self.expires < second.max(self.max_pause) {
            return wrong("expires", "at least 1 s, and at least max_pause");
        }
        if self.raise_over < second {
            return wrong("raise_over", "at least 1 s");
        }
        Ok(())
    }
}
