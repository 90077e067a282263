//! Window boundaries: even grids, calendar months and the calendars of time zones.

use core::time::Duration;

use super::pace::{LimitError, checked_period};
use super::zone::Zone;
use crate::Timestamp;

const DAY: u64 = 86_400 * 1_000_000_000;
/// Length of the window that never ends: the longest period.
const TOTAL_LENGTH: u64 = 36_600 * DAY;
/// Beginning of the window that never ends: the year 2000.
const TOTAL_FROM: Timestamp = Timestamp::from_millis(946_684_800_000);
const MINUTE: i64 = 60 * 1_000_000_000;
/// UTC+14:00, the furthest any clock on Earth is set.
const OFFSET_MAX_MINUTES: u32 = 14 * 60;

/// Schedule by which a counted window begins and ends. Windows are half-open: the end belongs to the next one.
///
/// The offsets of `Day`, `Week` and `Month` are fixed. Where clocks change twice a year, use [`Local`](Self::Local).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// Every `length`, with one window beginning at `anchor`. An anchor at the epoch gives aligned windows.
    Every {
        /// Length of each window.
        length: Duration,
        /// The beginning of one window; all others follow from it, before and after.
        anchor: Timestamp,
    },
    /// Every day at midnight.
    Day {
        /// Minutes east of UTC.
        utc_offset_minutes: i32,
    },
    /// Every week at midnight before its first day.
    Week {
        /// The day on which weeks begin.
        starts_on: Weekday,
        /// Minutes east of UTC.
        utc_offset_minutes: i32,
    },
    /// Every calendar month at midnight before the first.
    Month {
        /// Minutes east of UTC.
        utc_offset_minutes: i32,
    },
    /// Every day, week or month by the clocks of a time zone, which may change: days have 23 to 25 hours then.
    Local {
        /// Period that repeats.
        period: LocalPeriod,
        /// Place whose clocks count.
        zone: Zone,
    },
}

/// A period by local dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalPeriod {
    /// From midnight to midnight. Where clocks skip midnight, from the first instant of the date.
    Day,
    /// Seven days.
    Week {
        /// The day on which weeks begin.
        starts_on: Weekday,
    },
    /// From one day of the month to the same of the next.
    Month {
        /// The day of the month on which it begins, 1 to 31. In a month with fewer days: its last day.
        starts_on: u8,
    },
}

impl Cadence {
    /// Windows of this length, aligned to the epoch.
    pub const fn every(length: Duration) -> Self {
        Self::Every { length, anchor: Timestamp::EPOCH }
    }

    /// One window for all time: until the year 2100.
    pub const TOTAL: Self = Self::Every { length: Duration::from_nanos(TOTAL_LENGTH), anchor: TOTAL_FROM };
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// A cadence compiled for arithmetic: numbered windows with their bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grid {
    /// Window `i` begins at `i·length − lead`.
    Even { length: u64, lead: u64 },
    /// Window `i` is month `i % 12` of year `i / 12`.
    Month { utc_offset: i64 },
    /// Window `i` is period `i` by local dates. Where clocks skip all of it, it is empty.
    Local(LocalGrid),
}

/// Periods by local dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalGrid {
    period: LocalPeriod,
    zone: Zone,
}

impl Grid {
    pub(crate) fn of(cadence: Cadence) -> Result<Self, LimitError> {
        Ok(match cadence {
            Cadence::Every { length, anchor } => {
                let length = checked_period(length)?;
                Self::even(length, -i128::from(anchor.as_nanos()))
            }
            Cadence::Day { utc_offset_minutes } => {
                Self::even(DAY, i128::from(checked_offset(utc_offset_minutes)?))
            }
            Cadence::Week { starts_on, utc_offset_minutes } => {
                // The epoch was a Thursday, three days into a week that begins on Monday.
                let days = 3 - starts_on as i128;
                let lead = days * i128::from(DAY) + i128::from(checked_offset(utc_offset_minutes)?);
                Self::even(7 * DAY, lead)
            }
            Cadence::Month { utc_offset_minutes } => {
                Self::Month { utc_offset: checked_offset(utc_offset_minutes)? }
            }
            Cadence::Local { period: LocalPeriod::Month { starts_on }, .. }
                if !(1..=31).contains(&starts_on) =>
            {
                return Err(LimitError::MonthStart(starts_on));
            }
            Cadence::Local { period, zone } => Self::Local(LocalGrid { period, zone }),
        })
    }

    fn even(length: u64, lead: i128) -> Self {
        Self::Even { length, lead: lead.rem_euclid(i128::from(length)) as u64 }
    }

