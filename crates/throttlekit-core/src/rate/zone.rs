//! Time zones as numbers: the UTC offsets of a place over time.
//!
//! The core has no time zone database. The caller makes a [`ZoneTable`] of its own, once for each zone, and a limit
//! refers to it. So every process with the same table finds the same boundaries of a local day, at any instant.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::pace::LimitError;
use crate::Timestamp;

const DAY_SECONDS: i64 = 86_400;
const NANOS: i128 = 1_000_000_000;
/// UTC+14:00, the furthest that any clock on Earth is set.
const OFFSET_MAX_MINUTES: u32 = 14 * 60;
/// The furthest that any clock was ever set, in seconds: a day, as where the date line moved.
const OFFSET_MAX_SECONDS: i64 = DAY_SECONDS;

/// A time zone: a fixed offset from UTC, or a table of offsets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Zone(Offsets);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Offsets {
    /// Seconds east of UTC.
    Fixed(i32),
    Table(&'static ZoneTable),
}

/// The UTC offsets of one place since the epoch.
///
/// Beyond its last entry the last offset holds.
#[derive(Debug, PartialEq, Eq)]
pub struct ZoneTable {
    name: Box<str>,
    offsets: Box<[ZoneOffset]>,
}

/// A UTC offset, and when it begins to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneOffset {
    /// Begins to hold at this many seconds after the epoch.
    pub from_seconds: i64,
    /// Seconds east of UTC.
    pub seconds_east: i32,
}

impl ZoneTable {
    /// Creates a table of offsets in order of time. The first also holds before its beginning.
    pub fn new(name: &str, offsets: Vec<ZoneOffset>) -> Result<Self, LimitError> {
        let in_order = offsets.windows(2).all(|pair| pair[0].from_seconds < pair[1].from_seconds);
        let in_range = offsets.iter().all(|o| i64::from(o.seconds_east).abs() <= OFFSET_MAX_SECONDS);
        if offsets.is_empty() || !in_order || !in_range {
            return Err(LimitError::ZoneTable);
        }
        Ok(Self { name: name.into(), offsets: offsets.into() })
    }

    /// The place of the offset that holds at this many seconds after the epoch.
    fn place(&self, seconds: i64) -> usize {
        self.offsets.partition_point(|offset| offset.from_seconds <= seconds).saturating_sub(1)
    }

    /// The first second at which local clocks have read `local` or more.
    fn first_at(&self, local: i64) -> i64 {
        let earliest = self.place(local - OFFSET_MAX_SECONDS);
        for (place, offset) in self.offsets.iter().enumerate().skip(earliest) {
            let from = if place == 0 { i64::MIN } else { offset.from_seconds };
            let at = (local - i64::from(offset.seconds_east)).max(from);
            if self.offsets.get(place + 1).is_none_or(|next| at < next.from_seconds) {
                return at;
            }
        }
        i64::MAX
    }
}

impl Zone {
    /// UTC.
    pub const UTC: Self = Self(Offsets::Fixed(0));

    /// Creates a zone whose clocks never change, at most 14 hours from UTC.
    pub fn fixed(utc_offset_minutes: i32) -> Result<Self, LimitError> {
        if utc_offset_minutes.unsigned_abs() > OFFSET_MAX_MINUTES {
            return Err(LimitError::UtcOffset(utc_offset_minutes));
        }
        Ok(Self(Offsets::Fixed(utc_offset_minutes * 60)))
    }

    /// Returns the name of its table; of a fixed offset, `None`.
    pub fn name(&self) -> Option<&'static str> {
        match self.0 {
            Offsets::Fixed(_) => None,
            Offsets::Table(table) => Some(&table.name),
        }
    }

    /// Days since the epoch of the local date.
    pub(super) fn date(&self, now: Timestamp) -> i64 {
        let seconds = (i128::from(now.as_nanos()) / NANOS) as i64;
        let east = match self.0 {
            Offsets::Fixed(east) => east,
            Offsets::Table(table) => table.offsets[table.place(seconds)].seconds_east,
        };
        (seconds + i64::from(east)).div_euclid(DAY_SECONDS)
    }

    /// The first instant whose local date was this one or a later one. A day that begins in an hour that clocks skip
    /// begins after it; one whose first hour is repeated begins with the first.
    pub(super) fn begins(&self, date: i64) -> Timestamp {
        let local = date * DAY_SECONDS;
        let seconds = match self.0 {
            Offsets::Fixed(east) => local - i64::from(east),
            Offsets::Table(table) => table.first_at(local),
        };
        let nanos = (i128::from(seconds) * NANOS).max(0);
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl From<&'static ZoneTable> for Zone {
    fn from(table: &'static ZoneTable) -> Self {
        Self(Offsets::Table(table))
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Offsets::Fixed(east) => write!(f, "Zone({east} s)"),
            Offsets::Table(table) => write!(f, "Zone({})", table.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn offset(from_seconds: i64, seconds_east: i32) -> ZoneOffset {
        ZoneOffset { from_seconds, seconds_east }
    }

    #[test]
    fn a_table_without_order_or_far_from_utc_is_refused() {
        let refused = |offsets| ZoneTable::new("x", offsets).err() == Some(LimitError::ZoneTable);
        assert!(refused(vec![]));
        assert!(refused(vec![offset(5, 0), offset(5, 60)]));
        assert!(refused(vec![offset(0, 86_401)]));
        assert!(!refused(vec![offset(0, -86_400), offset(5, 86_400)]));
        assert_eq!(Zone::fixed(841), Err(LimitError::UtcOffset(841)));
    }

    #[test]
    fn a_date_that_clocks_reach_twice_begins_the_first_time() {
        // At 00:01 of day 10, clocks are set back to 23:01 of day 9.
        let table = ZoneTable::new("x", vec![offset(0, 0), offset(10 * DAY_SECONDS + 60, -3_600)]).unwrap();
        let zone = Zone::from(&*Box::leak(Box::new(table)));
        let at = |seconds: i64| Timestamp::from_millis(seconds as u64 * 1_000);
        assert_eq!(zone.begins(10), at(10 * DAY_SECONDS));
        assert_eq!(zone.date(at(10 * DAY_SECONDS + 59)), 10);
        assert_eq!(zone.date(at(10 * DAY_SECONDS + 60)), 9);
        assert_eq!(zone.begins(11), at(11 * DAY_SECONDS + 3_600));
    }

    #[test]
    fn a_date_that_clocks_skip_begins_and_ends_at_once() {
        // At 00:00 of day 10, clocks are set to 00:00 of day 11.
        let zero = offset(0, 0);
        let table = ZoneTable::new("x", vec![zero, offset(10 * DAY_SECONDS, 86_400)]).unwrap();
        let zone = Zone::from(&*Box::leak(Box::new(table)));
        assert_eq!(zone.begins(10), zone.begins(11));
        assert_eq!(zone.begins(12), Timestamp::from_millis(11 * 86_400_000));
    }
}
