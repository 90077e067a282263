//! `key-capacity`: a flood of keys takes at most the memory of the budget, and denies hardly any first
//! request.
//!
//! A [`Flood`] sends very many keys, one request each, to a limiter. Keys that were denied before it must be
//! denied after it. While keys fit the budget every response is exact. [`judge`] reports broken guarantees;
//! it checks the limiters of the library and a model with seeded bugs alike.

mod flood;
mod model;
mod subject;

pub use flood::{Flood, Found, judge};
pub use model::{Bug, Model};
pub use subject::{InProcess, InStore, Reply, Subject};

use std::time::Duration;

use throttlekit_core::rate::{Cadence, Limit, LimitError, Rate, Weekday};

/// Every rule with a window or a rate, at `units` per hour.
pub const RULES: [&str; 11] = [
    "gcra",
    "gcra, odd rate",
    "token bucket",
    "leaky bucket",
    "fixed window",
    "anchored window",
    "week",
    "month",
    "token budget",
    "sliding window",
    "sliding log",
];

/// Returns the limit of one of [`RULES`].
pub fn limit(rule: &str, units: u64) -> Result<Limit, LimitError> {
    let hour = Duration::from_secs(3_600);
    let anchor = throttlekit_core::Timestamp::from_millis(1_234_567);
    match rule {
        "gcra" => Limit::gcra(Rate::per(units, hour)),
        // A rate whose unit is no short fraction of a nanosecond.
        "gcra, odd rate" => Limit::gcra(Rate::per(units, hour + Duration::from_nanos(1))),
        "token bucket" => Limit::token_bucket(units, Rate::per(units, hour)),
        "leaky bucket" => Limit::leaky_bucket(Rate::per(units, hour), hour - hour / units as u32),
        "fixed window" => Limit::fixed_window(units, hour),
        "anchored window" => Limit::quota(units, Cadence::Every { length: hour, anchor }),
        "week" => Limit::quota(units, Cadence::Week { starts_on: Weekday::Monday, utc_offset_minutes: 0 }),
        "month" => Limit::quota(units, Cadence::Month { utc_offset_minutes: 60 }),
        "token budget" => Limit::token_budget(units, hour),
        "sliding window" => Limit::sliding_window(units, hour),
        _ => Limit::sliding_log(units, hour),
    }
}
