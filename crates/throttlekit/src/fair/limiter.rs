//! The public fair limiter: one budget that tenants share.

use std::time::Duration;

use throttlekit_core::fair::{MEMBERS_MAX, Weight};
use throttlekit_core::rate::{Budget, LimitError};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::receipt::{Charged, Portion};
use super::rule::Sharing;
use super::tenants::Tenants;
use super::tree::{Path, PathWeightOf, Places};
use super::{FairLimiterBuilder, FairReceipt};
use crate::clock::{Clock, SystemClock};
use crate::hash::{KeyHash, SecretHash};
use crate::sync::Mutex;
use crate::{BuildError, Call};

/// Function that returns the weight of a tenant by its name.
pub(in crate::fair) type WeightOf = Box<dyn Fn(&[u8]) -> Weight + Send + Sync>;

/// One budget per window, shared by tenants, in this process. The key of a call is the tenant; with
/// [`tree`](FairLimiterBuilder::tree), its keys are the path from the root to a leaf.
///
/// A check takes a short lock and never waits for I/O. Its cost does not grow with the number of tenants; with `tree` it
/// depends on the depth of the path, of which at most 16 levels count.
///
/// ```
/// use throttlekit::{Budget, FairLimiter};
///
/// let tokens = FairLimiter::builder(Budget::per_minute(30_000))
///     .weights(|tenant| if tenant.starts_with(b"pro:") { 4 } else { 1 })
///     .build()?;
///
/// assert!(tokens.check(("pro:ada", 8_000)).allowed, "no other tenant is active yet");
/// assert!(!tokens.check(("free:bob", 8_000)).allowed, "a fifth of the budget is 6,000");
/// assert!(tokens.check(("free:bob", 6_000)).allowed);
/// # Ok::<(), throttlekit::BuildError>(())
/// ```
pub struct FairLimiter<C = SystemClock> {
    shares: Shares,
    clock: C,
    hash: SecretHash,
}

/// The members that share the budget.
#[expect(
    clippy::large_enum_variant,
    reason = "one for each limiter, and a box would be one more load a check"
)]
pub(super) enum Shares {
    Flat { tenants: Mutex<Tenants>, weight_of: WeightOf },
    Tree { places: Mutex<Places>, weight_of: PathWeightOf },
}

impl Shares {
    pub(super) fn flat(rule: Sharing, tenants_max: usize, weight_of: WeightOf) -> Self {
        let tenants = Tenants::new(rule, tenants_max.clamp(1, MEMBERS_MAX));
        Self::Flat { tenants: Mutex::new(tenants), weight_of }
    }

    pub(super) fn tree(
        budget: Budget,
        names_max: usize,
        weight_of: PathWeightOf,
    ) -> Result<Self, LimitError> {
        Ok(Self::Tree { places: Mutex::new(Places::new(budget, names_max)?), weight_of })
    }
}

/// State of a [`FairLimiter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FairStats {
    /// The limit of a window.
    pub limit: u64,
    /// Units admitted in this window.
    pub used: u64,
    /// Number of tenants with a request in this window and an entry; of groups and leaves in a tree.
    pub tenants: usize,
    /// Number of times that a tenant took over the entry of another, ever. If this grows, raise `tenants_max`. Zero in
    /// a tree, where new names share an entry.
    pub displaced: u64,
}

impl FairLimiter {
    /// Creates a limiter for tenants of equal weight.
    pub fn new(budget: Budget) -> Result<Self, BuildError> {
        Self::builder(budget).build()
    }

    /// Creates a builder, with all options.
    pub fn builder(budget: Budget) -> FairLimiterBuilder {
        FairLimiterBuilder::new(budget)
    }
}

impl<C: Clock> FairLimiter<C> {
    pub(super) fn from_parts(shares: Shares, clock: C) -> Self {
        Self { shares, clock, hash: SecretHash::random() }
    }

