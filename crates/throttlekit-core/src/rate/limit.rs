//! The closed set of rate rules that every store can run.

use core::num::NonZeroU32;
use core::time::Duration;

use super::{
    Bucket, Cadence, Count, Gcra, LimitError, Log, Mark, Rate, Ring, Rule, Settle, SlidingLog, SlidingWindow,
    Tat, Window,
};
use crate::{Cost, Decision, Forecast, Timestamp};

/// One rule with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// GCRA, token bucket or leaky bucket.
    Gcra(Gcra),
    /// Fixed, anchored or calendar windows, and token budgets in them.
    Window(Window),
    /// A window that slides by buckets.
    SlidingWindow(SlidingWindow),
    /// A window that slides exactly.
    SlidingLog(SlidingLog),
}

/// State that a [`Limit`] keeps for one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// A key that was never seen.
    #[default]
    Fresh,
    /// Of a [`Gcra`].
    Tat(Tat),
    /// Of a [`Gcra`] of another pace, as a store keeps it: the limit was changed since it was last charged.
    Bucket(Bucket),
    /// Of a [`Window`].
    Count(Count),
    /// Of a [`SlidingWindow`].
    Ring(Ring),
    /// Of a [`SlidingLog`].
    Log(Log),
}

impl State {
    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Fresh | Self::Tat(_) | Self::Bucket(_) | Self::Count(_) => 0,
            Self::Ring(ring) => ring.heap_bytes(),
            Self::Log(log) => log.heap_bytes(),
        }
    }
}

impl Limit {
    /// A smooth rate with a burst. The default choice.
    pub fn gcra(rate: Rate) -> Result<Self, LimitError> {
        Gcra::new(rate).map(Self::Gcra)
    }

    /// A bucket of `capacity` units refilled at `refill`.
    pub fn token_bucket(capacity: u64, refill: Rate) -> Result<Self, LimitError> {
        Gcra::token_bucket(capacity, refill).map(Self::Gcra)
    }

    /// A shaper: work leaves at `rate`, and what would wait beyond `max_wait` is denied.
    pub fn leaky_bucket(rate: Rate, max_wait: Duration) -> Result<Self, LimitError> {
        Gcra::leaky_bucket(rate, max_wait).map(Self::Gcra)
    }

    /// `limit` units in each window of `length`, aligned to the epoch.
    pub fn fixed_window(limit: u64, length: Duration) -> Result<Self, LimitError> {
        Self::quota(limit, Cadence::Every { length, anchor: Timestamp::EPOCH })
    }

    /// `limit` units in each window of a calendar or anchored cadence.
    pub fn quota(limit: u64, cadence: Cadence) -> Result<Self, LimitError> {
        Window::new(limit, cadence).map(Self::Window)
    }

    /// `budget` tokens in each window of `length`, debited as they come: a debit passes while any are left, and is
    /// counted in full. See [`Window::budget`].
    ///
    /// ```
    /// use core::time::Duration;
    /// use throttlekit_core::{Timestamp, rate::{Limit, Rule, State}};
    ///
    /// let minute = Limit::token_budget(100, Duration::from_secs(60))?;
    /// let (mut key, now) = (State::default(), Timestamp::EPOCH);
    /// assert_eq!(minute.check(&mut key, 80, now).remaining, 20);
    /// assert!(minute.check(&mut key, 50, now).allowed, "20 are left, so the debit that crosses the edge passes");
    /// assert!(!minute.check(&mut key, 1, now).allowed, "130 are charged");
    /// # Ok::<(), throttlekit_core::rate::LimitError>(())
    /// ```
    pub fn token_budget(budget: u64, length: Duration) -> Result<Self, LimitError> {
        Self::budget(budget, Cadence::Every { length, anchor: Timestamp::EPOCH })
    }

    /// The same in each window of a calendar or anchored cadence.
    pub fn budget(budget: u64, cadence: Cadence) -> Result<Self, LimitError> {
        Window::budget(budget, cadence).map(Self::Window)
    }

    /// `limit` units in a window that slides in ten steps.
    pub fn sliding_window(limit: u64, length: Duration) -> Result<Self, LimitError> {
        SlidingWindow::new(limit, length, 10).map(Self::SlidingWindow)
    }

    /// `limit` units in any interval of `length`, exactly; at most 10,000 units.
    pub fn sliding_log(limit: u64, length: Duration) -> Result<Self, LimitError> {
        SlidingLog::new(limit, length).map(Self::SlidingLog)
    }

    /// The most units that ever pass at once: burst, capacity or window limit; or the budget, which one debit crosses.
    pub fn units(&self) -> u64 {
        match self {
            Self::Gcra(rule) => rule.units(),
            Self::Window(rule) => rule.units(),
            Self::SlidingWindow(rule) => rule.units(),
            Self::SlidingLog(rule) => rule.units(),
        }
    }

