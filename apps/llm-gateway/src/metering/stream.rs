//! Ours: every axis in one call, every chunk debited before it is passed on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use throttlekit::admit::Denied;
use throttlekit::budget::{Reservation, ReservationOptions};
use throttlekit::clock::{Clock, WallClock};
use throttlekit::fair::SharedFairLimiterBuilder;
use throttlekit::guard::Ending;
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use throttlekit::{
    Axis, Budget, Call, Concurrency, Decision, Rate, SharedFairLimiter, SharedGuard, SharedLimiter,
    SharedPermit, SharedPolicy,
};
use throttlekit_redis::RedisStore;
use throttlekit_telemetry::Telemetry;

use super::{Answer, Asked, Debit, Denial, Permit, Why};
use crate::headers::{Allowance, Allowances};
use crate::ledger::Ledger;
use crate::tenants::{Config, Tenant};

/// Why a stream cannot go on while the store does not answer.
const NO_ANSWER: &str = "limits cannot be checked";

/// State that all tenants of one gateway share.
pub(super) struct Common {
    /// This gateway's place at the model's capacity.
    place: SharedFairLimiter,
    /// Observed lengths of completions.
    lengths: Arc<Mutex<Reservation>>,
    ledger: Arc<Ledger>,
    telemetry: Arc<Telemetry>,
}

impl Common {
    pub(super) fn new(
        store: &RedisStore,
        policy: &str,
        region: &str,
        config: &Config,
        ledger: &Arc<Ledger>,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Self> {
        let capacity = Budget::per(config.capacity, config.window());
        let weights = config.weights();
        let place = SharedFairLimiter::builder(store.clone(), policy, capacity)
            .region(region)
            .weights(move |tenant| weights.get(tenant).copied().unwrap_or(1));
        let place = config.quantum.into_iter().fold(place, SharedFairLimiterBuilder::quantum);
        let max = config.max_tokens_default;
        let lengths = Reservation::new(ReservationOptions { max, ..Default::default() })?;
        Ok(Self {
            place: place.build()?,
            lengths: Arc::new(Mutex::new(lengths)),
            ledger: ledger.clone(),
            telemetry: telemetry.clone(),
        })
    }
}

/// One tenant's policy.
pub struct Stream {
    tenant: Arc<str>,
    policy: SharedPolicy,
    /// The policy's limits, to look at them without asking.
    limits: SharedLimiter<RedisStore>,
    slots: SharedGuard,
    window: Duration,
    /// The most that the tenant may ever have in a window.
    budget: u64,
    set_aside_max: u64,
    lengths: Arc<Mutex<Reservation>>,
    ledger: Arc<Ledger>,
}

impl Stream {
    pub(super) fn new(
        common: &Common,
        store: &RedisStore,
        policy: &str,
        config: &Config,
        tenant: &Tenant,
    ) -> Result<Self> {
        let limits = SharedLimiter::builder(store.clone(), policy, Rate::per_minute(tenant.rpm))
            .limit("tokens", Budget::per(tenant.tpm, config.window()).tokens()?)
            .build()?;
        let slots = SharedGuard::new(store.clone(), policy, Concurrency::per_key(tenant.concurrency))?;
        // Named after the tenant, so that metrics tell tenants apart.
        let policy = SharedPolicy::builder(store.clone(), &tenant.name)
            .observer(common.telemetry.clone())
            .with(Axis::Concurrency, slots.clone())
            .with([Axis::Rate, Axis::Cost], limits.clone())
            .with(Axis::Fairness, common.place.clone());
        Ok(Self {
            tenant: tenant.name.as_str().into(),
            policy: policy.build()?,
            limits,
            slots,
            window: config.window(),
            budget: config.budget(tenant),
            set_aside_max: config.set_aside_max(tenant),
            lengths: common.lengths.clone(),
            ledger: common.ledger.clone(),
        })
    }

    /// Returns the reservation for a completion: what similar ones need, but no more than is left after the prompt.
    fn likely(&self, asked: Asked) -> u64 {
        let fits = self.set_aside_max.min(self.budget.saturating_sub(asked.prompt));
        lock(&self.lengths).reserve(None).min(fits).max(1).min(asked.most)
    }

    pub(super) async fn admit(&self, asked: Asked) -> Result<Answer, StoreError> {
        let likely = self.likely(asked);
        let estimate = asked.prompt + likely;
        let admission = self.policy.admit(Call::by(&*self.tenant).cost(estimate)).await?;
        let (axes, is_outage) = (*admission.axes(), admission.outage.is_some());
        let permit = match admission.into_permit() {
            Ok(permit) => permit,
            Err(denied) => return Ok(self.denied(&denied, is_outage, estimate).await),
        };
        let now = self.limits.now();
        let allowance = |axis| axes.get(axis).map(|decision| Allowance::of(decision, now));
        let allowances = Allowances { requests: allowance(Axis::Rate), tokens: allowance(Axis::Cost) };
        let window_ends = axes.get(Axis::Cost).map_or(now, |tokens| tokens.reset_at);
        self.ledger.charged(&self.tenant, window_ends, estimate as i64);
        let metered = Metered {
            permit: Some(permit),
            asked,
            charged: estimate,
            window_ends,
            tenant: self.tenant.clone(),
            limits: self.limits.clone(),
            lengths: self.lengths.clone(),
            ledger: self.ledger.clone(),
        };
        let may_use = likely.saturating_add(allowances.tokens.map_or(0, |tokens| tokens.remaining));
        Ok(Answer { allowances, may_use, outcome: Ok(Permit::Stream(metered)) })
    }

