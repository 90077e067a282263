//! Options of leasing.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::lease::{Batch, HolderOptions, Margin, Term, UNITS_HELD_MAX};
use throttlekit_core::rate::Limit;

/// Options of a leased [`SharedLimiter`](crate::SharedLimiter): when the store is called, how many units are fetched at
/// once, and how long they live.
///
/// ```
/// use throttlekit::leasing::{Batch, Leasing};
/// use throttlekit::{Budget, SharedLimiter, store::MemoryStore};
///
/// let limiter = SharedLimiter::builder(MemoryStore::new(), "api", Budget::per_minute(10_000))
///     .leased_with(Leasing::new().batch(Batch::Fixed(100)))
///     .build()?;
/// # Ok::<(), throttlekit::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Leasing {
    pub(super) mode: Mode,
    pub(super) batch: Batch,
    pub(super) forecast: Option<Forecast>,
    pub(super) lease_max: u64,
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

/// Choice of when the store is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// For every request that is not covered by a denial.
    CachedDenials,
    /// For batches of units, which are spent locally.
    Leased,
    /// As under `CachedDenials` for keys with few requests, and as under `Leased` for keys with many.
    Auto,
}

/// A forecast of the units that a key will spend.
#[derive(Clone)]
pub(super) struct Forecast(pub(super) Arc<ForecastOf>);

type ForecastOf = dyn Fn(&[u8]) -> u64 + Send + Sync;

debug_fields!([] Forecast);

const LEASE_MAX: u64 = 1_000_000;
const HOLD: Duration = Duration::from_millis(100);
const SHARE: u64 = 4;
const REFILL_AT_PERCENT: u8 = 25;
const RETURN_AFTER: Duration = Duration::from_secs(1);
const DENIAL_MAX: Duration = Duration::from_secs(1);
const KEYS_MAX: usize = 16_384;
/// Maximum number of keys: beyond it, a table is larger than any node's memory.
const KEYS_CAP: usize = 1 << 26;

/// The options of [`Leasing::new`].
impl Default for Leasing {
    fn default() -> Self {
        Self::new()
    }
}

impl Leasing {
    /// Creates the options of a limiter that fetches units of every key in batches and spends them locally.
    pub fn new() -> Self {
        Self::in_mode(Mode::Leased)
    }

    /// Creates the options of a limiter that leases for keys with many requests, and only remembers denials for keys
    /// with few.
    pub fn auto() -> Self {
        Self::in_mode(Mode::Auto)
    }

    /// Creates the options of a limiter that leases nothing and remembers denials. A denial covers requests of the same
    /// or a higher cost until its wait is over, for at most a second by default
    /// ([`remember_denials`](Self::remember_denials)). Allows are exact, and a flood against a key that is over its limit does
    /// not reach the store.
    pub fn cached_denials() -> Self {
        Self::in_mode(Mode::CachedDenials)
    }

    fn in_mode(mode: Mode) -> Self {
        Self {
            mode,
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
        }
    }

    /// Sets the number of units that are fetched at once. Default: learned for each key.
    pub fn batch(self, batch: Batch) -> Self {
        Self { batch, ..self }
    }

    /// Sizes batches by a forecast, as far as forecasts have been right: [`Batch::Predictive`]. The hook returns how
    /// many units this node will spend of a key in the period that begins now: the window of the limit, or the hold
    /// time of a smooth rate. It is called once for each key and period, under the lock of the key, and must not block.
    ///
    /// A wrong forecast costs calls to the store or idle units. It never admits more than the limit.
    ///
    /// ```
    /// use throttlekit::leasing::Leasing;
    ///
    /// // The batch job announces itself; every other key spends little.
    /// let options = Leasing::auto().forecast(|key| if key == b"nightly-batch" { 5_000 } else { 20 });
    /// ```
    pub fn forecast(mut self, forecast: impl Fn(&[u8]) -> u64 + Send + Sync + 'static) -> Self {
        if !matches!(self.batch, Batch::Predictive(_)) {
            self.batch = Batch::predictive();
        }
        Self { forecast: Some(Forecast(Arc::new(forecast))), ..self }
    }

    /// Sets the maximum number of units this node ever holds of one key, unless a single request costs more. Default:
    /// 1,000,000.
    pub fn lease_max(self, units: u64) -> Self {
        Self { lease_max: units.clamp(1, UNITS_HELD_MAX), ..self }
    }

    /// Limits a fetch to one part in `one_in` of what is left, so that the last units of a window reach those who need
    /// them; 1 takes all that is wanted. Default: 4.
    pub fn share(self, one_in: u64) -> Self {
        Self { share: one_in.max(1), ..self }
    }

    /// Sets the lifetime of units of a smooth rate: `rate · hold` units may pass beyond the limit. Default: 100 ms.
    pub fn hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// Lets units live until they are spent, in whichever window that is: `nodes` times what one holds may pass beyond
    /// the limit. `nodes` only labels the answers.
    pub fn carry(self, nodes: u64) -> Self {
        Self { carry: Some(nodes), ..self }
    }

    /// Sets the maximum error of the clocks of store and node.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// Sets the percentage of the last batch at which more units are fetched, so that no request waits for them; at 0
    /// they are fetched when a request needs them. Default: 25.
    pub fn refill_at_percent(self, percent: u8) -> Self {
        Self { refill_at_percent: percent.min(100), ..self }
    }

    /// Sets the approximate time after which units of an idle key go back to their window. Default: 1 second.
    pub fn return_after(self, idle: Option<Duration>) -> Self {
        Self { return_after: idle.filter(|idle| !idle.is_zero()), ..self }
    }

    /// Sets the maximum time for which a denial is remembered. It ends earlier when its wait is over. Units that others
    /// give back, a settlement or a reset may free units before. Default: 1 second, that is one call for each key and
    /// second under a flood.
    pub fn remember_denials(self, at_most: Duration) -> Self {
        Self { denial_max: at_most, ..self }
    }

    /// Sets the approximate number of keys that this node keeps state of. Those beyond are checked strictly. Default:
    /// 16,384.
    pub fn keys_max(self, keys: usize) -> Self {
        Self { keys_max: keys.clamp(1, KEYS_CAP), ..self }
    }

    /// Returns whether units are lent at all.
    pub(super) fn leases(&self) -> bool {
        self.mode != Mode::CachedDenials
    }

    /// Returns how long units of this limit live.
    pub(super) fn term(&self, limit: &Limit) -> Term {
        match (self.carry, limit) {
            (Some(_), _) => Term::Carry,
            (None, Limit::Window(_)) => Term::Window,
            (None, _) => Term::Rolling(self.hold),
        }
    }

    /// Returns the plan of each key's holder, whose clock may read behind.
    pub(super) fn plan(&self, term: Term, behind_max: Duration) -> HolderOptions {
        let margin = self.margin.behind(behind_max);
        HolderOptions {
            term,
            margin,
            lease_max: self.lease_max,
            share: self.share,
            denial_max: self.denial_max,
        }
    }

    /// Returns the period over which demand is counted for the learner.
    pub(super) fn period(&self, limit: &Limit) -> Duration {
        match limit {
            Limit::Window(_) => limit.period(),
            _ => self.hold.max(Duration::from_millis(1)),
        }
    }
}