    /// Largest cost of one request: a higher cost never passes. A budget admits even more than it has.
    pub fn cost_max(&self) -> Cost {
        match self {
            Self::Window(rule) => rule.cost_max(),
            other => other.units(),
        }
    }

    /// The same limit where nothing passes beyond its units: for a budget, the window that counts together with it and
    /// whose edge no request crosses. Reservations are taken from that.
    pub fn uncrossed(&self) -> Self {
        match self {
            Self::Window(rule) => Self::Window(rule.uncrossed()),
            other => *other,
        }
    }

    /// Returns the time until all of [`units`](Self::units) are back. A calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        match self {
            Self::Gcra(rule) => rule.period(),
            Self::Window(rule) => rule.period(),
            Self::SlidingWindow(rule) => rule.period(),
            Self::SlidingLog(rule) => rule.period(),
        }
    }

    /// The part of the limit that one of `nodes` may admit on its own; `None` if that is less than a unit.
    ///
    /// All of them together admit at most what the limit does: the share of a budget is not crossed.
    pub fn share(&self, nodes: NonZeroU32) -> Option<Self> {
        let part = |units: u64| units / u64::from(nodes.get());
        match self {
            Self::Gcra(rule) => rule.share(nodes).map(Self::Gcra),
            Self::Window(rule) => Some(Self::Window(Window { limit: part(rule.limit), ..rule.uncrossed() })),
            Self::SlidingWindow(rule) => {
                Some(Self::SlidingWindow(SlidingWindow { limit: part(rule.limit), ..*rule }))
            }
            Self::SlidingLog(rule) => Some(Self::SlidingLog(SlidingLog { limit: part(rule.limit), ..*rule })),
        }
        .filter(|share| share.units() > 0)
    }

    /// Checks whether a [refund](super::Settle::refund) has any effect. For a shaper it has none: the turns after the
    /// refunded one are already assigned.
    pub fn hands_back(&self) -> bool {
        !matches!(self, Self::Gcra(rule) if rule.shapes())
    }

    /// Checks whether windows begin at instants of the civil clock, so that a store should read that clock.
    pub fn follows_wall_clock(&self) -> bool {
        matches!(self, Self::Window(_))
    }
}

impl TryFrom<Rate> for Limit {
    type Error = LimitError;

    fn try_from(rate: Rate) -> Result<Self, LimitError> {
        Self::gcra(rate)
    }
}

impl From<Gcra> for Limit {
    fn from(rule: Gcra) -> Self {
        Self::Gcra(rule)
    }
}

impl From<Window> for Limit {
    fn from(rule: Window) -> Self {
        Self::Window(rule)
    }
}

impl From<SlidingWindow> for Limit {
    fn from(rule: SlidingWindow) -> Self {
        Self::SlidingWindow(rule)
    }
}

impl From<SlidingLog> for Limit {
    fn from(rule: SlidingLog) -> Self {
        Self::SlidingLog(rule)
    }
}

/// The part of a [`State`] that belongs to one rule. A state of another rule counts as fresh: a limit that changed its
/// kind starts over.
trait Part: Default {
    fn read(state: &State) -> Option<&Self>;
    fn write(state: &mut State) -> Option<&mut Self>;
    fn wrap(self) -> State;
}

macro_rules! part {
    ($part:ident) => {
        impl Part for $part {
            fn read(state: &State) -> Option<&Self> {
                if let State::$part(part) = state { Some(part) } else { None }
            }

            fn write(state: &mut State) -> Option<&mut Self> {
                if let State::$part(part) = state { Some(part) } else { None }
            }

            fn wrap(self) -> State {
                State::$part(self)
            }
        }
    };
}

part!(Tat);
part!(Count);
part!(Ring);
part!(Log);

fn with<R: Rule<State: Part>, T>(rule: &R, state: &State, f: impl Fn(&R, &R::State) -> T) -> T {
    match R::State::read(state) {
        Some(part) => f(rule, part),
        None => f(rule, &R::State::default()),
    }
}

fn with_mut<R: Rule<State: Part>>(rule: &R, state: &mut State, f: impl Fn(&R, &mut R::State)) {
    if let Some(part) = R::State::write(state) {
        return f(rule, part);
    }
    let mut part = R::State::default();
    f(rule, &mut part);
    *state = part.wrap();
}

/// The state, where a bucket of another pace has become one of this limit's.
fn carried<'a>(rule: &Gcra, state: &'a mut State, now: Timestamp) -> &'a mut State {
    if let State::Bucket(bucket) = state {
        *state = State::Tat(rule.carried(bucket, now));
    }
    state
}

fn join<R: Rule<State: Part>>(rule: &R, state: &mut State, other: &State) {
    if let Some(other) = R::State::read(other) {
        with_mut(rule, state, |rule, part| rule.join(part, other));
    }
}

impl Rule for Limit {
    type State = State;

