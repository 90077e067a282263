//! Counts the units that keys have used, naively: in units and parts of them, not in instants, and from the
//! numbers of the limits alone.
//!
//! A count is a band. The rounding of a change of numbers lies between its ends: nothing in the caller's
//! favor, and at most a microsecond of the new pace for each change.

use throttlekit_core::rate::{Limit, Rule, State, UNITS_MAX};
use throttlekit_core::{Cost, Decision, Timestamp};

use throttlekit_conformance::Spec;
use throttlekit_conformance::text::nanos;

/// Parts of a unit.
const FINE: i128 = 1 << 40;
/// More units than any limit has, and few enough that sums do not overflow.
const UNITS_MOST: u128 = 1 << 60;
const DEBT_MAX_NANOS: u64 = 100 * 366 * 86_400 * 1_000_000_000;
const MICRO: u64 = 1_000;

/// Units per nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    units: u64,
    period: u64,
    /// Nanoseconds beyond whole microseconds of a queue: a store keeps such a bucket in ticks of its own, and
    /// a change to others rounds although the pace is the same.
    beyond: u64,
}

impl Pace {
    fn is_faster(self, other: Self) -> bool {
        u128::from(self.units) * u128::from(other.period) > u128::from(other.units) * u128::from(self.period)
    }

    fn faster(self, other: Self) -> Self {
        if other.is_faster(self) { other } else { self }
    }

    /// Returns the units that come back in `time` nanoseconds, rounded down and up.
    fn comes_back(self, time: u64) -> [i128; 2] {
        let (all, period) = (u128::from(time) * u128::from(self.units), u128::from(self.period));
        let (whole, part) = ((all / period).min(UNITS_MOST) as i128, all % period * FINE as u128);
        [part / period, part.div_ceil(period)].map(|part| whole * FINE + part as i128)
    }
}

/// The use of a key under one kind of limit.
#[derive(Clone, Debug)]
pub(super) enum Book {
    /// A bucket: its use at the last write, and the pace at which it fills.
    Bucket { used: Band, written: Timestamp, pace: Pace },
    /// A window that counts until its end.
    Window { used: Band, end: Timestamp },
    /// Unknown from here on: so little was returned, or so much is owed, that rounding decides.
    Lost,
}

/// The minimum and maximum number of parts of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Band {
    low: i128,
    high: i128,
}

impl Band {
    fn plus(self, units: Cost) -> Self {
        let units = i128::from(units) * FINE;
        Self { low: self.low + units, high: self.high + units }
    }

    /// Caps the band: no window counts more.
    fn capped(self) -> Self {
        let most = i128::from(UNITS_MAX) * FINE;
        Self { low: self.low.min(most), high: self.high.min(most) }
    }

    /// Subtracts returned units, of which at least and at most this many.
    fn less(self, least: i128, most: i128) -> Self {
        Self { low: (self.low - most.max(0)).max(0), high: (self.high - least.max(0)).max(0) }
    }
}

/// A limit, as the oracle models it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pace: Option<Pace>,
    /// The maximum use, in parts, rounded down and up.
    room: [i128; 2],
    crosses: bool,
    limit: Limit,
}

impl Known {
    /// Returns the model of a bucket or a window.
    pub(super) fn of(spec: &Spec) -> Option<Self> {
        let limit = spec.limit().ok()?;
        let units = |units: u64| [i128::from(units) * FINE; 2];
        let mut beyond = 0;
        let (pace, room, crosses) = match *spec {
            Spec::Gcra { units: n, period, burst } => (Some((n, period)), units(burst), false),
            Spec::TokenBucket { capacity, units: n, period } => (Some((n, period)), units(capacity), false),
            Spec::LeakyBucket { units: n, period, max_wait } => {
                let queue = Pace { units: n, period: nanos(period), beyond: 0 }.comes_back(nanos(max_wait));
                beyond = nanos(max_wait) % MICRO;
                (Some((n, period)), queue.map(|parts| parts + FINE), false)
            }
            Spec::Window { limit, .. } => (None, units(limit), false),
            Spec::Budget { limit, .. } => (None, units(limit), true),
            Spec::SlidingWindow { .. } | Spec::SlidingLog { .. } => return None,
        };
        let pace = pace.map(|(units, period)| Pace { units, period: nanos(period), beyond });
        Some(Self { pace, room, crosses, limit })
    }

    /// Returns the use of a key at `now`, under this limit.
    fn used(&self, book: Option<&Book>, now: Timestamp) -> Band {
        match (book, self.pace) {
            (Some(Book::Lost), _) => Band { low: 0, high: UNITS_MOST as i128 * FINE },
            (Some(&Book::Bucket { used, written, pace: last }), Some(pace)) => {
                let time = nanos(now.max(written).since(written));
                let [least, most] = last.faster(pace).comes_back(time);
                let rounded = if last == pace { 0 } else { pace.comes_back(MICRO)[1] };
                let used = used.less(least, most);
                // A clock that is behind has to make up for the same time.
                let [low, high] = pace.comes_back(nanos(written.since(now)));
                let rounded = if used.high > 0 { rounded } else { 0 };
                Band { low: used.low + low, high: used.high + high + rounded }
            }
            (Some(&Book::Window { used, end }), None) if now < end => used,
            _ => Band::default(),
        }
    }