    pub(crate) fn nominal_length(&self) -> Duration {
        match *self {
            Self::Even { length, .. } => Duration::from_nanos(length),
            Self::Month { .. } => Duration::from_nanos(31 * DAY),
            Self::Local(LocalGrid { period, .. }) => Duration::from_nanos(period.days_max() * DAY),
        }
    }

    /// Checks whether it is one window for all time.
    pub(crate) fn is_total(&self) -> bool {
        let lead = (i128::from(TOTAL_LENGTH) - i128::from(TOTAL_FROM.as_nanos())) as u64;
        *self == Self::Even { length: TOTAL_LENGTH, lead }
    }

    /// The number of the window that `now` lies in.
    #[inline]
    pub(crate) fn index(&self, now: Timestamp) -> u64 {
        match *self {
            Self::Even { length, lead } => match now.as_nanos().checked_add(lead) {
                Some(shifted) => shifted / length,
                None => ((u128::from(now.as_nanos()) + u128::from(lead)) / u128::from(length)) as u64,
            },
            Self::Month { utc_offset } => {
                let local = i128::from(now.as_nanos()) + i128::from(utc_offset);
                month_of_day(local.div_euclid(i128::from(DAY)) as i64)
            }
            Self::Local(local) => local.index(now),
        }
    }

