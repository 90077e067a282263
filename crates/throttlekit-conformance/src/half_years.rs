//! A time zone for scenarios, whose clocks change twice a year.
//!
//! Clocks are 5 h 45 min ahead of UTC, and an hour more in every other half-year. Half-years are of equal length, so clocks
//! change at all hours of the day; some changes repeat the hour around midnight.

use std::sync::OnceLock;

use throttlekit_core::rate::{Zone, ZoneOffset, ZoneTable};

const HALF_YEAR_SECONDS: i64 = 15_778_800;
/// More than there are up to the last timestamp, in 2554.
const HALF_YEARS: i64 = 1_200;
const WINTER_SECONDS: i64 = 20_700;
const SUMMER_SECONDS: i64 = WINTER_SECONDS + 3_600;
const DAY_SECONDS: i64 = 86_400;

/// Returns the zone.
pub(crate) fn zone() -> Zone {
    static TABLE: OnceLock<ZoneTable> = OnceLock::new();
    let offset = |half: i64| ZoneOffset {
        from_seconds: half * HALF_YEAR_SECONDS,
        seconds_east: seconds_east(half * HALF_YEAR_SECONDS) as i32,
    };
    let table = || ZoneTable::new("half-years", (0..HALF_YEARS).map(offset).collect());
    TABLE.get_or_init(|| table().expect("half-years follow each other")).into()
}

fn seconds_east(seconds: i64) -> i64 {
    if seconds.div_euclid(HALF_YEAR_SECONDS) % 2 == 0 { WINTER_SECONDS } else { SUMMER_SECONDS }
}

/// Returns the latest date that local clocks have shown, in days since the epoch. Computed from the half-years alone, for
/// checks of the table.
pub(crate) fn latest_date(seconds: i64) -> i64 {
    let date = |seconds: i64| (seconds + seconds_east(seconds)).div_euclid(DAY_SECONDS);
    let change = seconds - seconds.rem_euclid(HALF_YEAR_SECONDS);
    date(seconds).max(if change > 0 { date(change - 1) } else { 0 })
}
