//! The public fair limiter: one budget that tenants share.

use std::time::Duration;

use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Timestamp};

use super::tenants::Tenants;
use super::{FairBuilder, FairRule};
use crate::sync::Mutex;
use crate::{Call, Clock, KeyHash, SecretHash, SystemClock};

/// Function that returns the weight of a tenant by its name.
pub(in crate::fair) type WeightOf = Box<dyn Fn(&[u8]) -> Weight + Send + Sync>;

/// One budget per window, shared by tenants, in this process.
///
/// A check takes a short lock and never waits for I/O. Its cost does not grow with the number of tenants.
///
/// ```
/// use std::time::Duration;
/// use throttlekit::fair::{Escrow, Weight};
/// use throttlekit::{Call, Cadence, FairLimiter};
///
/// let every_minute = Cadence::every(Duration::from_secs(60));
/// let tokens = FairLimiter::builder(Escrow::new(30_000, every_minute)?)
///     .weights(|tenant| Weight::new(if tenant.starts_with(b"pro:") { 4 } else { 1 }).unwrap_or_default())
///     .build();
///
/// let decision = tokens.check(Call::by("pro:ada").cost(8_000));
/// assert!(decision.allowed, "nobody else has asked yet");
/// assert!(!tokens.check(Call::by("free:bob").cost(8_000)).allowed, "a fifth of the budget is 6,000");
/// assert!(tokens.check(Call::by("free:bob").cost(6_000)).allowed);
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
pub struct FairLimiter<C = SystemClock, H = SecretHash> {
    tenants: Mutex<Tenants>,
    weight_of: WeightOf,
    clock: C,
    hash: H,
}

/// State of a [`FairLimiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairStats {
    /// The limit of a window.
    pub limit: u64,
    /// Units admitted in this window.
    pub used: u64,
    /// Number of tenants with a request in this window and an entry.
    pub tenants: usize,
    /// Number of times that a tenant took over the entry of another, ever. If this grows, raise `tenants_max`.
    pub displaced: u64,
}

impl FairLimiter {
    /// Describes a limiter. A rule is an [`Escrow`](super::Escrow) or a [`FairShare`](super::FairShare).
    pub fn builder(rule: impl Into<FairRule>) -> FairBuilder {
        FairBuilder::new(rule.into())
    }
}

impl<C: Clock, H: KeyHash> FairLimiter<C, H> {
    pub(super) fn from_parts(
        rule: FairRule,
        weight_of: WeightOf,
        tenants_max: usize,
        clock: C,
        hash: H,
    ) -> Self {
        Self { tenants: Mutex::new(Tenants::new(rule, tenants_max)), weight_of, clock, hash }
    }

    /// Decides one request, and charges it if allowed. The reported limit is the tenant's own at present. A request of
    /// cost zero changes nothing, and returns the most that would pass.
    #[inline]
    pub fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Decision {
        let ask = ask.into();
        self.check_weighing(ask, (self.weight_of)(ask.key()))
    }

    /// Like [`check`](Self::check), and sets the tenant's weight until another request changes it.
    #[inline]
    pub fn check_weighing<'a>(&self, ask: impl Into<Call<'a>>, weight: Weight) -> Decision {
        let call = ask.into();
        let (key, cost) = (call.key(), call.units());
        let (name, now) = (self.hash.fingerprint(key), self.clock.now());
        self.tenants.lock().check(name, weight, cost, now)
    }

    /// Returns unused units of an admitted request to the window that ends at `reset_at`, as in its decision. No effect
    /// if that window is over, or if another tenant took over the entry: then they expire with the window. Call it once
    /// per charge: a [`reset`](Self::reset) in between has returned the units already.
    ///
    /// The guaranteed, remaining and borrowable units are then as if the units had not been requested.
    pub fn refund(&self, tenant: &(impl AsRef<[u8]> + ?Sized), units: Cost, reset_at: Timestamp) {
        let (name, now) = (self.hash.fingerprint(tenant.as_ref()), self.clock.now());
        self.tenants.lock().refund(name, units, reset_at, now);
    }

    /// Charges units that were used without a request, in this window. They may exceed the tenant's guarantee and the
    /// remaining units; later requests are denied as if they had been admitted.
    pub fn owe<'a>(&self, used: impl Into<Call<'a>>) {
        let used = used.into();
        self.owe_weighing(used, (self.weight_of)(used.key()));
    }

    /// Like [`owe`](Self::owe), and sets the tenant's weight until another request changes it.
    pub fn owe_weighing<'a>(&self, used: impl Into<Call<'a>>, weight: Weight) {
        let call = used.into();
        let (key, cost) = (call.key(), call.units());
        let (name, now) = (self.hash.fingerprint(key), self.clock.now());
        self.tenants.lock().owe(name, weight, cost, now);
    }

    /// Returns the weight of a tenant.
    pub(crate) fn weighs(&self, tenant: &[u8]) -> Weight {
        (self.weight_of)(tenant)
    }

    /// Removes a tenant: its use in this window is returned, and its next request counts as its first.
    pub fn reset(&self, tenant: &(impl AsRef<[u8]> + ?Sized)) {
        let (name, now) = (self.hash.fingerprint(tenant.as_ref()), self.clock.now());
        self.tenants.lock().remove(name, now);
    }

    /// Changes the limit, of this window and all that follow. Nothing is revoked: if the limit is below the admitted
    /// units, nothing remains.
    pub fn set_limit(&self, limit: u64) {
        let now = self.clock.now();
        self.tenants.lock().rule(now).roster_mut().set_limit(limit);
    }

    /// Returns the current state.
    pub fn stats(&self) -> FairStats {
        let now = self.clock.now();
        let mut tenants = self.tenants.lock();
        let roster = tenants.rule(now).roster();
        let (limit, used) = (roster.limit(), roster.used());
        FairStats { limit, used, tenants: tenants.names().len(), displaced: tenants.names().displaced() }
    }

    /// Returns the length of a window; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        let now = self.clock.now();
        self.tenants.lock().rule(now).period()
    }

    /// Returns the current time of the limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

debug_fields!([C, H] FairLimiter<C, H>);
