//! Prices for scarce budgets: which requests to deny while there is still capacity.
//!
//! Limits admit first come, first served. Where a budget runs short and requests differ in value per unit, early
//! requests may use up what a better one would have needed. A bid price denies requests whose value is below the price
//! of what they use:
//!
//! > admit only if value ≥ p_R + p_C·cost + p_K·hold.
//!
//! * [`solve_fluid_lp`] finds the [`Prices`] for a workload that is known; a [`Certificate`] shows that they are
//!   optimal.
//! * [`Refiner`] begins with the prices of an assumed workload, observes the requests, and prices again.
//!
//! Prices only remove admits. The limits are checked as before, after the prices, and count in integers; so no price,
//! right or wrong, admits anything over a limit (guarantee `bid-price`). This is why floats may compute here.

mod certificate;
mod fluid;
mod linear;
mod mixture;
mod refiner;
mod replay;
mod simplex;
mod tie_break;

pub use certificate::Certificate;
pub use fluid::{Solution, solve_fluid_lp};
pub use refiner::{Left, Refiner, RefinerOptions, Review, SAMPLE_MAX};

use core::fmt;

use crate::Cost;

/// Largest number of kinds of requests in one workload.
pub const KINDS_MAX: usize = 64;

/// Value and resource use of a request. Both are as declared by the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bid {
    /// Value of admitting it, in any unit.
    pub value: f64,
    /// Units of the cost axis.
    pub cost: Cost,
    /// Seconds for which it would hold a slot, if known.
    pub hold: Option<f64>,
}

impl Bid {
    /// A bid of this value at this cost, that holds no slot.
    pub fn new(value: f64, cost: Cost) -> Self {
        Self { value, cost, hold: None }
    }

    /// The same bid, holding a slot for `seconds`.
    pub fn hold(self, seconds: f64) -> Self {
        Self { hold: Some(seconds), ..self }
    }

    /// The hold as a price sees it: unknown, negative or not a number counts as none.
    fn priced_hold(&self) -> f64 {
        self.hold.filter(|hold| hold.is_finite() && *hold > 0.0).unwrap_or(0.0)
    }
}

/// Prices of one request, one unit of cost and one second of a slot.
///
/// ```
/// use throttlekit_core::price::{Bid, Prices};
///
/// let prices = Prices { rate: 0.0, cost: 0.01, hold: 0.0 };
/// assert!(prices.admits(&Bid::new(1.0, 100)), "worth just what it uses");
/// assert!(!prices.admits(&Bid::new(50.0, 10_000)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Of one request: p_R.
    pub rate: f64,
    /// Of a unit of cost: p_C.
    pub cost: f64,
    /// Of a second of a slot: p_K.
    pub hold: f64,
}

impl Prices {
    /// Prices that deny nothing.
    pub const FREE: Self = Self { rate: 0.0, cost: 0.0, hold: 0.0 };

    /// These prices, if each is a finite number that is not negative.
    pub fn new(rate: f64, cost: f64, hold: f64) -> Result<Self, PriceError> {
        number("price", rate)?;
        number("price", cost)?;
        number("price", hold)?;
        Ok(Self { rate, cost, hold })
    }

    /// Checks whether the value of the bid covers the price of what it uses. Never changes the decision of a limit.
    ///
    /// A hold that is unknown, negative or not a finite number adds nothing to the price: it neither denies a request
    /// nor admits it. A value that is not a number is denied.
    pub fn admits(&self, bid: &Bid) -> bool {
        bid.value >= self.of(bid)
    }

    fn times(self, factor: f64) -> Self {
        Self { rate: self.rate * factor, cost: self.cost * factor, hold: self.hold * factor }
    }

    /// Returns the least value at which a bid is admitted.
    pub fn of(&self, bid: &Bid) -> f64 {
        self.rate + self.cost * bid.cost as f64 + self.hold * bid.priced_hold()
    }
}

/// Requests of one kind, in a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestKind {
    /// Number of them that arrive while the budgets last.
    pub weight: f64,
    /// Value of admitting one.
    pub value: f64,
    /// Units of the cost axis that one uses.
    pub cost: f64,
    /// Seconds for which one holds a slot.
    pub hold: f64,
}

/// Budgets for a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budgets {
    /// Requests.
    pub rate: f64,
    /// Units of cost.
    pub cost: f64,
    /// Slot-seconds: L slots over T seconds are L·T. `None` where no request holds a slot.
    pub hold: Option<f64>,
}

/// Reason why there are no prices.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PriceError {
    /// No kinds, or none with a weight.
    Empty,
    /// More than [`KINDS_MAX`] kinds.
    TooManyKinds(usize),
    /// A number that must be finite and not negative.
    NotANumber(&'static str, f64),
    /// A sample outside 1 to [`SAMPLE_MAX`].
    Sample(usize),
    /// A budget of slot-seconds without the number of slots, or slots without a budget.
    Slots,
    /// The numbers are too far apart in size for the solver.
    Unsolved,
}

impl fmt::Display for PriceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "no requests to price: give at least one kind a weight above 0"),
            Self::TooManyKinds(n) => {
                write!(f, "too many kinds: {n}, at most {KINDS_MAX}; merge similar ones")
            }
            Self::NotANumber(what, n) => {
                write!(f, "invalid {what} {n}: expected a finite number that is not negative")
            }
            Self::Sample(n) => write!(f, "invalid sample of {n} requests: expected 1 to {SAMPLE_MAX}"),
            Self::Slots => {
                write!(f, "set both a budget of slot-seconds and the number of slots, or neither")
            }
            Self::Unsolved => {
                write!(f, "weights, values and budgets differ too much in magnitude: omit the smallest")
            }
        }
    }
}

impl core::error::Error for PriceError {}

/// Rejects anything but a finite number from zero up.
fn number(what: &'static str, n: f64) -> Result<(), PriceError> {
    if n.is_finite() && n >= 0.0 { Ok(()) } else { Err(PriceError::NotANumber(what, n)) }
}

#[cfg(test)]
mod tests;
