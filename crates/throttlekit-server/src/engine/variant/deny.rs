//! The limiter of policies and keys that are blocked.

use throttlekit::admit::{Admitting, LimitInfo};
use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::Timestamp;
use throttlekit::{Admission, Admit, Axis, Call, Decision, Retry, SharedPermit};

/// Denies everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deny;

/// Returns the denial: a limit of zero, for which no wait helps.
pub(super) fn denial() -> Decision {
    Decision { allowed: false, limit: 0, remaining: 0, reset_at: WallClock.now(), retry_after: Retry::Never }
}

impl Admit for Deny {
    fn admit(&self, _: Call<'_>) -> Admitting {
        Admitting::ready(Ok(Admission::of(Axis::Rate, denial(), SharedPermit::none())))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        Vec::new()
    }

    fn now(&self) -> Timestamp {
        WallClock.now()
    }
}
