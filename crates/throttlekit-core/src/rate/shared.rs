//! Limits as a shared store runs them: whole microseconds, and whole numbers that a double carries exactly.
//!
//! A script or a statement only determines whether the charges of a request pass, and writes. It returns what it found:
//! its instant and the previous state. From these the rule itself, here, computes the response, so that waits, resets
//! and units left are computed in one place for every store. The logic that a script mirrors is therefore small: one
//! comparison per rule, and the encoding of a state.

use alloc::vec::Vec;
use core::ops::Deref;
use core::time::Duration;

use super::calendar::Grid;
use super::pace::gcd;
use super::sliding_log::Run;
use super::{Bucket, Cost, Count, DEBT_MAX, Gcra, Limit, LimitError, Log, Mark, Ring, SharedPace};
use super::{SlidingWindow, State, Tat, UNITS_MAX, Window};
use crate::Timestamp;

pub(super) const NANOS: u64 = 1_000;
/// Sums of two such numbers are still exact in a double.
const EXACT_MAX: u64 = 1 << 52;
const DAY_MICROS: i64 = 86_400 * 1_000_000;
const MONTH_MICROS: i64 = 31 * DAY_MICROS;
pub(super) const DEBT_MAX_MICROS: u64 = DEBT_MAX.as_micros() as u64;

/// The script encoding of a limit that a shared store can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptEncoding {
    limit: Limit,
    /// Fill rate; zero where it is not a bucket.
    pace: SharedPace,
    /// The encoding of the most common charge, of one unit.
    one: Numbers,
}

/// Script encoding of one charge or one state: a few whole numbers, none above 2⁵³.
///
/// The numbers by rule (times in microseconds):
///
/// | rule | charge | state |
/// |---|---|---|
/// | GCRA | time of the cost, its rest in ticks, depth, its rest, ticks of a µs, ticks of a unit | instant when full, its rest; of a bucket of another pace also when it was written, ticks of a unit and of a µs |
/// | window, budget | cost, limit, length, lead | end of the window, units used |
/// | month, budget of a month | cost, limit, UTC offset | the same |
/// | local calendar, its budget | cost, limit, end of the period, end of the next, beginning of the period | the same |
/// | sliding window | cost, limit, length, buckets | newest bucket, then `buckets + 1` counts |
/// | sliding log | cost, limit, length | instant and units of each admission, oldest first |
///
/// Scripts do not compute with time zones, so the numbers of a local calendar contain the boundaries around an instant that
/// the caller names. A script takes the first of the two ends that is after its own clock. Beyond both, periods of the
/// length of the last one follow: no window is ever longer than two periods, or shorter than one by more than clocks change.
///
/// A state without numbers is that of a key never seen. A state survives a change of the limit's parameters: the units
/// used of a bucket are counted at the new pace ([`Bucket`]), and a window in progress keeps its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    values: [i64; NUMBERS_MAX],
    len: usize,
}

const NUMBERS_MAX: usize = 7;

impl Numbers {
    pub(super) fn of<const N: usize>(numbers: [i64; N]) -> Self {
        const { assert!(N <= NUMBERS_MAX) };
        let mut values = [0; NUMBERS_MAX];
        values[..N].copy_from_slice(&numbers);
        Self { values, len: N }
    }
}

impl Deref for Numbers {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.values[..self.len]
    }
}

/// The rule that a script must run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptRule {
    /// [`Gcra`].
    Gcra,
    /// [`Window`] on an even grid.
    Window,
    /// [`Window`] by calendar months.
    Month,
    /// A [budget](Window::budget) on an even grid.
    Budget,
    /// A [budget](Window::budget) by calendar months.
    BudgetMonth,
    /// [`Window`] by the calendar of a time zone.
    Local,
    /// A [budget](Window::budget) by the calendar of a time zone.
    BudgetLocal,
    /// [`SlidingWindow`].
    Sliding,
    /// [`SlidingLog`](super::SlidingLog).
    Log,
}