    /// Checks one request, and charges it if allowed. The reported limit is the tenant's own at present. A request of
    /// cost zero changes nothing, and returns the most that would pass; in a tree it makes the leaf active.
    ///
    /// In a tree, a name followed by others is a group; the same name at the end of a path is a separate leaf. A path
    /// of more than 16 names ends there, in the entry that new names share.
    #[inline]
    pub fn check<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        let call = call.into();
        self.check_weighing(&call, self.weight(&call))
    }

    /// Like [`check`](Self::check), with proof of the charge, by which it can be [settled](Self::settle) when the actual
    /// cost is known. To charge units that were used without a request, charge a cost of zero and settle it.
    ///
    /// ```
    /// use throttlekit::{Budget, FairLimiter};
    ///
    /// let tokens = FairLimiter::new(Budget::per_minute(30_000))?;
    /// let (decision, receipt) = tokens.charge(("acme", 1_500));
    /// assert!(decision.allowed);
    /// if let Some(receipt) = receipt {
    ///     tokens.settle(receipt, 400);
    /// }
    /// assert_eq!(tokens.stats().used, 400);
    /// # Ok::<(), throttlekit::BuildError>(())
    /// ```
    pub fn charge<'a>(&self, call: impl Into<Call<'a>>) -> (Decision, Option<FairReceipt>) {
        let call = call.into();
        let (decision, portion) = self.reserve(&call, self.weight(&call));
        (decision, portion.map(|portion| FairReceipt { portion, cost: call.units() }))
    }

    /// Replaces the charged cost by the actual cost. Call it on the limiter that charged, and before a
    /// [`reset`](Self::reset) of the tenant, which returns its units already.
    ///
    /// Unused units return to the window that they came from: the guaranteed, remaining and borrowable units are then
    /// as if they had not been requested. If that window is over, or if another tenant took over or shares the entry,
    /// they expire. The excess is charged to the current window. It may go beyond the tenant's guarantee and the remaining units.
    #[expect(clippy::needless_pass_by_value, reason = "a charge is settled once")]
    pub fn settle(&self, receipt: FairReceipt, actual: u64) {
        self.replace(&receipt.portion, receipt.cost, actual);
    }

    /// Returns what a tenant has left, without spending: `allowed` reports whether one unit would pass. In a tree it
    /// makes the leaf active.
    pub fn peek<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        let left = self.check(call.into().cost(0));
        if left.remaining > 0 {
            return left;
        }
        let wait = left.reset_at.since(self.clock.now());
        Decision { allowed: false, retry_after: Retry::after(wait), ..left }
    }

    /// Removes a tenant: its use in this window is returned, and its next request counts as its first. In a tree, the
    /// groups of the leaf stay active.
    pub fn reset<'a>(&self, call: impl Into<Call<'a>>) {
        let (call, now) = (call.into(), self.clock.now());
        match &self.shares {
            Shares::Flat { tenants, .. } => tenants.lock().remove(self.hash.fingerprint(call.key()), now),
            Shares::Tree { places, .. } => places.lock().remove(&Path::of(&call), &self.hash, now),
        }
    }

    /// Changes the limit, of this window and all that follow. Nothing is revoked: if the limit is below the admitted
    /// units, nothing remains.
    pub fn set_limit(&self, units: u64) {
        let now = self.clock.now();
        match &self.shares {
            Shares::Flat { tenants, .. } => tenants.lock().rule(now).roster_mut().set_limit(units),
            Shares::Tree { places, .. } => places.lock().tree(now).set_limit(units),
        }
    }

    /// Returns the current state.
    pub fn stats(&self) -> FairStats {
        let now = self.clock.now();
        match &self.shares {
            Shares::Flat { tenants, .. } => tenants.lock().stats(now),
            Shares::Tree { places, .. } => places.lock().stats(now),
        }
    }

    /// Returns the length of a window; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        let now = self.clock.now();
        match &self.shares {
            Shares::Flat { tenants, .. } => tenants.lock().rule(now).period(),
            Shares::Tree { places, .. } => places.lock().tree(now).period(),
        }
    }

    /// Returns the current time of the limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns units of a tenant to the window that ends at `reset_at`. For the checks of the guarantees, which return
    /// a charge in parts.
    #[doc(hidden)]
    pub fn refund<'a>(&self, call: impl Into<Call<'a>>, reset_at: Timestamp) {
        let call = call.into();
        let member = Charged::Tenant { name: self.hash.fingerprint(call.key()), weight: self.weight(&call) };
        self.replace(&Portion { member, reset_at }, call.units(), 0);
    }

    /// Returns the weight of the tenant of a call. Runs the user's code: no lock may be held meanwhile.
    #[inline]
    pub(crate) fn weight(&self, call: &Call<'_>) -> Weight {
        match &self.shares {
            Shares::Flat { weight_of, .. } => call.of_weight().unwrap_or_else(|| weight_of(call.key())),
            Shares::Tree { .. } => Weight::ONE,
        }
    }

    /// Like [`charge`](Self::charge), for a tenant of this [weight](Self::weight).
    pub(crate) fn reserve(&self, call: &Call<'_>, weight: Weight) -> (Decision, Option<Portion>) {
        let decision = self.check_weighing(call, weight);
        let portion = || {
            let member = match &self.shares {
                Shares::Flat { .. } => Charged::Tenant { name: self.hash.fingerprint(call.key()), weight },
                Shares::Tree { .. } => Charged::Leaf(Path::of(call).owned()),
            };
            Portion { member, reset_at: decision.reset_at }
        };
        (decision, decision.allowed.then(portion))
    }

    /// Checks a further request of the same member, and charges it if allowed. The weight stays the same.
    pub(crate) fn debit(&self, portion: &Portion, cost: u64) -> Decision {
        let now = self.clock.now();
        match (&self.shares, &portion.member) {
            (Shares::Flat { tenants, .. }, Charged::Tenant { name, weight }) => {
                tenants.lock().check(*name, *weight, cost, now)
            }
            (Shares::Tree { places, weight_of }, Charged::Leaf(names)) => {
                places.lock().check(&Path::from(names), cost, now, (&self.hash, weight_of))
            }
            _ => unreachable!("a portion belongs to the limiter that charged it"),
        }
    }

    /// Replaces a charge by the actual use. No effect on a charge by another kind of limiter.
    pub(crate) fn replace(&self, portion: &Portion, charged: u64, actual: u64) {
        let (reset_at, now) = (portion.reset_at, self.clock.now());
        match (&self.shares, &portion.member) {
            (Shares::Flat { tenants, .. }, Charged::Tenant { name, weight }) => {
                if actual < charged {
                    tenants.lock().refund(*name, charged - actual, reset_at, now);
                } else if actual > charged {
                    tenants.lock().owe(*name, *weight, actual - charged, now);
                }
            }
            (Shares::Tree { places, weight_of }, Charged::Leaf(names)) => {
                let path = Path::from(names);
                if actual < charged {
                    places.lock().refund(&path, charged - actual, (reset_at, now), &self.hash);
                } else if actual > charged {
                    places.lock().owe(&path, actual - charged, now, (&self.hash, weight_of));
                }
            }
            _ => {}
        }
    }

    #[inline]
    fn check_weighing(&self, call: &Call<'_>, weight: Weight) -> Decision {
        match &self.shares {
            Shares::Flat { tenants, .. } => {
                let (name, now) = (self.hash.fingerprint(call.key()), self.clock.now());
                tenants.lock().check(name, weight, call.units(), now)
            }
            Shares::Tree { places, weight_of } => {
                let (path, now) = (Path::of(call), self.clock.now());
                places.lock().check(&path, call.units(), now, (&self.hash, weight_of))
            }
        }
    }
}

debug_fields!([C] FairLimiter<C>);
