//! Ours: every axis in one call, every chunk debited before it is passed on.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use throttlekit::admission::{Axis, Call, SharedPermit, SharedPolicy};
use throttlekit::budget::{Reservation, ReservationOptions};
use throttlekit::fair::{Region, SharedFairBuilder, Weight};
use throttlekit::slots::Ending;
use throttlekit::store::StoreError;
use throttlekit::{
    Clock, Decision, Limit, Rate, SharedFairLimiter, SharedLimiter, SharedSlots, Timestamp, WallClock,
};
use throttlekit_redis::RedisStore;
use throttlekit_telemetry::Telemetry;

use super::{Answer, Asked, Denial, Permit, Why};
use crate::headers::{Room, Rooms};
use crate::ledger::Ledger;
use crate::tenants::{Config, Tenant};

/// What all tenants of one gateway share.
pub(super) struct Common {
    /// This gateway's place at the model's capacity.
    place: SharedFairLimiter<Region<RedisStore>>,
    /// How long completions turn out to be.
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
        let capacity = Limit::fixed_window(config.capacity, config.window())?;
        let weights = config.weights();
        let weight =
            move |tenant: &[u8]| Weight::new(weights.get(tenant).copied().unwrap_or(1)).unwrap_or_default();
        let place = SharedFairLimiter::in_region(store.clone(), policy, region, capacity).weights(weight);
        let place = config.quantum.into_iter().fold(place, SharedFairBuilder::quantum);
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
    /// The same limits once more, to look at them without asking.
    limits: SharedLimiter<RedisStore, 2>,
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
        let limits = || -> Result<_> {
            let requests = Limit::gcra(Rate::per_minute(tenant.rpm))?;
            let tokens = Limit::token_budget(tenant.tpm, config.window())?;
            Ok(SharedLimiter::all(store.clone(), policy, [("requests", requests), ("tokens", tokens)])?
                .home(0))
        };
        let slots = SharedSlots::builder(store.clone(), policy, tenant.concurrency).build()?;
        // Named after the tenant, so that metrics tell tenants apart.
        let policy = SharedPolicy::builder(&tenant.name)
            .observer(common.telemetry.clone())
            .concurrency(slots)
            .together(limits()?, [Axis::Rate, Axis::Cost])
            .fair(common.place.clone());
        Ok(Self {
            tenant: tenant.name.as_str().into(),
            policy: policy.build()?,
            limits: limits()?,
            set_aside_max: config.set_aside_max(tenant),
            lengths: common.lengths.clone(),
            ledger: common.ledger.clone(),
        })
    }

    pub(super) async fn admit(&self, asked: Asked) -> Result<Answer, StoreError> {
        let likely = lock(&self.lengths).reserve(None).min(asked.most).min(self.set_aside_max);
        let estimate = asked.prompt + likely;
        let admission = self.policy.admit(Call::by(&*self.tenant).cost(estimate)).await?;
        let Some(permit) = admission.permit else {
            let denier = admission.axes.binding_axis().unwrap_or(Axis::Rate);
            let why = admission.outage.map_or(Why::Axis(denier), |_| Why::Outage);
            let Decision { limit, retry_after: retry, .. } = admission.decision;
            let denial = Denial { tenant: self.tenant.to_string(), why, limit, asked: estimate, retry };
            // What axes before the denier said was taken back since.
            return Ok(Answer { rooms: self.rooms().await, outcome: Err(denial) });
        };
        let now = self.limits.now();
        let room = |axis| admission.axes.get(axis).map(|decision| Room::of(decision, now));
        let rooms = Rooms { requests: room(Axis::Rate), tokens: room(Axis::Cost) };
        let window_ends = admission.axes.get(Axis::Cost).map_or(now, |tokens| tokens.reset_at);
        self.ledger.charged(&self.tenant, window_ends, estimate as i64);
        let metered = Metered {
            permit: Some(permit),
            prompt: asked.prompt,
            charged: estimate,
            window_ends,
            tenant: self.tenant.clone(),
            lengths: self.lengths.clone(),
            ledger: self.ledger.clone(),
        };
        Ok(Answer { rooms, outcome: Ok(Permit::Stream(metered)) })
    }

    pub(super) async fn rooms(&self) -> Rooms {
        let key = self.tenant.as_bytes();
        let Ok(each) = self.limits.peek_each([key, key]).await else { return Rooms::default() };
        let [requests, tokens] = each.map(|decision| Some(Room::of(&decision, self.limits.now())));
        Rooms { requests, tokens }
    }
}

/// A permit with its books. Dropped, what was counted stays charged and the rest goes back.
pub struct Metered {
    /// Nothing once it has ended.
    permit: Option<SharedPermit>,
    prompt: u64,
    /// What was charged in all.
    charged: u64,
    /// When the window ends in which the estimate was set aside.
    window_ends: Timestamp,
    tenant: Arc<str>,
    lengths: Arc<Mutex<Reservation>>,
    ledger: Arc<Ledger>,
}

impl Metered {
    pub(super) async fn debit(&mut self, tokens: u64) -> bool {
        // Whoever has lost its slot stops: another may have it.
        let Some(permit) = self.permit.as_mut().filter(|permit| !permit.is_fenced()) else { return false };
        let (beyond, asked_at) = (tokens.saturating_sub(permit.reserved()), WallClock.now());
        match permit.debit(tokens).await {
            Ok(decision) if decision.allowed => {
                if beyond > 0 {
                    self.charged += beyond;
                    self.ledger.debited(&self.tenant, decision.reset_at, beyond, asked_at);
                }
                true
            }
            Ok(_) => false,
            Err(error) => {
                eprintln!("{}: {error}", self.tenant);
                false
            }
        }
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

    /// What goes back into the window while it lasts, or is taken from it; and what there was to learn.
    fn book(&self, used: u64) {
        if WallClock.now() < self.window_ends {
            self.ledger.charged(&self.tenant, self.window_ends, used as i64 - self.charged as i64);
        }
        lock(&self.lengths).observe(None, used.saturating_sub(self.prompt));
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