impl ScriptRule {
    /// Checks whether it is a [`Window`], budget or not: they keep the same state.
    pub fn is_window(self) -> bool {
        !matches!(self, Self::Gcra | Self::Sliding | Self::Log)
    }
}

/// Correction of a charge in a shared store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Nothing to do.
    Nothing,
    /// The charge position, the units to refund, and the rule's own numbers:
    ///
    /// | rule | numbers |
    /// |---|---|
    /// | GCRA | instant of the charge, time to hand back, its rest, depth, its rest, ticks of a µs, ticks of a unit |
    /// | window, month | end of the window, units |
    /// | sliding window | bucket, units, buckets |
    /// | sliding log | instant, units, length |
    Refund(Numbers),
    /// A charge that is taken unconditionally, encoded as a charge.
    Owe(Numbers),
}

impl ScriptEncoding {
    /// Returns the script encoding of `limit`, or the reason why it has none.
    pub fn of(limit: &Limit) -> Result<Self, LimitError> {
        match limit {
            Limit::Gcra(rule) => check_gcra(rule),
            Limit::Window(rule) => check_window(rule),
            Limit::SlidingWindow(rule) => check_sliding(rule),
            Limit::SlidingLog(rule) => check_micros(nanos(rule.length)),
        }?;
        let pace = if let Limit::Gcra(rule) = limit { rule.shared_pace() } else { SharedPace::default() };
        Ok(Self { limit: *limit, pace, one: numbers(limit, pace, 1) })
    }

    /// The same where nothing passes beyond the limit's units ([`Limit::uncrossed`]).
    pub fn uncrossed(&self) -> Self {
        let limit = self.limit.uncrossed();
        Self { limit, one: numbers(&limit, self.pace, 1), ..*self }
    }

    /// The limit itself.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the rule.
    pub fn kind(&self) -> ScriptRule {
        match self.limit {
            Limit::Gcra(_) => ScriptRule::Gcra,
            Limit::Window(Window { grid: Grid::Even { .. }, crosses: false, .. }) => ScriptRule::Window,
            Limit::Window(Window { grid: Grid::Month { .. }, crosses: false, .. }) => ScriptRule::Month,
            Limit::Window(Window { grid: Grid::Even { .. }, crosses: true, .. }) => ScriptRule::Budget,
            Limit::Window(Window { grid: Grid::Month { .. }, crosses: true, .. }) => ScriptRule::BudgetMonth,
            Limit::Window(Window { grid: Grid::Local(_), crosses: false, .. }) => ScriptRule::Local,
            Limit::Window(Window { grid: Grid::Local(_), crosses: true, .. }) => ScriptRule::BudgetLocal,
            Limit::SlidingWindow(_) => ScriptRule::Sliding,
            Limit::SlidingLog(_) => ScriptRule::Log,
        }
    }

    /// Returns the length and the number of buckets of a sliding window. Its states are invalid under another shape.
    pub fn shape(&self) -> Option<(u64, u32)> {
        match &self.limit {
            Limit::SlidingWindow(rule) => Some((rule.length / NANOS, rule.buckets)),
            _ => None,
        }
    }

    /// Returns how long a charge counts, in µs, rounded up.
    pub fn counts_for_micros(&self) -> u64 {
        let micros = match (self.kind(), &self.one[..]) {
            (ScriptRule::Gcra, [_, _, depth, ..]) => depth.saturating_add(1),
            (ScriptRule::Window | ScriptRule::Budget | ScriptRule::Log, [_, _, length, ..]) => *length,
            (ScriptRule::Sliding, [_, _, length, buckets]) => length + length / buckets + 1,
            (ScriptRule::Month | ScriptRule::BudgetMonth, _) => MONTH_MICROS,
            // A period is longer than its days by what clocks are set back, which is less than a day.
            (ScriptRule::Local | ScriptRule::BudgetLocal, _) => {
                int(self.limit.period().as_micros() as u64) + DAY_MICROS
            }
            _ => i64::MAX,
        };
        natural(micros).unwrap_or(0)
    }

