//! Rules whose whole state is one machine word, for stores that compare and swap.
//!
//! Words are ordered: a greater one denies whatever a smaller one denies, and zero is a key never seen. So a key's
//! state at `now` is `max(word, floor(now))`, the join of two keys' debts is the greater word, and time that moves
//! forward means words that grow. The decisions are those of the full rule, field for field, from the epoch to
//! [`WORDS_END`]; a rule whose words would not last that long has no single-word encoding.
//!
//! Words count from the epoch and not from when a limiter was built, so a limiter built while the clock was wrong
//! decides as any other does once the clock is right.
//!
//! Settlement on words is that of [`Settle`](super::Settle) too, as long as what is owed fits the word. A saturated
//! word stays saturated after any refund, since the excess debt is unknown.

use core::num::NonZeroU64;
use core::time::Duration;

use super::calendar::Grid;
use super::reciprocal::Reciprocal;
use super::window::Count;
use super::{DEBT_MAX, Gcra, Limit, Mark, Rule, UNITS_MAX, Window};
use crate::{Cost, Decision, Forecast, Retry, Timestamp};

/// End of the range in which every single-word encoding is exact: the beginning of the year 2060. Most last longer, up
/// to the year 2262. After its end a word denies, and no wait helps: [`Retry::Never`].
pub const WORDS_END: Timestamp = Timestamp::from_millis(2_840_140_800_000);

/// Words stay below this bit, which a store may use as a lock.
pub const WORD_MAX: u64 = (1 << 63) - 1;

/// A rule on machine words.
///
/// A request is decided in two steps, so that a store can swap the word between them: [`next`](Self::next) decides,
/// then [`allowed`](Self::allowed) or [`denied`](Self::denied) computes the response.
pub trait WordRule {
    /// Returns the word of a key without debt at `now`. Never shrinks as time goes on.
    fn floor(&self, now: Timestamp) -> u64;

    /// Returns the key's next word in the most common case, where the rule has a fast path: an allowed request with a
    /// cost above zero on a word that is up to date. `None` decides nothing.
    #[inline(always)]
    fn at_once(&self, _word: u64, _cost: Cost, _now: Timestamp) -> Option<u64> {
        None
    }

    /// Returns the key's next word if the request is allowed, given its word and the floor. A word above [`WORD_MAX`]
    /// allows nothing, so a store need not check its lock bit before a denial.
    fn next(&self, word: u64, floor: u64, cost: Cost) -> Option<u64>;

    /// Returns the decision on a request that made the key's word `next`.
    fn allowed(&self, next: u64, floor: u64, cost: Cost) -> Decision;

    /// Returns the limit, as decisions report it.
    fn limit(&self) -> u64;

    /// Returns whether an allowed request may have to wait its turn.
    fn waits(&self) -> bool;

    /// Returns the units left, and the instant at which all are back, as [`allowed`](Self::allowed) reports them: for
    /// callers that keep decisions in registers.
    fn left(&self, next: u64, floor: u64) -> (u64, Timestamp);

    /// Returns the decision on a request for which the key's word left too few units.
    fn denied(&self, word: u64, floor: u64, cost: Cost, now: Timestamp) -> Decision;

    /// Returns the position of a charge at `now`, so that it can be settled later: the same as that of the full rule.
    fn mark(&self, word: u64, now: Timestamp) -> Mark;

    /// Returns the position of the charge at `now` that made the key's word `next`.
    fn mark_of(&self, next: u64, now: Timestamp) -> Mark;

    /// Returns the key's next word when units of the charge at position `mark` are refunded. Never greater.
    fn refund(&self, word: u64, mark: Mark, units: Cost, now: Timestamp) -> u64;

    /// Returns the key's next word when units were used and not requested. Never smaller, nor above [`WORD_MAX`].
    fn owe(&self, word: u64, units: Cost, now: Timestamp) -> u64;

    /// Returns the key's next word when the charge at position `mark` is replaced by what was used.
    fn settle(&self, word: u64, mark: Mark, charged: Cost, actual: Cost, now: Timestamp) -> u64 {
        match actual.checked_sub(charged) {
            Some(0) => word,
            Some(beyond) => self.owe(word, beyond, now),
            None => self.refund(word, mark, charged - actual, now),
        }
    }

    /// Returns the decision on a request at `now`.
    #[inline]
    fn decide(&self, word: u64, cost: Cost, now: Timestamp) -> Decision {
        let floor = self.floor(now);
        match self.next(word, floor, cost) {
            Some(next) => self.allowed(next, floor, cost),
            None => self.denied(word, floor, cost, now),
        }
    }