    /// Returns `true` for a bucket that was last charged at another pace.
    pub(super) fn is_at_other_pace(&self, book: Option<&Book>) -> bool {
        matches!(book, Some(Book::Bucket { pace, .. }) if self.pace.is_some_and(|own| own != *pace))
    }

    /// Returns the error in the response to a request of `cost`, if any.
    pub(super) fn judge(
        &self,
        book: Option<&Book>,
        cost: Cost,
        now: Timestamp,
        said: &Decision,
    ) -> Result<(), String> {
        let used = self.used(book, now);
        let needs = i128::from(if self.crosses { cost.min(1) } else { cost }) * FINE;
        let may = used.low + needs <= self.room[1] && cost <= self.limit.cost_max();
        let must = used.high + needs <= self.room[0] && cost <= self.limit.cost_max();
        let taken = if said.allowed { i128::from(cost) * FINE } else { 0 };
        let left = |room: i128, used: i128| (room - used - taken).max(0) / FINE;
        let (least, most) = (left(self.room[0], used.high), left(self.room[1], used.low));
        let remaining = i128::from(said.remaining);
        // A charge of zero only reports what is left.
        let wrong = if cost > 0 && said.allowed && !may {
            "admitted beyond what is left"
        } else if cost > 0 && !said.allowed && must {
            "denied though there is room"
        } else if remaining > most {
            "more is said to be left than is"
        } else if remaining < least {
            "less is said to be left than is"
        } else {
            return Ok(());
        };
        let [low, high] = [used.low, used.high].map(|parts| parts as f64 / FINE as f64);
        Err(format!("{wrong}: {low} to {high} were used, {least} to {most} are left\n  said {said:?}"))
    }

    /// Returns the error in a loan, if any: `said` is what is left before it, if anything is lent.
    pub(super) fn judge_loan(
        &self,
        book: Option<&Book>,
        least: Cost,
        lent: Cost,
        now: Timestamp,
    ) -> Result<(), String> {
        let used = self.used(book, now);
        let left = |room: i128, used: i128| (room - used).max(0) / FINE;
        let (fewest, most) = (left(self.room[0], used.high), left(self.room[1], used.low));
        let crosses = self.crosses && most > 0;
        if i128::from(lent) > most && !crosses {
            return Err(format!("{lent} were lent, and at most {most} were left"));
        }
        if lent == 0 && i128::from(least.max(1)) <= fewest {
            return Err(format!("nothing was lent, though {fewest} were left and {least} would do"));
        }
        Ok(())
    }

    /// Returns the book after a charge.
    pub(super) fn charge(&self, book: Option<&Book>, units: Cost, now: Timestamp) -> Book {
        // A charge while the clock is behind counts at the instant of the last write.
        let now = now.max(written(book));
        let used = self.used(book, now).plus(units);
        match (book, self.pace) {
            (Some(Book::Lost), _) => Book::Lost,
            // No debt exceeds a hundred years. Whether a debt is cut there or not written at all depends on
            // rounding.
            (_, Some(pace)) if used.high > pace.comes_back(DEBT_MAX_NANOS)[0] => Book::Lost,
            (_, Some(pace)) => Book::Bucket { used, written: now, pace },
            (Some(&Book::Window { end, .. }), None) if now < end => Book::Window { used: used.capped(), end },
            _ => Book::Window { used: used.capped(), end: self.limit.decide(&State::Fresh, 0, now).reset_at },
        }
    }

    /// Returns the book after units of a charge at `mark` were returned.
    pub(super) fn hand_back(&self, book: &Book, units: Cost, mark: Timestamp, now: Timestamp) -> Book {
        if !self.limit.hands_back() {
            return book.clone();
        }
        if now < written(Some(book)) {
            return Book::Lost;
        }
        let (Book::Bucket { pace: last, .. }, Some(pace)) = (book, self.pace) else { return book.clone() };
        let used = self.used(Some(book), now);
        let units = i128::from(units.min(self.limit.units())) * FINE;
        let (time, fast) = (nanos(now.since(mark)), last.faster(pace));
        let most = units - fast.comes_back(time)[0];
        // Debt beyond the limit is repaid first.
        let in_debt = used.high > self.room[0];
        let least = units - fast.comes_back(time + 2 * MICRO)[1] - pace.comes_back(MICRO)[1];
        match (most > 0, least > 0 && !in_debt) {
            (false, _) => book.clone(),
            (true, true) => {
                Book::Bucket { used: used.less(least, most), written: written(Some(book)).max(now), pace }
            }
            (true, false) => Book::Lost,
        }
    }
}

impl Book {
    /// Records units that may or may not have been returned to its window.
    pub(super) fn maybe_less(&mut self, units: Cost) {
        if let Self::Window { used, .. } = self {
            *used = used.less(0, i128::from(units) * FINE);
        }
    }

    /// Records units that were returned to its window.
    pub(super) fn less(&mut self, units: Cost) {
        if let Self::Window { used, .. } = self {
            *used = used.less(i128::from(units) * FINE, i128::from(units) * FINE);
        }
    }

    /// Returns the end of its window.
    pub(super) fn end(&self) -> Option<Timestamp> {
        if let Self::Window { end, .. } = self { Some(*end) } else { None }
    }
}

fn written(book: Option<&Book>) -> Timestamp {
    if let Some(Book::Bucket { written, .. }) = book { *written } else { Timestamp::EPOCH }
}
