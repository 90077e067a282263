//! The limit that a descriptor brings along.

use std::time::Duration;

use throttlekit_proto::envoy::{RateLimitDescriptor, Unit};

use crate::engine::OwnLimit;

/// The limit of a descriptor: requests in one unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitOverride {
    pub(super) requests: u32,
    pub(super) unit: Unit,
}

impl LimitOverride {
    /// Returns the limit of a descriptor. `None` if it has none, or one in a unit that is not known.
    pub(super) fn of(descriptor: &RateLimitDescriptor) -> Option<Self> {
        let limit = descriptor.limit.as_ref()?;
        // The units of a request have the numbers of those in a response.
        let unit = Unit::try_from(limit.unit).ok()?;
        seconds(unit).map(|_| Self { requests: limit.requests_per_unit, unit })
    }

    /// Returns it as the engine counts it.
    pub(super) fn own_limit(self) -> OwnLimit {
        OwnLimit { limit: self.requests.into(), per: Duration::from_secs(seconds(self.unit).unwrap_or(1)) }
    }
}

/// Returns the seconds of a unit; months have 30 days and years 365, as in envoyproxy/ratelimit.
fn seconds(unit: Unit) -> Option<u64> {
    const DAY: u64 = 86_400;
    Some(match unit {
        Unit::Second => 1,
        Unit::Minute => 60,
        Unit::Hour => 3_600,
        Unit::Day => DAY,
        Unit::Week => 7 * DAY,
        Unit::Month => 30 * DAY,
        Unit::Year => 365 * DAY,
        Unit::Unknown => return None,
    })
}