    /// Encodes a charge of `cost`. A local calendar is encoded around `now`; no other limit depends on it.
    pub fn charge(&self, cost: Cost, now: Timestamp) -> Numbers {
        let charge = if cost == 1 {
            self.one
        } else if cost <= self.limit.cost_max() {
            numbers(&self.limit, self.pace, cost)
        } else {
            self.impossible()
        };
        self.around(now, charge)
    }

    /// Appends the boundaries of local periods around `now`, if it has such.
    fn around(&self, now: Timestamp, mut charge: Numbers) -> Numbers {
        if let Limit::Window(Window { grid: Grid::Local(local), .. }) = &self.limit {
            for boundary in local.boundaries(now) {
                charge.values[charge.len] = int(boundary.as_micros());
                charge.len += 1;
            }
        }
        charge
    }

    /// Encodes a charge that costs too much ever to pass: one unit more than there are, and for a budget, which would
    /// let that cross its edge, a budget of zero.
    fn impossible(&self) -> Numbers {
        match self.limit {
            Limit::Window(rule) if rule.crosses => {
                numbers(&Limit::Window(Window { limit: 0, ..rule }), self.pace, 1)
            }
            limit => numbers(&limit, self.pace, limit.units() + 1),
        }
    }

    /// Checks whether a store can report exactly how many units are left, which lending needs. Holds for all ordinary
    /// limits.
    pub fn counts_units(&self) -> bool {
        let rest = if self.kind() == ScriptRule::Gcra { self.one[1] } else { 0 };
        u128::from(rest.unsigned_abs()) * (u128::from(self.limit.units()) + 2) < u128::from(EXACT_MAX)
    }

    /// Encodes the limit for a lease of at least `least` units, around `now` as a [charge](Self::charge).
    pub fn lending(&self, least: Cost, now: Timestamp) -> Numbers {
        self.around(now, if least <= self.limit.cost_max() { self.one } else { self.impossible() })
    }

    /// Decodes a stored state, or `None` if the numbers are not a valid state of this rule.
    pub fn state(&self, numbers: &[i64]) -> Option<State> {
        if numbers.is_empty() {
            return Some(State::Fresh);
        }
        match (&self.limit, numbers) {
            (Limit::Gcra(_), &[full, rest]) => {
                self.bucket(Bucket { full: natural(full)?, rest: natural(rest)?, since: 0, pace: self.pace })
            }
            (Limit::Gcra(_), &[full, rest, since, unit, base]) => {
                let pace = SharedPace { unit: natural(unit)?, base: natural(base)? };
                self.bucket(Bucket {
                    full: natural(full)?,
                    rest: natural(rest)?,
                    since: natural(since)?,
                    pace,
                })
            }
            (Limit::Window(rule), &[end, used]) => {
                let last = Timestamp::from_nanos(instant(end)?.as_nanos().checked_sub(1)?);
                Some(State::Count(Count { window: rule.grid.index(last), used: units(used)? }))
            }
            (Limit::SlidingWindow(rule), [tick, counts @ ..])
                if counts.len() == rule.buckets as usize + 1 =>
            {
                let counts = counts.iter().map(|&n| units(n)).collect::<Option<Vec<_>>>()?;
                Some(State::Ring(Ring { tick: natural(*tick)?, counts: counts.into() }))
            }
            (Limit::SlidingLog(_), runs) if runs.len().is_multiple_of(2) => {
                log(runs.chunks_exact(2).map(|run| Some(Run { at: instant(run[0])?, units: units(run[1])? })))
            }
            _ => None,
        }
    }

    /// The state of a bucket: in this limit's ticks if it is of its pace.
    pub(super) fn bucket(&self, bucket: Bucket) -> Option<State> {
        let Limit::Gcra(rule) = &self.limit else { return None };
        let Bucket { full, rest, since, pace } = bucket;
        let is_one =
            rest < pace.base && since <= full && pace.unit > 0 && pace.unit.max(pace.base) <= EXACT_MAX;
        if !is_one {
            return None;
        }
        if pace != self.pace {
            return Some(State::Bucket(bucket));
        }
        let ticks_per_rest = rule.ticks_per_micro() / pace.base;
        Some(State::Tat(Tat(rule.ticks_of_micros(full) + u128::from(rest) * u128::from(ticks_per_rest))))
    }