    /// Returns what a key with this word has left, spending nothing.
    fn peek(&self, word: u64, now: Timestamp) -> Decision {
        super::peek(|cost| self.decide(word, cost, now))
    }

    /// Returns what a key with this word can spend, now and later.
    fn forecast(&self, word: u64, cost: Cost, now: Timestamp) -> Forecast {
        super::forecast(|cost| self.decide(word, cost, now), cost, now)
    }
}

/// The single-word encoding of a limit.
#[derive(Clone, Copy, Debug)]
pub enum WordForm {
    /// Of a [`Gcra`].
    Gcra(GcraWord),
    /// Of a [`Window`].
    Window(WindowWord),
}

impl WordForm {
    /// Returns the single-word encoding of `limit`, if it has one.
    pub fn of(limit: &Limit) -> Option<Self> {
        match limit {
            Limit::Gcra(rule) => GcraWord::new(rule).map(Self::Gcra),
            Limit::Window(rule) => WindowWord::new(rule).map(Self::Window),
            Limit::SlidingWindow(_) | Limit::SlidingLog(_) => None,
        }
    }
}

/// [`Gcra`] on words: ticks since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct GcraWord {
    /// The last instant that a word can represent, in nanoseconds since the epoch.
    nanos_max: u64,
    /// The same where a tick is a nanosecond, zero elsewhere: up to it the floor needs no scaling.
    whole_max: u64,
    /// `true` if a tick is a nanosecond, a unit several, and no request waits its turn.
    plain: bool,
    ticks_per_nano: u64,
    ticks_per_unit: u64,
    depth: u64,
    /// The largest debt: a request on top of it, and the rounding up of its ticks, still fit a word.
    owed_max: u64,
    limit: NonZeroU64,
    shapes: bool,
    /// Used where the rule is plain.
    per_unit: Reciprocal,
    /// Present where a tick is not a nanosecond.
    per_nano: Option<Reciprocal>,
}

impl GcraWord {
    /// Returns the single-word encoding, if the ticks from the epoch to [`WORDS_END`] fit beside the depth: where a
    /// nanosecond has at most three of them.
    pub fn new(rule: &Gcra) -> Option<Self> {
        let depth = u64::try_from(rule.depth).ok()?;
        let end = u128::from(WORDS_END.as_nanos()) * u128::from(rule.pace.ticks_per_nano);
        // A bucket is charged at most one depth beyond the floor, and the largest debt lies a nanosecond above that. A
        // request adds at most one depth more, and a tick may round up.
        let ahead = 2 * (rule.depth + u128::from(rule.pace.ticks_per_nano));
        if end + ahead > u128::from(WORD_MAX) {
            return None;
        }
        let nanos_max = (WORD_MAX - ahead as u64) / rule.pace.ticks_per_nano;
        Some(Self {
            nanos_max,
            whole_max: if rule.pace.ticks_per_nano == 1 { nanos_max } else { 0 },
            plain: rule.pace.ticks_per_nano == 1 && rule.pace.ticks_per_unit > 1 && !rule.shapes,
            ticks_per_nano: rule.pace.ticks_per_nano,
            ticks_per_unit: rule.pace.ticks_per_unit,
            depth,
            owed_max: WORD_MAX - ahead as u64 / 2,
            limit: NonZeroU64::new(rule.limit)?,
            shapes: rule.shapes,
            per_unit: Reciprocal::of(rule.pace.ticks_per_unit.max(2)),
            per_nano: (rule.pace.ticks_per_nano > 1).then(|| Reciprocal::of(rule.pace.ticks_per_nano)),
        })
    }

    /// Ticks from the epoch to an instant.
    fn ticks_to(&self, instant: Timestamp) -> i128 {
        i128::from(instant.as_nanos()) * i128::from(self.ticks_per_nano)
    }

    fn nanos_ceil(&self, ticks: u64) -> u64 {
        match self.per_nano {
            Some(per_nano) => per_nano.divide(ticks + (self.ticks_per_nano - 1)),
            None => ticks,
        }
    }

    /// The decision of a bucket that is full again at `tat`, which is never more than the depth above the floor.
    fn answer(&self, allowed: bool, tat: u64, floor: u64, wait: u64) -> Decision {
        Decision {
            allowed,
            limit: self.limit.get(),
            remaining: (floor + self.depth - tat) / self.ticks_per_unit,
            reset_at: Timestamp::from_nanos(self.nanos_ceil(tat)),
            retry_after: Retry::after(Duration::from_nanos(self.nanos_ceil(wait))),
        }
    }

