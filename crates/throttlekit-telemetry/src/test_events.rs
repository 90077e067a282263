//! Events for tests.

use std::time::Duration;

use throttlekit::admit::LimitName;
use throttlekit::observe::Event;
use throttlekit::rate::Timestamp;
use throttlekit::{Axis, Decision, Guarantee, Retry};

pub(crate) fn event() -> Event<'static> {
    Event {
        policy: "chat",
        key: b"alice",
        cost: 3,
        decision: Decision {
            allowed: true,
            limit: 10,
            remaining: 7,
            reset_at: Timestamp::from_millis(1_000),
            retry_after: Retry::Now,
        },
        denied_by: None,
        limit_name: None,
        guarantee: Guarantee::Exact,
    }
}

pub(crate) fn denied() -> Event<'static> {
    let event = event();
    let retry_after = Retry::after(Duration::from_micros(1_500_001));
    Event {
        decision: Decision { allowed: false, retry_after, ..event.decision },
        denied_by: Some(Axis::Rate),
        limit_name: LimitName::new("daily"),
        ..event
    }
}