    /// Returns when window `index` ends and the next begins.
    pub(crate) fn end(&self, index: u64) -> Timestamp {
        let nanos = match *self {
            Self::Even { length, lead } => (i128::from(index) + 1) * i128::from(length) - i128::from(lead),
            Self::Month { utc_offset } => {
                i128::from(first_day_of_month(index + 1)) * i128::from(DAY) - i128::from(utc_offset)
            }
            Self::Local(local) => return local.end(index),
        };
        Timestamp::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

/// A window beyond any that an instant lies in: there are fewer local days up to [`Timestamp::MAX`].
const LOCAL_INDEX_MAX: u64 = 1 << 32;

impl LocalGrid {
    /// The last period that has begun. Where clocks are set back over midnight, the date is earlier for a while; the
    /// period is not.
    fn index(&self, now: Timestamp) -> u64 {
        let index = self.period.index_of(self.zone.date(now));
        if self.end(index) <= now { index + 1 } else { index }
    }

    fn end(&self, index: u64) -> Timestamp {
        self.zone.begins(self.period.first_date(index.min(LOCAL_INDEX_MAX) + 1))
    }

    /// The end of the period that `now` lies in, that of the next one, and the beginning of the first. A store that
    /// cannot compute with zones finds its own period by these, whose clock is at most one period ahead.
    pub(super) fn boundaries(&self, now: Timestamp) -> [Timestamp; 3] {
        let index = self.index(now);
        let end = self.end(index);
        // Past a period that clocks skip.
        let next = (index + 1..index + 3).map(|next| self.end(next)).find(|next| *next > end);
        let from = if index == 0 { Timestamp::EPOCH } else { self.end(index - 1) };
        [end, next.unwrap_or(end), from]
    }
}

impl LocalPeriod {
    fn days_max(&self) -> u64 {
        match self {
            Self::Day => 1,
            Self::Week { .. } => 7,
            Self::Month { .. } => 31,
        }
    }

    /// The number of the period that a date lies in. Dates are days since the epoch, of which the first local one may
    /// be the day before.
    fn index_of(&self, date: i64) -> u64 {
        let index = match *self {
            Self::Day => date + 1,
            Self::Week { starts_on } => (date + Self::week_lead(starts_on)).div_euclid(7) + 1,
            Self::Month { starts_on } => {
                let month = month_of_day(date);
                return if date < start_in_month(month, starts_on) { month - 1 } else { month };
            }
        };
        u64::try_from(index).unwrap_or(0)
    }

    /// The first date of a period.
    fn first_date(&self, index: u64) -> i64 {
        match *self {
            Self::Day => index as i64 - 1,
            Self::Week { starts_on } => (index as i64 - 1) * 7 - Self::week_lead(starts_on),
            Self::Month { starts_on } => start_in_month(index, starts_on),
        }
    }

    /// Days from the beginning of the epoch's week to the epoch, a Thursday.
    fn week_lead(starts_on: Weekday) -> i64 {
        (3 - starts_on as i64).rem_euclid(7)
    }
}

/// Days since the epoch of the day in a month on which a period begins.
fn start_in_month(month: u64, starts_on: u8) -> i64 {
    let first = first_day_of_month(month);
    let length = first_day_of_month(month + 1) - first;
    first + i64::from(starts_on).min(length) - 1
}

fn checked_offset(minutes: i32) -> Result<i64, LimitError> {
    if minutes.unsigned_abs() > OFFSET_MAX_MINUTES {
        return Err(LimitError::UtcOffset(minutes));
    }
    Ok(i64::from(minutes) * MINUTE)
}

/// Years that begin in March make February last, so a month's offset in its year is linear: five months of
/// 153 days. A Gregorian era of 400 years has 146,097 days; the epoch is day 719,468 of era 0.
const ERA_DAYS: i64 = 146_097;
const EPOCH_IN_ERA: i64 = 719_468;

/// Months since year 0 of the month that `day` (days since the epoch) lies in.
fn month_of_day(day: i64) -> u64 {
    let shifted = day + EPOCH_IN_ERA;
    let era = shifted.div_euclid(ERA_DAYS);
    let day_of_era = shifted.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    ((era * 400 + year_of_era) * 12 + month_from_march + 2) as u64
}

/// Days since the epoch of the first day of a month counted from year 0.
fn first_day_of_month(month: u64) -> i64 {
    let from_march = month as i64 - 2;
    let (year, month_from_march) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5;
    era * ERA_DAYS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH_IN_ERA
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use jiff::{ToSpan, civil::Date, tz::Offset};
    use proptest::prelude::*;

    #[test]
    fn offsets_beyond_fourteen_hours_are_refused_up_to_the_ends_of_the_range() {
        for minutes in [841, -841, i32::MAX, i32::MIN + 1, i32::MIN] {
            for cadence in
                [Cadence::Day { utc_offset_minutes: minutes }, Cadence::Month { utc_offset_minutes: minutes }]
            {
                assert_eq!(Grid::of(cadence).err(), Some(LimitError::UtcOffset(minutes)));
            }
        }
        for minutes in [840, -840] {
            assert!(Grid::of(Cadence::Day { utc_offset_minutes: minutes }).is_ok());
        }
    }

    fn judge(cadence: Cadence, now: Timestamp, offset_minutes: i32) -> Timestamp {
        let offset = Offset::from_seconds(offset_minutes * 60).unwrap();
        let at = jiff::Timestamp::from_nanosecond(i128::from(now.as_nanos())).unwrap();
        let today: Date = offset.to_datetime(at).date();
        let next = match cadence {
            Cadence::Day { .. } => today.tomorrow().unwrap(),
            Cadence::Month { .. } => today.first_of_month().checked_add(1.month()).unwrap(),
            Cadence::Week { starts_on, .. } => {
                let day = jiff::civil::Weekday::from_monday_zero_offset(starts_on as i8).unwrap();
                today.tomorrow().unwrap().checked_sub(1.day()).unwrap().nth_weekday(1, day).unwrap()
            }
            Cadence::Every { .. } | Cadence::Local { .. } => unreachable!(),
        };
        let end = offset.to_timestamp(next.to_datetime(jiff::civil::Time::midnight())).unwrap();
        Timestamp::from_nanos(u64::try_from(end.as_nanosecond().max(0)).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn calendar_windows_end_where_a_calendar_library_says(
            now in 0_u64..10_000_000_000_000_000_000, minutes in -840_i32..=840, day in 0_usize..7
        ) {
            use Weekday::*;
            let starts_on = [Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday][day];
            let now = Timestamp::from_nanos(now);
            for cadence in [
                Cadence::Day { utc_offset_minutes: minutes },
                Cadence::Week { starts_on, utc_offset_minutes: minutes },
                Cadence::Month { utc_offset_minutes: minutes },
            ] {
                let grid = Grid::of(cadence).unwrap();
                let end = grid.end(grid.index(now));
                prop_assert_eq!(end, judge(cadence, now, minutes), "{:?}", cadence);
                prop_assert_eq!(grid.index(end), grid.index(now) + 1);
            }
        }

        #[test]
        fn anchored_windows_contain_their_instant_and_meet_their_anchor(
            now in 0_u64..u64::MAX / 2, length in 1_u64..1_000_000_000_000, anchor in 0_u64..u64::MAX / 2
        ) {
            let (now, anchor) = (Timestamp::from_nanos(now), Timestamp::from_nanos(anchor));
            let grid = Grid::of(Cadence::Every { length: Duration::from_nanos(length), anchor }).unwrap();
            let end = grid.end(grid.index(now));
            prop_assert!(now < end && end.since(now) <= Duration::from_nanos(length));
            prop_assert_eq!(grid.index(anchor), grid.index(Timestamp::from_nanos(anchor.as_nanos() + length - 1)));
            prop_assert!(anchor == Timestamp::EPOCH || length == 1 || grid.index(Timestamp::from_nanos(anchor.as_nanos() - 1)) < grid.index(anchor));
        }
    }
}