    fn decide(&self, state: &State, cost: Cost, now: Timestamp) -> Decision {
        match self {
            Self::Gcra(rule) => match state {
                State::Bucket(bucket) => rule.decide_carried(bucket, cost, now),
                _ => with(rule, state, |r, s| r.decide(s, cost, now)),
            },
            Self::Window(rule) => with(rule, state, |r, s| r.decide(s, cost, now)),
            Self::SlidingWindow(rule) => with(rule, state, |r, s| r.decide(s, cost, now)),
            Self::SlidingLog(rule) => with(rule, state, |r, s| r.decide(s, cost, now)),
        }
    }

    fn charge(&self, state: &mut State, cost: Cost, now: Timestamp) {
        if cost == 0 {
            return;
        }
        match self {
            Self::Gcra(rule) => with_mut(rule, carried(rule, state, now), |r, s| r.charge(s, cost, now)),
            Self::Window(rule) => with_mut(rule, state, |r, s| r.charge(s, cost, now)),
            Self::SlidingWindow(rule) => with_mut(rule, state, |r, s| r.charge(s, cost, now)),
            Self::SlidingLog(rule) => with_mut(rule, state, |r, s| r.charge(s, cost, now)),
        }
    }

    fn idle_at(&self, state: &State) -> Timestamp {
        match self {
            Self::Gcra(rule) => match state {
                State::Bucket(bucket) => bucket.idle_at(),
                _ => with(rule, state, Gcra::idle_at),
            },
            Self::Window(rule) => with(rule, state, Window::idle_at),
            Self::SlidingWindow(rule) => with(rule, state, SlidingWindow::idle_at),
            Self::SlidingLog(rule) => with(rule, state, SlidingLog::idle_at),
        }
    }

    fn join(&self, state: &mut State, other: &State) {
        match self {
            Self::Gcra(rule) => match other {
                // At the instant it was written, when most of it was used.
                State::Bucket(bucket) => {
                    let written = Timestamp::from_micros(bucket.since);
                    let other = State::Tat(rule.carried(bucket, written));
                    join(rule, carried(rule, state, written), &other);
                }
                _ => join(rule, carried(rule, state, Timestamp::EPOCH), other),
            },
            Self::Window(rule) => join(rule, state, other),
            Self::SlidingWindow(rule) => join(rule, state, other),
            Self::SlidingLog(rule) => join(rule, state, other),
        }
    }

    fn forecast(&self, state: &State, cost: Cost, now: Timestamp) -> Forecast {
        match self {
            Self::Gcra(_) => super::forecast(|cost| self.decide(state, cost, now), cost, now),
            Self::Window(rule) => with(rule, state, |r, s| r.forecast(s, cost, now)),
            Self::SlidingWindow(rule) => with(rule, state, |r, s| r.forecast(s, cost, now)),
            Self::SlidingLog(rule) => with(rule, state, |r, s| r.forecast(s, cost, now)),
        }
    }
}

impl Settle for Limit {
    fn mark(&self, state: &State, now: Timestamp) -> Mark {
        match self {
            Self::Gcra(rule) => with(rule, state, |r, s| r.mark(s, now)),
            Self::Window(rule) => with(rule, state, |r, s| r.mark(s, now)),
            Self::SlidingWindow(rule) => with(rule, state, |r, s| r.mark(s, now)),
            Self::SlidingLog(rule) => with(rule, state, |r, s| r.mark(s, now)),
        }
    }

    fn refund(&self, state: &mut State, mark: Mark, units: Cost, now: Timestamp) {
        match self {
            Self::Gcra(rule) => match state {
                State::Bucket(bucket) => {
                    if let Some(tat) = rule.refund_carried(bucket, mark, units, now) {
                        *state = State::Tat(tat);
                    }
                }
                _ => with_mut(rule, state, |r, s| r.refund(s, mark, units, now)),
            },
            Self::Window(rule) => with_mut(rule, state, |r, s| r.refund(s, mark, units, now)),
            Self::SlidingWindow(rule) => with_mut(rule, state, |r, s| r.refund(s, mark, units, now)),
            Self::SlidingLog(rule) => with_mut(rule, state, |r, s| r.refund(s, mark, units, now)),
        }
    }

    fn owe(&self, state: &mut State, units: Cost, now: Timestamp) {
        match self {
            Self::Gcra(rule) => match state {
                State::Bucket(bucket) => {
                    let before = rule.carried(bucket, now);
                    let mut owing = before;
                    rule.owe(&mut owing, units, now);
                    // A key that owes as much as anyone can stays as it is, in its own pace.
                    if owing.0 > before.0 {
                        *state = State::Tat(owing);
                    }
                }
                _ => with_mut(rule, state, |r, s| r.owe(s, units, now)),
            },
            Self::Window(rule) => with_mut(rule, state, |r, s| r.owe(s, units, now)),
            Self::SlidingWindow(rule) => with_mut(rule, state, |r, s| r.owe(s, units, now)),
            Self::SlidingLog(rule) => with_mut(rule, state, |r, s| r.owe(s, units, now)),
        }
    }
}
