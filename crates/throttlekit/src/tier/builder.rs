//! Options of the leased limiter.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::lease::{Authority, Batch, Margin, Plan, Term, UNITS_HELD_MAX};
use throttlekit_core::rate::{Limit, LimitError};
use throttlekit_core::{Cost, Timestamp};

use super::TwoTier;
use crate::store::Store;
use crate::{BootClock, LeaseClock, OnOutage, SharedLimiter};

/// Choice of when the store is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// For every request. Exact, one round trip each.
    Strict,
    /// For every request that is not covered by a denial. A denial covers requests of the same or a higher cost until
    /// its wait is over. Allows are exact, and a flood against a key that is over its limit does not reach the store.
    CachedDeny,
    /// For batches of units, which are spent locally.
    Leased,
    /// As under `CachedDeny` for keys with few requests, and as under `Leased` for keys with many.
    #[default]
    Auto,
}

/// Builder of a [`TwoTier`].
#[derive(Debug)]
pub struct TierBuilder<S, C = BootClock> {
    store: S,
    policy: String,
    limit: Result<Limit, LimitError>,
    clock: C,
    on_outage: OnOutage,
    pub(super) chosen: Chosen,
}

#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) mode: Mode,
    pub(super) batch: Batch,
    pub(super) forecast: Option<Forecast>,
    pub(super) lease_max: Cost,
    pub(super) share: u64,
    pub(super) hold: Duration,
    /// Nodes that may carry units from window to window; `None` if units expire.
    pub(super) carry: Option<u64>,
    pub(super) margin: Margin,
    pub(super) refill_at_percent: u8,
    pub(super) return_after: Option<Duration>,
    pub(super) denial_max: Duration,
    pub(super) keys_max: usize,
}

/// A forecast of the units that a key will spend.
#[derive(Clone)]
pub(super) struct Forecast(pub(super) Arc<ForecastOf>);

type ForecastOf = dyn Fn(&[u8]) -> Cost + Send + Sync;

debug_fields!([] Forecast);

const LEASE_MAX: Cost = 1_000_000;
const HOLD: Duration = Duration::from_millis(100);
const SHARE: u64 = 4;
const REFILL_AT_PERCENT: u8 = 25;
const RETURN_AFTER: Duration = Duration::from_secs(1);
const DENIAL_MAX: Duration = Duration::from_secs(1);
const KEYS_MAX: usize = 16_384;
/// Maximum number of keys: beyond it, a table is larger than any node's memory.
const KEYS_CAP: usize = 1 << 26;

impl<S: Store> TierBuilder<S> {
    pub(super) fn new(store: S, policy: &str, limit: Result<Limit, LimitError>) -> Self {
        let chosen = Chosen {
            mode: Mode::default(),
            batch: Batch::learned(),
            forecast: None,
            lease_max: LEASE_MAX,
            share: SHARE,
            hold: HOLD,
            carry: None,
            margin: Margin::default(),
            refill_at_percent: REFILL_AT_PERCENT,
            return_after: Some(RETURN_AFTER),
            denial_max: DENIAL_MAX,
            keys_max: KEYS_MAX,
        };
        let (policy, on_outage) = (policy.to_owned(), OnOutage::default());
        Self { store, policy, limit, clock: BootClock, on_outage, chosen }
    }
}

