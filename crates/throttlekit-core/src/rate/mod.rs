//! The rate axis: requests over time.
//!
//! Four rules cover the field. [`Gcra`] is GCRA, the token bucket and the leaky-bucket shaper: the three differ only in
//! parameters and in what they report, so they share one arithmetic. [`Window`] counts in fixed, anchored or calendar
//! windows, where a token budget admits the last debit across its edge. [`SlidingWindow`] weighs sub-windows.
//! [`SlidingLog`] remembers every admission.

mod bucket;
mod budget;
mod calendar;
pub mod estimate;
mod gcra;
mod limit;
mod pace;
mod reciprocal;
mod several;
pub mod shared;
mod sliding_log;
mod sliding_window;
pub mod stored;
mod window;
pub mod word;
mod zone;

pub use bucket::{Bucket, SharedPace};
pub use budget::Budget;
pub(crate) use calendar::Grid;
pub use calendar::{Cadence, LocalPeriod, Weekday};
pub use gcra::{Gcra, Tat};
pub use limit::{Limit, State};
pub(crate) use pace::checked_units;
pub use pace::{LimitError, Rate};
pub use several::{LimitCharge, Need, Verdict};
pub use sliding_log::{Log, SlidingLog};
pub use sliding_window::{Ring, SlidingWindow};
pub use window::{BUDGET_MAX, Count, Window};
pub use zone::{Zone, ZoneOffset, ZoneTable};

use core::time::Duration;

use crate::{Cost, Decision, Forecast, Retry, Timestamp};

/// Largest number of units in one limit: what a double, and so every wire and script, carries exactly.
pub const UNITS_MAX: u64 = (1 << 53) - 1;

/// Charge position: the instant, window or bucket of a charge, whichever the rule counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub u64);

impl Mark {
    /// Position of a charge to a window of another limit, e.g. after the limit was changed. Nothing of it is refunded.
    pub const NONE: Self = Self(u64::MAX);
}

/// Longest debt of a key. Beyond it more use adds nothing, so that no sum ever overflows.
const DEBT_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// One rate rule. Pure: all it remembers of a key is in the state, and the time is `now`.
///
/// Time moves only forward: each rule decides at `max(now, the last instant in its state)`, so a clock that
/// steps back never admits more.
pub trait Rule {
    /// State of one key. The default is a key that was never seen.
    type State: Clone + Default;

    /// Returns the decision on a request of `cost` at `now`. Borrows the state, so a denial writes nothing.
    fn decide(&self, state: &Self::State, cost: Cost, now: Timestamp) -> Decision;

    /// Charges the cost of a request that [`decide`](Self::decide) allowed at the same instant. A charge of zero leaves
    /// the state as it is.
    fn charge(&self, state: &mut Self::State, cost: Cost, now: Timestamp);

    /// Returns when the state becomes equivalent to a fresh one; a store may drop it from then on.
    fn idle_at(&self, state: &Self::State) -> Timestamp;

    /// Raises `state` to the least state that denies whatever `state` or `other` denies. A bounded store keeps this for
    /// the keys it had to drop.
    fn join(&self, state: &mut Self::State, other: &Self::State);

    /// Decides, and charges if allowed.
    fn check(&self, state: &mut Self::State, cost: Cost, now: Timestamp) -> Decision {
        let decision = self.decide(state, cost, now);
        if decision.allowed {
            self.charge(state, cost, now);
        }
        decision
    }

    /// Returns what is left right now, spending nothing: `allowed` reports whether one unit would pass.
    fn peek(&self, state: &Self::State, now: Timestamp) -> Decision {
        peek(|cost| self.decide(state, cost, now))
    }

    /// Returns how many requests of `cost` pass now, and when units come back. Exact, because every `retry_after` is.
    fn forecast(&self, state: &Self::State, cost: Cost, now: Timestamp) -> Forecast {
        forecast(|cost| self.decide(state, cost, now), cost, now)
    }
}

/// A rule whose charges can be settled: charged with an estimate, corrected when the work is done.
pub trait Settle: Rule {
    /// Returns the position of a charge at `now`, so that it can be settled later.
    fn mark(&self, state: &Self::State, now: Timestamp) -> Mark;

    /// Refunds units of the charge at position `mark`. Never more than if they had not been charged.
    fn refund(&self, state: &mut Self::State, mark: Mark, units: Cost, now: Timestamp);

    /// Charges units that were used and not requested. They may go beyond the limit; requests are denied until it has
    /// recovered.
    fn owe(&self, state: &mut Self::State, units: Cost, now: Timestamp);

    /// Replaces the charge at position `mark` by what was used.
    fn settle(&self, state: &mut Self::State, mark: Mark, charged: Cost, actual: Cost, now: Timestamp) {
        if actual > charged {
            self.owe(state, actual - charged, now);
        } else if actual < charged {
            self.refund(state, mark, charged - actual, now);
        }
    }
}

fn peek(decide: impl Fn(Cost) -> Decision) -> Decision {
    let left = decide(0);
    if left.remaining > 0 {
        return Decision { allowed: true, retry_after: Retry::Now, ..left };
    }
    Decision { allowed: false, retry_after: decide(1).retry_after, ..left }
}

fn forecast(decide: impl Fn(Cost) -> Decision, cost: Cost, now: Timestamp) -> Forecast {
    let left = decide(0);
    let when = |units| match decide(units) {
        Decision { allowed: false, retry_after: Retry::After(wait), .. } => now + wait,
        _ => now,
    };
    Forecast {
        spendable_now: left.remaining / cost.max(1),
        next_replenish_at: when((left.remaining + 1).min(left.limit)),
        full_at: when(left.limit),
    }
}

/// The decision of a limit whose whole size is below the request's cost.
fn never(left: Decision) -> Decision {
    Decision { allowed: false, retry_after: Retry::Never, ..left }
}