    /// The decision that makes the bucket full again at `next`, where ticks are scaled or the request waits its turn.
    #[inline(never)]
    fn allowed_in_full(&self, next: u64, floor: u64, cost: Cost) -> Decision {
        let waits = self.shapes && cost > 0;
        let turn = if waits { next - cost * self.ticks_per_unit - floor } else { 0 };
        self.answer(true, next, floor, turn)
    }

    /// Returns the same where ticks are scaled.
    #[inline(never)]
    fn left_in_full(&self, next: u64, floor: u64) -> (u64, Timestamp) {
        let left = (floor + self.depth - next) / self.ticks_per_unit;
        (left, Timestamp::from_nanos(self.nanos_ceil(next)))
    }

    /// The floor where a unit is not a whole number of nanoseconds, and past the end of words. There the floor stops,
    /// so buckets stop refilling: it fails closed, not open.
    ///
    /// Out of line: every instruction between the clock and the swap delays a check.
    #[inline(never)]
    fn scaled_floor(&self, now: Timestamp) -> u64 {
        now.as_nanos().min(self.nanos_max) * self.ticks_per_nano
    }
}

impl WordRule for GcraWord {
    #[inline(always)]
    fn floor(&self, now: Timestamp) -> u64 {
        if now.as_nanos() <= self.whole_max { now.as_nanos() } else { self.scaled_floor(now) }
    }

    #[inline(always)]
    fn next(&self, word: u64, floor: u64, cost: Cost) -> Option<u64> {
        let next = word.max(floor).wrapping_add(cost.wrapping_mul(self.ticks_per_unit));
        (cost <= self.limit.get() && next <= floor + self.depth).then_some(next)
    }

    #[inline(always)]
    fn allowed(&self, next: u64, floor: u64, cost: Cost) -> Decision {
        if !self.plain {
            return self.allowed_in_full(next, floor, cost);
        }
        Decision {
            allowed: true,
            limit: self.limit.get(),
            remaining: self.per_unit.divide(floor + self.depth - next),
            reset_at: Timestamp::from_nanos(next),
            retry_after: Retry::Now,
        }
    }

    #[inline(always)]
    fn limit(&self) -> u64 {
        self.limit.get()
    }

    #[inline(always)]
    fn waits(&self) -> bool {
        self.shapes
    }

    #[inline(always)]
    fn left(&self, next: u64, floor: u64) -> (u64, Timestamp) {
        if !self.plain {
            return self.left_in_full(next, floor);
        }
        (self.per_unit.divide(floor + self.depth - next), Timestamp::from_nanos(next))
    }

    #[cold]
    #[inline(never)]
    fn denied(&self, word: u64, floor: u64, cost: Cost, now: Timestamp) -> Decision {
        let tat = word.max(floor);
        // A debt, or a clock that stepped back, leaves the bucket charged beyond its depth: nothing is left then.
        let shown = floor.max(tat.saturating_sub(self.depth));
        if cost > self.limit.get() || now.as_nanos() > self.nanos_max {
            return super::never(self.answer(false, tat, shown, 0));
        }
        self.answer(false, tat, shown, tat - floor + cost * self.ticks_per_unit - self.depth)
    }

    #[inline(always)]
    fn mark(&self, _word: u64, now: Timestamp) -> Mark {
        Mark(now.as_nanos())
    }

    #[inline(always)]
    fn mark_of(&self, _next: u64, now: Timestamp) -> Mark {
        Mark(now.as_nanos())
    }

    /// Refunds what has not refilled since the charge; for a shaper nothing. The elapsed time is that of the clock,
    /// also past the end of words, where the floor stops.
    fn refund(&self, word: u64, mark: Mark, units: Cost, now: Timestamp) -> u64 {
        if self.shapes || word >= self.owed_max {
            return word;
        }
        let latest = self.ticks_to(now).max(i128::from(word) - i128::from(self.depth));
        let elapsed = (latest - self.ticks_to(Timestamp::from_nanos(mark.0))).max(0);
        let units = i128::from(units.min(self.limit.get()) * self.ticks_per_unit);
        word.saturating_sub(u64::try_from(units - elapsed).unwrap_or(0))
    }

    fn owe(&self, word: u64, units: Cost, now: Timestamp) -> u64 {
        let units = i128::from(units.min(UNITS_MAX)) * i128::from(self.ticks_per_unit);
        let next = i128::from(word.max(self.floor(now))) + units;
        let owed = next.min(self.ticks_to(now + DEBT_MAX)).min(i128::from(self.owed_max));
        word.max(u64::try_from(owed).unwrap_or(0))
    }
}

