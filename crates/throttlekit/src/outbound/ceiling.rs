//! The configured ceiling of an upstream: limits by the minute and the day, in process or over a store.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::rate::{Budget, Rate};

use crate::admit::{Admit, Admitting, Axis, LimitInfo};
use crate::observe::Observer;
use crate::{BuildError, Call, Concurrency, Policy};

/// Time in which the units of a minute are spent: two percent longer, so that calls that bunch up on their way do not
/// exceed the provider's limit. Together with the burst of requests, at most the limit starts in any minute. Most limits
/// of providers divide it into whole nanoseconds, which are the fastest to count.
const MINUTE_SPREAD: Duration = Duration::from_millis(61_200);
const MINUTE: Duration = Duration::from_secs(60);
/// Part of the requests of a minute that may start at once.
const REQUESTS_BURST: u64 = 100;
/// Part of the tokens of a minute that may be spent at once.
const TOKENS_BURST: u64 = 20;

/// A limit by the minute, and the rate by which it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PerMinute {
    pub(super) units: u64,
    pub(super) burst: u64,
}

impl PerMinute {
    pub(super) fn requests(units: u64) -> Self {
        Self { units, burst: 1 + units / REQUESTS_BURST }
    }

    pub(super) fn tokens(units: u64) -> Self {
        Self { units, burst: 1 + units / TOKENS_BURST }
    }

    /// Returns the rate, with each unit counted as `scale`.
    pub(super) fn rate(self, scale: u64) -> Rate {
        Rate::per(self.units.saturating_mul(scale), MINUTE_SPREAD).burst(self.burst.saturating_mul(scale))
    }
}

/// The limits of a ceiling.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) requests: Option<PerMinute>,
    pub(super) tokens: Option<PerMinute>,
    pub(super) requests_per_day: Option<u64>,
    pub(super) tokens_per_day: Option<u64>,
    pub(super) concurrency: Option<Concurrency>,
}

impl Limits {
    /// Checks whether any limit is set.
    pub(super) fn is_any(&self) -> bool {
        let units = [self.requests_per_day, self.tokens_per_day];
        let per_minute = [self.requests, self.tokens];
        self.concurrency.is_some()
            || units.iter().any(Option::is_some)
            || per_minute.iter().any(Option::is_some)
    }

    /// Describes the limits by the minute and the day, as the provider states them.
    fn infos(&self) -> Vec<LimitInfo> {
        let (day, minute) = (Duration::from_secs(86_400), MINUTE);
        let requests = self.requests.map(|limit| LimitInfo::new(Axis::Rate, limit.units, Some(minute)));
        let daily =
            self.requests_per_day.map(|units| LimitInfo::new(Axis::Rate, units, Some(day)).named("day"));
        let cost = |units, period| LimitInfo::new(Axis::Cost, units, Some(period)).refundable();
        let tokens = self.tokens.map(|limit| cost(limit.units, minute));
        let daily_tokens = self.tokens_per_day.map(|units| cost(units, day).named("tokens-day"));
        [requests, daily, tokens, daily_tokens].into_iter().flatten().collect()
    }

    /// Builds the ceiling in process.
    pub(super) fn local(
        &self,
        name: &str,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Arc<dyn Admit>, BuildError> {
        let mut policy = Policy::builder(name);
        if let Some(limit) = self.requests {
            policy = policy.rate(limit.rate(1));
        }
        if let Some(units) = self.requests_per_day {
            policy = policy.rate(Budget::per_day(units));
        }
        if let Some(limit) = self.tokens {
            policy = policy.tokens(limit.rate(1));
        }
        if let Some(units) = self.tokens_per_day {
            policy = policy.tokens(Budget::per_day(units));
        }
        if let Some(limit) = self.concurrency {
            policy = policy.concurrency(limit);
        }
        if let Some(observer) = observer {
            policy = policy.observer(observer);
        }
        Ok(Arc::new(Arc::new(policy.build()?)))
    }

    /// Builds the ceiling over a store. A fixed concurrency limit is one for all processes, an adaptive one is of this
    /// process.
    #[cfg(feature = "store")]
    pub(super) fn shared<S: crate::store::Store + crate::store::SlotStore>(
        &self,
        store: S,
        name: &str,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Arc<dyn Admit>, BuildError> {
        let mut policy = crate::SharedPolicy::builder(store, name);
        if let Some(limit) = self.requests {
            policy = policy.rate(limit.rate(1));
        }
        if let Some(units) = self.requests_per_day {
            policy = policy.rate(Budget::per_day(units));
        }
        if let Some(limit) = self.tokens {
            policy = policy.tokens(limit.rate(1));
        }
        if let Some(units) = self.tokens_per_day {
            policy = policy.tokens(Budget::per_day(units));
        }
        if let Some(limit) = self.concurrency {
            policy = match limit.is_adaptive() {
                false => policy.concurrency(limit),
                true if limit.is_per_key() => {
                    policy.with(Axis::Concurrency, crate::guard::KeyedGuard::new(limit)?)
                }
                true => policy.with(Axis::Concurrency, crate::Guard::new(limit)?),
            };
        }
        if let Some(observer) = observer {
            policy = policy.observer(observer);
        }
        Ok(Arc::new(Arc::new(policy.build()?)))
    }
}

/// The limiter below what was learned. Reports the limits as the provider states them.
pub(super) struct Ceiling {
    limiter: Arc<dyn Admit>,
    infos: Vec<LimitInfo>,
    /// Most tokens that can be reserved for one call. The rest is charged when it is settled.
    reserve_max: u64,
    credit_max: u64,
}

impl Ceiling {
    pub(super) fn new(limiter: Arc<dyn Admit>, limits: &Limits) -> Self {
        let reserve_max = limits.tokens.map_or(u64::MAX, |limit| limit.burst);
        let infos = if limits.is_any() { limits.infos() } else { limiter.limits() };
        // Windows refund exactly, and of a limiter of the caller's own nothing is known.
        let credit_max = limits.tokens.map_or(0, |limit| limit.burst);
        Self { limiter, infos, reserve_max, credit_max }
    }

    /// Returns the most tokens that calls may start at once beyond the ceiling, because earlier ones took fewer than
    /// they reserved.
    pub(super) fn credit_max(&self) -> u64 {
        self.credit_max
    }

    fn reserved<'c>(&self, call: Call<'c>) -> Call<'c> {
        call.cost(call.units().min(self.reserve_max))
    }
}

impl Admit for Ceiling {
    fn admit(&self, call: Call<'_>) -> Admitting {
        self.limiter.admit(self.reserved(call))
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        self.limiter.admit_queued(self.reserved(call))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.infos.clone()
    }

    fn now(&self) -> Timestamp {
        self.limiter.now()
    }
}
