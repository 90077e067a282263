//! What users hold: one budget that tenants share.

use std::time::Duration;

use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Timestamp};

use super::tenants::Tenants;
use super::{FairBuilder, FairRule};
use crate::sync::Mutex;
use crate::{Ask, Clock, KeyHash, SecretHash, SystemClock};

/// How much a tenant weighs, by its name.
pub(in crate::fair) type WeightOf = Box<dyn Fn(&[u8]) -> Weight + Send + Sync>;

/// One budget per window, shared by tenants, in this process.
///
/// A check takes a short lock and never waits for I/O. What it costs does not grow with the number of tenants.
///
/// ```
/// use std::time::Duration;
/// use throttlekit::fair::{Escrow, Weight};
/// use throttlekit::{Ask, Cadence, FairLimiter};
///
/// let every_minute = Cadence::every(Duration::from_secs(60));
/// let tokens = FairLimiter::builder(Escrow::new(30_000, every_minute)?)
///     .weights(|tenant| Weight::new(if tenant.starts_with(b"pro:") { 4 } else { 1 }).unwrap_or_default())
///     .build();
///
/// let decision = tokens.check(Ask::of("pro:ada").cost(8_000));
/// assert!(decision.allowed, "nobody else has asked yet");
/// assert!(!tokens.check(Ask::of("free:bob").cost(8_000)).allowed, "a fifth of the budget is 6,000");
/// assert!(tokens.check(Ask::of("free:bob").cost(6_000)).allowed);
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
pub struct FairLimiter<C = SystemClock, H = SecretHash> {
    tenants: Mutex<Tenants>,
    weight_of: WeightOf,
    clock: C,
    hash: H,
}

/// What a [`FairLimiter`] has on its books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairStats {
    /// The limit of a window.
    pub limit: u64,
    /// What has been admitted in this window.
    pub used: u64,
    /// How many tenants have asked in this window and have a place.
    pub tenants: usize,
    /// How often ever a tenant took the place of another. Should this grow, so should `tenants_max`.
    pub displaced: u64,
}

impl FairLimiter {
    /// Everything that can be chosen. A rule is an [`Escrow`](super::Escrow) or a [`FairShare`](super::FairShare).
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

    /// Answers one ask, and charges it if allowed. The limit it tells is the tenant's own at present. An ask of
    /// nothing changes nothing, and tells the most that would pass.
    #[inline]
    pub fn check<'a>(&self, ask: impl Into<Ask<'a>>) -> Decision {
        let ask = ask.into();
        self.check_weighing(ask, (self.weight_of)(ask.key))
    }

    /// Like [`check`](Self::check), by a tenant that weighs this from now on, until another ask says otherwise.
    #[inline]
    pub fn check_weighing<'a>(&self, ask: impl Into<Ask<'a>>, weight: Weight) -> Decision {
        let Ask { key, cost } = ask.into();
        let (name, now) = (self.hash.fingerprint(key), self.clock.now());
        self.tenants.lock().check(name, weight, cost, now)
    }

    /// Hands units of an admitted ask back that were not used, into the window that ends at `reset_at`, as its decision
    /// said. Nothing if that window is over, or if the tenant has lost its place to another: then they lapse with the
    /// window. To be called once for what was charged: a [`reset`](Self::reset) in between has handed it back already.
    ///
    /// What each is promised, what is left and what may be borrowed are then as if the units had not been asked for.
    pub fn refund(&self, tenant: &(impl AsRef<[u8]> + ?Sized), units: Cost, reset_at: Timestamp) {
        let (name, now) = (self.hash.fingerprint(tenant.as_ref()), self.clock.now());
        self.tenants.lock().refund(name, units, reset_at, now);
    }

    /// Takes units that were used and not asked for, in this window. They may go beyond what the tenant is promised and
    /// beyond what is left; asks are denied as if they had been admitted.
    pub fn owe<'a>(&self, used: impl Into<Ask<'a>>) {
        let used = used.into();
        self.owe_weighing(used, (self.weight_of)(used.key));
    }

    /// Like [`owe`](Self::owe), by a tenant that weighs this from now on, until another ask says otherwise.
    pub fn owe_weighing<'a>(&self, used: impl Into<Ask<'a>>, weight: Weight) {
        let Ask { key, cost } = used.into();
        let (name, now) = (self.hash.fingerprint(key), self.clock.now());
        self.tenants.lock().owe(name, weight, cost, now);
    }

    /// How much a tenant weighs.
    pub(crate) fn weighs(&self, tenant: &[u8]) -> Weight {
        (self.weight_of)(tenant)
    }

    /// Forgets a tenant: what it has used in this window is handed back, and its next ask is its first.
    pub fn reset(&self, tenant: &(impl AsRef<[u8]> + ?Sized)) {
        let (name, now) = (self.hash.fingerprint(tenant.as_ref()), self.clock.now());
        self.tenants.lock().remove(name, now);
    }

    /// Changes the limit, of this window and all that follow. Nothing is taken back: below what has been admitted,
    /// nothing is left.
    pub fn set_limit(&self, limit: u64) {
        let now = self.clock.now();
        self.tenants.lock().rule(now).roster_mut().set_limit(limit);
    }

    /// What is on the books now.
    pub fn stats(&self) -> FairStats {
        let now = self.clock.now();
        let mut tenants = self.tenants.lock();
        let roster = tenants.rule(now).roster();
        let (limit, used) = (roster.limit(), roster.used());
        FairStats { limit, used, tenants: tenants.names().len(), displaced: tenants.names().displaced() }
    }

    /// How long a window is; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        let now = self.clock.now();
        self.tenants.lock().rule(now).period()
    }

    /// The instant now, by the clock this limiter goes by.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

debug_fields!([C, H] FairLimiter<C, H>);