/// [`Window`] on words: the window's number on its grid above, the units used below.
///
/// The count has every bit that the windows up to [`WORDS_END`] leave, up to those of [`UNITS_MAX`], so debits that
/// cross a budget's edge and debts are counted in full: 2³⁷ units beside windows of a minute, 2³¹ of a second. A count
/// that comes to the end of its bits stays there until its window is over.
#[derive(Clone, Copy, Debug)]
pub struct WindowWord {
    rule: Window,
    used_bits: u32,
    used_mask: u64,
    /// The largest cost of one request, and how many units must be left for any.
    cost_max: Cost,
    needs_max: Cost,
    even: Even,
}

/// Windows of equal length, where one multiplication finds the window of an instant. Valid up to `windows_max`.
#[derive(Clone, Copy, Debug)]
struct Even {
    /// Instant at which window zero begins; before the epoch it wraps.
    begin: u64,
    length: u64,
    per_length: Reciprocal,
    /// Time after `begin` for which it is valid, in nanoseconds.
    elapsed_max: u64,
    windows_max: u64,
}

impl Even {
    /// Valid for no window: months, and windows of a nanosecond.
    const NONE: Self =
        Self { begin: 0, length: 0, per_length: Reciprocal::NONE, elapsed_max: 0, windows_max: 0 };

    /// Of a grid up to its window `most`.
    fn of(grid: &Grid, most: u64) -> Self {
        let Grid::Even { length, lead } = *grid else { return Self::NONE };
        if length < 2 {
            return Self::NONE;
        }
        let begin = -i128::from(lead);
        // Neither an instant in the last of them nor its end may overflow.
        let ends_before = i128::from(WORD_MAX).min(i128::from(u64::MAX) - begin) / i128::from(length);
        let windows_max = u64::try_from(ends_before - 2).unwrap_or(0).min(most);
        let per_length = Reciprocal::of(length);
        Self { begin: begin as u64, length, per_length, elapsed_max: windows_max * length, windows_max }
    }
}

impl WindowWord {
    /// Returns the single-word encoding, if the numbers of the windows up to [`WORDS_END`] fit above the count.
    pub fn new(rule: &Window) -> Option<Self> {
        let last = rule.grid.index(WORDS_END);
        let limit_bits = u64::BITS - rule.limit.leading_zeros();
        let used_bits = (limit_bits..=UNITS_MAX.count_ones()).rev().find(|bits| last < WORD_MAX >> bits)?;
        let most = WORD_MAX >> used_bits;
        Some(Self {
            rule: *rule,
            used_bits,
            used_mask: (1 << used_bits) - 1,
            cost_max: rule.cost_max(),
            needs_max: rule.needs(Cost::MAX),
            even: Even::of(&rule.grid, most),
        })
    }

    /// Checks whether the last debit may cross the edge.
    pub fn crosses(&self) -> bool {
        self.rule.crosses
    }

    /// The same words, where nothing passes beyond the limit.
    pub fn uncrossed(&self) -> Self {
        let rule = self.rule.uncrossed();
        Self { rule, cost_max: rule.cost_max(), needs_max: rule.needs(Cost::MAX), ..*self }
    }

    /// Returns the key's next word where nothing passes beyond the limit: that of [`uncrossed`](Self::uncrossed).
    #[inline(always)]
    pub fn next_whole(&self, word: u64, floor: u64, cost: Cost) -> Option<u64> {
        let left = self.rule.limit.saturating_sub(self.used(word.max(floor)));
        self.next(word, floor, cost).filter(|_| cost <= left)
    }