    /// Returns the fill rate; zero where it is not a bucket.
    pub fn pace(&self) -> SharedPace {
        self.pace
    }

    /// Returns the end of the window that a store keeps in these numbers. Where a limit was given longer windows that
    /// is earlier than the limit's own end: the store keeps the end it has until that has passed.
    pub fn stored_end(&self, numbers: &[i64]) -> Option<Timestamp> {
        match (&self.limit, numbers) {
            (Limit::Window(_), &[end, _]) => instant(end),
            _ => None,
        }
    }

    /// Checks whether a window of this limit ends at `end`. If not, the limit was changed since.
    pub fn ends_a_window(&self, end: Timestamp) -> bool {
        match &self.limit {
            Limit::Window(rule) => {
                let last = Timestamp::from_nanos(end.as_nanos().saturating_sub(1));
                rule.grid.end(rule.grid.index(last)) == end
            }
            _ => false,
        }
    }

    /// Decodes the state that a script returns for one cost: in full, except for a sliding log, of which it returns the
    /// newest instant, the units used, the oldest instant, and on a denial the instant whose expiry frees enough
    /// capacity with the units up to before it and up to it. For that cost, the result decides as the full log does.
    pub fn seen(&self, numbers: &[i64]) -> Option<State> {
        match (&self.limit, numbers) {
            (Limit::SlidingLog(_), &[newest, used, oldest, enough, before, through]) => {
                log([(oldest, before), (enough.max(oldest), through - before), (newest, used - through)]
                    .map(|(at, n)| Some(Run { at: instant(at)?, units: units(n)? }))
                    .into_iter())
            }
            (Limit::SlidingLog(_), [_, ..]) => None,
            _ => self.state(numbers),
        }
    }

    /// Returns the correction that replaces the `charged` units of a charge at position `mark` by the `actual` ones. A debt
    /// is encoded around `now` as a [charge](Self::charge).
    pub fn correction(&self, mark: Mark, charged: Cost, actual: Cost, now: Timestamp) -> Correction {
        if actual > charged {
            return Correction::Owe(self.around(now, self.owed(actual - charged)));
        }
        match self.handed_back(mark, charged - actual) {
            Some(numbers) if actual < charged => Correction::Refund(numbers),
            _ => Correction::Nothing,
        }
    }

    fn owed(&self, units: Cost) -> Numbers {
        let mut owed = numbers(&self.limit, self.pace, units.min(UNITS_MAX));
        if self.kind() == ScriptRule::Gcra && !(0..=int(DEBT_MAX_MICROS)).contains(&owed[0]) {
            owed.values[0] = int(DEBT_MAX_MICROS);
        }
        owed
    }

    fn handed_back(&self, mark: Mark, units: Cost) -> Option<Numbers> {
        let units = units.min(UNITS_MAX);
        let back = match &self.limit {
            Limit::Gcra(rule) if rule.shapes => return None,
            Limit::Gcra(rule) => {
                let [time, rest, depth, depth_rest, base, unit] =
                    rule.numbers(self.pace, units.min(rule.limit));
                Numbers::of([mark.0 / NANOS, time, rest, depth, depth_rest, base, unit].map(int))
            }
            Limit::Window(_) if mark == Mark::NONE => return None,
            Limit::Window(rule) => Numbers::of([rule.grid.end(mark.0).as_nanos() / NANOS, units].map(int)),
            Limit::SlidingWindow(rule) => Numbers::of([mark.0, units, rule.buckets.into()].map(int)),
            Limit::SlidingLog(rule) => {
                Numbers::of([mark.0 / NANOS, units, nanos(rule.length) / NANOS].map(int))
            }
        };
        Some(back)
    }
}

fn int(number: u64) -> i64 {
    number as i64
}