impl<S: Store, C: LeaseClock> TierBuilder<S, C> {
    /// Sets when the store is called. Default: [`Mode::Auto`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.chosen.mode = mode;
        self
    }

    /// Sets the number of units that are fetched at once. Default: learned for each key.
    pub fn batch(mut self, batch: Batch) -> Self {
        self.chosen.batch = batch;
        self
    }

    /// Sizes batches by a forecast, as far as forecasts have been right: [`Batch::Predictive`]. The hook returns how
    /// many units this node will spend of a key in the period that begins now: the window of the limit, or the hold
    /// time of a smooth rate. It is called once for each key and period, under the lock of the key, and must not block.
    ///
    /// A wrong forecast costs calls to the store or idle units. It never admits more than the limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throttlekit::{Limit, TwoTier, store::MemoryStore};
    ///
    /// let limit = Limit::fixed_window(10_000, Duration::from_secs(60))?;
    /// // The batch job announces itself; everyone else is quiet.
    /// let limiter = TwoTier::builder(MemoryStore::new(), "api", limit)
    ///     .forecast(|key| if key == b"nightly-batch" { 5_000 } else { 20 })
    ///     .build()?;
    /// # Ok::<(), throttlekit::LimitError>(())
    /// ```
    pub fn forecast(mut self, forecast: impl Fn(&[u8]) -> Cost + Send + Sync + 'static) -> Self {
        if !matches!(self.chosen.batch, Batch::Predictive(_)) {
            self.chosen.batch = Batch::predictive();
        }
        self.chosen.forecast = Some(Forecast(Arc::new(forecast)));
        self
    }

    /// Sets the maximum number of units this node ever holds of one key, unless a single request costs more. Default:
    /// 1,000,000.
    pub fn lease_max(mut self, units: Cost) -> Self {
        self.chosen.lease_max = units.clamp(1, UNITS_HELD_MAX);
        self
    }

    /// Limits a fetch to one part in `one_in` of what is left, so that the last units of a window reach those who need
    /// them; 1 takes all that is wanted. Default: 4.
    pub fn share(mut self, one_in: u64) -> Self {
        self.chosen.share = one_in.max(1);
        self
    }

    /// Sets the lifetime of units of a smooth rate: `rate · hold` units may pass beyond the limit. Default: 100 ms.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.chosen.hold = hold;
        self
    }

    /// Lets units live until they are spent, in whichever window that is: `nodes` times what one holds may pass beyond
    /// the limit. `nodes` only labels the answers.
    pub fn carry(mut self, nodes: u64) -> Self {
        self.chosen.carry = Some(nodes);
        self
    }

    /// Sets the maximum error of the clocks of store and node.
    pub fn margin(mut self, margin: Margin) -> Self {
        self.chosen.margin = margin;
        self
    }

    /// Sets the percentage of the last batch at which more units are fetched, so that no request waits for them; at 0
    /// they are fetched when a request needs them. Default: 25.
    pub fn refill_at_percent(mut self, percent: u8) -> Self {
        self.chosen.refill_at_percent = percent.min(100);
        self
    }

    /// Sets the approximate time after which units of an idle key go back to their window. Default: 1 second.
    pub fn return_after(mut self, idle: Option<Duration>) -> Self {
        self.chosen.return_after = idle.filter(|idle| !idle.is_zero());
        self
    }

    /// Sets the maximum time for which a denial is remembered. It ends earlier when its wait is over. Units that others
    /// give back, a settlement or a reset may free units before. Default: 1 second, that is one call for each key and
    /// second under a flood.
    pub fn remember_denials(mut self, at_most: Duration) -> Self {
        self.chosen.denial_max = at_most;
        self
    }

    /// Sets the approximate number of keys that this node keeps state of. Those beyond are checked strictly. Default:
    /// 16,384.
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.chosen.keys_max = keys.clamp(1, KEYS_CAP);
        self
    }

    /// Sets the fallback while the store is unavailable and nothing is held. Default: deny.
    pub fn on_outage(mut self, choice: OnOutage) -> Self {
        self.on_outage = choice;
        self
    }

    /// Sets the clock by which units expire.
    pub fn clock<D: LeaseClock>(self, clock: D) -> TierBuilder<S, D> {
        let Self { store, policy, limit, on_outage, chosen, .. } = self;
        TierBuilder { store, policy, limit, clock, on_outage, chosen }
    }

    /// Builds the limiter, or returns why the limit cannot be one of this kind. Sliding windows, logs and shapers
    /// cannot be lent; check them under [`Mode::Strict`] or [`Mode::CachedDeny`].
    pub fn build(self) -> Result<TwoTier<S, C>, LimitError>
    where
        C: 'static,
    {
        let limit = self.limit?;
        let term = self.chosen.term(&limit);
        let authority = match self.chosen.mode {
            Mode::Strict | Mode::CachedDeny => None,
            Mode::Leased | Mode::Auto => Some(Authority::new(limit, term)?),
        };
        let shared = SharedLimiter::new(self.store, &self.policy, limit)?.on_outage(self.on_outage);
        if authority.is_some() && !shared.form().counts_units() {
            return Err(LimitError::NotLeasable);
        }
        let lives = if let Term::Rolling(hold) = term { hold } else { limit.period() };
        let margin = self.chosen.plan(term, self.clock.behind_max()).margin;
        if authority.is_some() && margin.deadline(Timestamp::EPOCH, lives) == Timestamp::EPOCH {
            return Err(LimitError::LeaseTooShort(lives));
        }
        Ok(TwoTier::new(shared, self.clock, self.chosen, authority))
    }
}

impl Chosen {
    fn term(&self, limit: &Limit) -> Term {
        match (self.carry, limit) {
            (Some(_), _) => Term::Carry,
            (None, Limit::Window(_)) => Term::Window,
            (None, _) => Term::Rolling(self.hold),
        }
    }

    /// Returns the plan of each key's holder, whose clock may read behind.
    pub(super) fn plan(&self, term: Term, behind_max: Duration) -> Plan {
        let margin = self.margin.behind(behind_max);
        Plan { term, margin, lease_max: self.lease_max, share: self.share, denial_max: self.denial_max }
    }

    /// Returns the period over which demand is counted for the learner.
    pub(super) fn period(&self, limit: &Limit) -> Duration {
        match limit {
            Limit::Window(_) => limit.period(),
            _ => self.hold.max(Duration::from_millis(1)),
        }
    }
}