    /// Returns the decision at `now` where nothing passes beyond the limit: that of [`uncrossed`](Self::uncrossed).
    #[inline]
    pub fn decide_whole(&self, word: u64, cost: Cost, now: Timestamp) -> Decision {
        let floor = self.floor(now);
        match self.next_whole(word, floor, cost) {
            Some(next) => self.allowed(next, floor, cost),
            None => self.denied_whole(word, floor, cost, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn denied_whole(&self, word: u64, floor: u64, cost: Cost, now: Timestamp) -> Decision {
        self.uncrossed().denied(word, floor, cost, now)
    }

    #[inline]
    fn used(&self, word: u64) -> u64 {
        word & self.used_mask
    }

    /// Returns how much more the count can represent.
    #[inline]
    fn uncounted(&self, word: u64) -> u64 {
        self.used_mask - self.used(word)
    }

    #[inline]
    fn count(&self, word: u64) -> Count {
        Count { window: word >> self.used_bits, used: self.used(word) }
    }

    /// The floor where windows are not even, and past the end of words.
    #[inline(never)]
    fn floor_in_full(&self, now: Timestamp) -> u64 {
        self.rule.grid.index(now).min(self.window_max()) << self.used_bits
    }

    /// The last window that a word can represent.
    fn window_max(&self) -> u64 {
        WORD_MAX >> self.used_bits
    }

    #[inline(never)]
    fn allowed_in_full(&self, next: u64) -> Decision {
        self.rule.allowed(self.count(next))
    }

    /// The end of a window where windows are not even, and of the last ones of words.
    #[inline(never)]
    fn reset_in_full(&self, next: u64) -> Timestamp {
        self.rule.grid.end(next >> self.used_bits)
    }
}

impl WordRule for WindowWord {
    #[inline(always)]
    fn floor(&self, now: Timestamp) -> u64 {
        let elapsed = now.as_nanos().wrapping_sub(self.even.begin);
        if elapsed >= self.even.elapsed_max {
            return self.floor_in_full(now);
        }
        self.even.per_length.divide(elapsed) << self.used_bits
    }

    /// Computes the start of the word's own window before the clock is read, so only a comparison waits for the clock.
    /// That does not overflow: the window has begun.
    #[inline(always)]
    fn at_once(&self, word: u64, cost: Cost, now: Timestamp) -> Option<u64> {
        let start = self.even.begin.wrapping_add((word >> self.used_bits).wrapping_mul(self.even.length));
        let left = self.rule.limit.saturating_sub(self.used(word));
        let passes = cost.wrapping_sub(1) < self.cost_max && cost.min(self.needs_max) <= left;
        (passes && now.as_nanos().wrapping_sub(start) < self.even.length)
            .then(|| word + cost.min(self.uncounted(word)))
    }

    #[inline(always)]
    fn next(&self, word: u64, floor: u64, cost: Cost) -> Option<u64> {
        let word = word.max(floor);
        let left = self.rule.limit.saturating_sub(self.used(word));
        let passes = cost.min(self.needs_max) <= left && cost <= self.cost_max && word <= WORD_MAX;
        passes.then(|| word + cost.min(self.uncounted(word)))
    }

    #[inline(always)]
    fn allowed(&self, next: u64, _floor: u64, _cost: Cost) -> Decision {
        let window = next >> self.used_bits;
        if window >= self.even.windows_max {
            return self.allowed_in_full(next);
        }
        Decision {
            allowed: true,
            limit: self.rule.limit,
            remaining: self.rule.limit.saturating_sub(self.used(next)),
            reset_at: Timestamp::from_nanos(self.even.begin.wrapping_add((window + 1) * self.even.length)),
            retry_after: Retry::Now,
        }
    }

    #[inline(always)]
    fn limit(&self) -> u64 {
        self.rule.limit
    }

    #[inline(always)]
    fn waits(&self) -> bool {
        false
    }

    #[inline(always)]
    fn left(&self, next: u64, _floor: u64) -> (u64, Timestamp) {
        let window = next >> self.used_bits;
        let reset_at = if window >= self.even.windows_max {
            self.reset_in_full(next)
        } else {
            Timestamp::from_nanos(self.even.begin.wrapping_add((window + 1) * self.even.length))
        };
        (self.rule.limit.saturating_sub(self.used(next)), reset_at)
    }

    #[cold]
    #[inline(never)]
    fn denied(&self, word: u64, floor: u64, cost: Cost, now: Timestamp) -> Decision {
        let denied = self.rule.denied(self.count(word.max(floor)), cost, now);
        if self.rule.grid.index(now) > self.window_max() { super::never(denied) } else { denied }
    }

    #[inline]
    fn mark(&self, word: u64, now: Timestamp) -> Mark {
        Mark(self.count(word.max(self.floor(now))).window)
    }

    /// A charge leaves the word in the window that it went to.
    #[inline(always)]
    fn mark_of(&self, next: u64, _now: Timestamp) -> Mark {
        Mark(next >> self.used_bits)
    }

    /// Refunds units to the window they were taken from, while it lasts.
    fn refund(&self, word: u64, mark: Mark, units: Cost, _now: Timestamp) -> u64 {
        let Count { window, used } = self.count(word);
        let known = self.uncounted(word) > 0;
        if window == mark.0 && known { word - units.min(used) } else { word }
    }

    fn owe(&self, word: u64, units: Cost, now: Timestamp) -> u64 {
        let word = word.max(self.floor(now));
        word + units.min(self.uncounted(word))
    }

    fn forecast(&self, word: u64, cost: Cost, now: Timestamp) -> Forecast {
        self.rule.forecast(&self.count(word.max(self.floor(now))), cost, now)
    }
}