/// Encodes a charge.
fn numbers(limit: &Limit, pace: SharedPace, cost: Cost) -> Numbers {
    match limit {
        Limit::Gcra(rule) => Numbers::of(rule.numbers(pace, cost).map(int)),
        Limit::Window(Window { limit, grid, .. }) => match *grid {
            Grid::Even { length, lead } => Numbers::of([cost, *limit, length / NANOS, lead / NANOS].map(int)),
            Grid::Month { utc_offset } => Numbers::of([int(cost), int(*limit), utc_offset / NANOS as i64]),
            Grid::Local(_) => Numbers::of([cost, *limit].map(int)),
        },
        Limit::SlidingWindow(rule) => {
            Numbers::of([cost, rule.limit, rule.length / NANOS, rule.buckets.into()].map(int))
        }
        Limit::SlidingLog(rule) => Numbers::of([cost, rule.limit, nanos(rule.length) / NANOS].map(int)),
    }
}

impl Gcra {
    pub(super) fn ticks_per_micro(&self) -> u64 {
        self.pace.ticks_per_nano * NANOS
    }

    pub(super) fn ticks_of_micros(&self, micros: u64) -> u128 {
        u128::from(micros) * u128::from(self.ticks_per_micro())
    }

    /// The pace as stores keep it, in the longest ticks in which a microsecond, a unit and the depth are whole.
    pub(super) fn shared_pace(&self) -> SharedPace {
        let per_micro = self.ticks_per_micro();
        let beyond = (self.depth % u128::from(per_micro)) as u64;
        let tick = gcd(gcd(per_micro, self.pace.ticks_per_unit), beyond);
        SharedPace { unit: self.pace.ticks_per_unit / tick, base: per_micro / tick }
    }

    fn numbers(&self, pace: SharedPace, cost: Cost) -> [u64; 6] {
        let (time, rest) = self.split(pace, self.ticks_of(cost));
        let (depth, depth_rest) = self.split(pace, self.depth);
        [time, rest, depth, depth_rest, pace.base, pace.unit]
    }

    /// Splits ticks into microseconds and the remaining ticks of stores. Too many microseconds saturate.
    pub(super) fn split(&self, pace: SharedPace, ticks: u128) -> (u64, u64) {
        let per_micro = u128::from(self.ticks_per_micro());
        let ticks_per_rest = per_micro / u128::from(pace.base);
        let micros = u64::try_from(ticks / per_micro).unwrap_or(u64::MAX);
        (micros, (ticks % per_micro / ticks_per_rest) as u64)
    }
}

fn check_gcra(rule: &Gcra) -> Result<(), LimitError> {
    if rule.pace.ticks_per_nano > EXACT_MAX / NANOS {
        return Err(LimitError::NotShareable("its unit is not a short fraction of a nanosecond"));
    }
    let pace = rule.shared_pace();
    if pace.unit > EXACT_MAX {
        return Err(LimitError::NotShareable("its period is long and not a whole number of microseconds"));
    }
    let longest = rule.split(pace, rule.depth + u128::from(rule.pace.ticks_per_unit)).0;
    if longest > DEBT_MAX_MICROS {
        return Err(LimitError::NotShareable("a full bucket takes more than a hundred years to refill"));
    }
    Ok(())
}

fn check_window(rule: &Window) -> Result<(), LimitError> {
    match rule.grid {
        Grid::Even { length, lead } => check_micros(length).and(check_micros(lead)),
        Grid::Month { .. } | Grid::Local(_) => Ok(()),
    }
}

fn check_sliding(rule: &SlidingWindow) -> Result<(), LimitError> {
    check_micros(rule.length)?;
    let (length, buckets) = (rule.length / NANOS, u64::from(rule.buckets));
    if buckets > length {
        return Err(LimitError::NotShareable("its buckets are shorter than a microsecond"));
    }
    if length.saturating_mul(buckets) > EXACT_MAX {
        return Err(LimitError::NotShareable("its window times its buckets is too long; use fewer buckets"));
    }
    Ok(())
}

