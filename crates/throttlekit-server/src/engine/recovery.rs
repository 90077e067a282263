//! The wait after a start, while clients of the previous process may still use slots that only it counted.

use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::Timestamp;
use throttlekit::{Axis, Decision, Guarantee, Retry};

use super::Answered;

/// Start time of this process, if a previous one may have granted slots.
///
/// The previous process renewed no lease after this one started, so each has expired one `lease_for` later: until then
/// no slot is granted whose count was lost with the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    started: Option<Timestamp>,
}

impl Recovery {
    pub(super) fn starting(recovers: bool, now: Timestamp) -> Self {
        Self { started: recovers.then_some(now) }
    }

    /// Returns the time until slots under leases of this length are granted. `None` once they are.
    pub(super) fn left(self, lease_for: Duration, now: Timestamp) -> Option<Duration> {
        let until = self.started? + lease_for;
        (now < until).then(|| until.since(now))
    }
}

/// Creates the response meanwhile: a denial on concurrency that reports the wait. Nothing was charged.
pub(super) fn denial(limit: u32, left: Duration) -> Answered {
    let decision = Decision {
        allowed: false,
        limit: limit.into(),
        remaining: 0,
        reset_at: WallClock.now() + left,
        retry_after: Retry::after(left),
    };
    Answered::of(decision, Guarantee::Exact, Axis::Concurrency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_closed_until_the_last_lease_of_the_process_before_has_ended() {
        let at = Timestamp::from_millis;
        let (recovery, lease_for) = (Recovery::starting(true, at(1_000)), Duration::from_secs(2));
        assert_eq!(recovery.left(lease_for, at(1_000)), Some(lease_for));
        assert_eq!(recovery.left(lease_for, at(2_999)), Some(Duration::from_millis(1)));
        assert_eq!(recovery.left(lease_for, at(3_000)), None);
        assert_eq!(Recovery::starting(false, at(1_000)).left(lease_for, at(1_000)), None);
    }
}