    /// Looks at the limits again: the charges of axes before the one that denied were returned since.
    async fn denied(&self, denied: &Denied, is_outage: bool, asked: u64) -> Answer {
        let Decision { limit, retry_after: retry, .. } = denied.decision;
        let why = if is_outage { Why::Outage } else { Why::Axis(denied.axis.unwrap_or(Axis::Rate)) };
        let (tenant, window) = (self.tenant.to_string(), self.window);
        let denial = Denial { tenant, why, limit, asked, window, retry };
        Answer { allowances: self.allowances().await, may_use: 0, outcome: Err(denial) }
    }

    pub(super) async fn held(&self) -> Result<u32, StoreError> {
        self.slots.peek(&*self.tenant).await.map(|seen| (seen.limit - seen.remaining) as u32)
    }

    pub(super) async fn allowances(&self) -> Allowances {
        let Ok(each) = self.limits.peek_each(&*self.tenant).await else { return Allowances::default() };
        let allowance = |limit: usize| Some(Allowance::of(&each[limit], self.limits.now()));
        Allowances { requests: allowance(0), tokens: allowance(1) }
    }
}

/// A permit with its books. Dropped, what was counted stays charged and the rest goes back.
pub struct Metered {
    /// Nothing once it has ended.
    permit: Option<SharedPermit>,
    asked: Asked,
    /// Tokens charged in total.
    charged: u64,
    /// When the window ends in which the estimate was set aside.
    window_ends: Timestamp,
    tenant: Arc<str>,
    limits: SharedLimiter<RedisStore>,
    lengths: Arc<Mutex<Reservation>>,
    ledger: Arc<Ledger>,
}

impl Metered {
    pub(super) async fn debit(&mut self, tokens: u64) -> Debit {
        // Whoever has lost its slot stops: another may have it.
        let Some(permit) = self.permit.as_mut().filter(|permit| !permit.is_fenced()) else {
            return Debit::Lost("the slot is no longer held");
        };
        let (beyond, asked_at) = (tokens.saturating_sub(permit.reserved()), WallClock.now());
        match permit.debit(tokens).await {
            Ok(decision) if decision.allowed => {
                if beyond > 0 {
                    self.charged += beyond;
                    self.ledger.debited(&self.tenant, decision.reset_at, beyond, asked_at);
                }
                Debit::Allow
            }
            Ok(_) => self.denied().await,
            Err(error) => {
                eprintln!("{}: {error}", self.tenant);
                Debit::Lost(NO_ANSWER)
            }
        }
    }

    /// While the store does not answer nobody passes, which reads as any denial; so it is asked once more.
    async fn denied(&self) -> Debit {
        match self.limits.peek(&*self.tenant).await {
            Ok(_) => Debit::Deny,
            Err(_) => Debit::Lost(NO_ANSWER),
        }
    }

    /// Settles in the background. How long the answer would have been is not known, so nothing is learned.
    pub(super) fn refuse(mut self) {
        let Some(mut permit) = self.permit.take() else { return };
        permit.settle(0);
        self.settled(0);
    }

    pub(super) async fn finish(mut self, total: Option<u64>) {
        let Some(mut permit) = self.permit.take() else { return };
        if let Some(total) = total {
            permit.settle(total);
        }
        self.book(permit.used());
        if let Err(error) = permit.close(Ending::Success).await {
            eprintln!("{}: not settled: {error}", self.tenant);
        }
    }

    /// Data to settle and to learn from.
    fn book(&self, used: u64) {
        self.settled(used);
        if self.asked.most > 0 {
            lock(&self.lengths).observe(None, used.saturating_sub(self.asked.prompt));
        }
    }

    /// Tokens that are returned to the window while it lasts, or charged to it.
    fn settled(&self, used: u64) {
        if WallClock.now() < self.window_ends {
            self.ledger.charged(&self.tenant, self.window_ends, used as i64 - self.charged as i64);
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.book(permit.used());
        }
    }
}

/// A learner finishes what it begins, so a panic elsewhere leaves nothing half done.
fn lock(lengths: &Mutex<Reservation>) -> std::sync::MutexGuard<'_, Reservation> {
    lengths.lock().unwrap_or_else(PoisonError::into_inner)
}