fn check_micros(nanos: u64) -> Result<(), LimitError> {
    if nanos.is_multiple_of(NANOS) {
        return Ok(());
    }
    Err(LimitError::NotShareable("its window is not a whole number of microseconds"))
}

fn nanos(length: Duration) -> u64 {
    crate::time::nanos(length)
}

fn natural(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

fn units(number: i64) -> Option<u64> {
    natural(number).filter(|&n| n <= UNITS_MAX)
}

fn instant(micros: i64) -> Option<Timestamp> {
    natural(micros)?.checked_mul(NANOS).map(Timestamp::from_nanos)
}

fn log(runs: impl Iterator<Item = Option<Run>>) -> Option<State> {
    let mut log = Log::default();
    for run in runs {
        let run = run?;
        if log.runs.back().is_some_and(|newest| newest.at > run.at) {
            return None;
        }
        log.push(run);
    }
    Some(State::Log(log))
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;
    use crate::rate::{Cadence, LocalPeriod, Rate, Zone, ZoneOffset, ZoneTable};

    #[test]
    fn a_charge_counts_as_long_as_its_rule_remembers() {
        let of = |limit: Limit| ScriptEncoding::of(&limit).unwrap().counts_for_micros();
        let minute = Duration::from_secs(60);
        assert_eq!(of(Limit::fixed_window(5, minute).unwrap()), 60_000_000);
        assert_eq!(of(Limit::sliding_log(5, minute).unwrap()), 60_000_000);
        assert_eq!(of(Limit::gcra(Rate::per_second(1).burst(5)).unwrap()), 5_000_001);
        assert!(of(Limit::sliding_window(5, minute).unwrap()) > 60_000_000);
    }

    /// Mirrors what scripts compute from the numbers of a local calendar: `local_end` in Lua, `period_end` in SQL.
    fn script_end(numbers: &[i64], now: i64) -> i64 {
        let (end, next) = (numbers[2], numbers[3]);
        if now < end {
            end
        } else if now < next {
            next
        } else {
            now - (now - next) % (next - end) + (next - end)
        }
    }

    #[test]
    fn a_script_finds_the_period_of_its_clock_though_the_caller_s_is_off_by_one() {
        // Clocks are set forward at second 10 days + 1 h, and back 20 days later.
        let offset = |from_seconds, seconds_east| ZoneOffset { from_seconds, seconds_east };
        let table = alloc::vec![offset(0, 3_600), offset(867_600, 7_200), offset(2_595_600, 3_600)];
        let table = ZoneTable::new("x", table).unwrap();
        let zone = Zone::from(&*Box::leak(Box::new(table)));
        let limit = Limit::quota(5, Cadence::Local { period: LocalPeriod::Day, zone }).unwrap();
        let form = ScriptEncoding::of(&limit).unwrap();
        let Limit::Window(window) = limit else { unreachable!() };
        let hour = |hours: u64| Timestamp::from_millis(hours * 3_600_000);
        for now in (48..960).map(hour) {
            let end = window.grid.end(window.grid.index(now));
            let wants = i64::try_from(end.as_micros()).unwrap();
            for caller in [now, Timestamp::from_millis(end.as_nanos() / 1_000_000 - 25 * 3_600_000 - 1)] {
                let numbers = form.charge(1, caller);
                assert_eq!(
                    script_end(&numbers, now.as_micros() as i64),
                    wants,
                    "{now} for a caller at {caller}"
                );
                assert_eq!(numbers.len(), 5);
            }
            // A caller far behind: windows follow each other without gaps, and none is longer than a day and an hour.
            let late = script_end(&form.charge(1, hour(24)), now.as_micros() as i64);
            assert!(late > now.as_micros() as i64 && late - now.as_micros() as i64 <= 25 * 3_600_000_000);
        }
        assert_eq!(form.charge(1, hour(48)).len(), form.lending(1, hour(48)).len());
        assert!(form.counts_for_micros() >= 25 * 3_600_000_000);
    }
}
