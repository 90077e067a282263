//! The two ways that most gateways meter, over the same limits: for comparison, with their faults.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use throttlekit::guard::SharedGuardPermit;
use throttlekit::limiter::Receipt;
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use throttlekit::{Axis, Call, Concurrency, Decision, Limit, Rate, SharedGuard, SharedLimiter};
use throttlekit_redis::RedisStore;

use super::{Answer, Asked, Debit, Denial, Permit, Why};
use crate::headers::{Allowance, Allowances};
use crate::ledger::Ledger;
use crate::tenants::{Config, Tenant};

/// The key under which all tenants together count.
const EVERYONE: &str = "model";
/// Axis of each limit, by its index.
const AXES: [Axis; 3] = [Axis::Rate, Axis::Cost, Axis::Fairness];

/// When it charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The most that a request may cost, before it begins.
    Reserve,
    /// Its actual cost, when it has ended.
    Count,
}

/// One tenant's limits.
pub struct Baseline {
    way: Way,
    tenant: String,
    window: Duration,
    limits: SharedLimiter<RedisStore>,
    slots: SharedGuard,
    ledger: Arc<Ledger>,
}

impl Baseline {
    pub(super) fn new(
        way: Way,
        store: &RedisStore,
        policy: &str,
        config: &Config,
        tenant: &Tenant,
        ledger: Arc<Ledger>,
    ) -> Result<Self> {
        let limits = SharedLimiter::builder(store.clone(), policy, Rate::per_minute(tenant.rpm))
            .limit("tokens", Limit::fixed_window(tenant.tpm, config.window())?)
            .limit_by(1, "model", Limit::fixed_window(config.capacity, config.window())?);
        Ok(Self {
            way,
            tenant: tenant.name.clone(),
            window: config.window(),
            limits: limits.build()?,
            slots: SharedGuard::new(store.clone(), policy, Concurrency::per_key(tenant.concurrency))?,
            ledger,
        })
    }

    pub(super) async fn admit(self: &Arc<Self>, asked: Asked) -> Result<Answer, StoreError> {
        let entered = self.slots.acquire(&self.tenant).await?;
        let decision = entered.decision();
        let Some(slot) = entered.permit else {
            let why = entered.outage.map_or(Why::Axis(Axis::Concurrency), |_| Why::Outage);
            return Ok(self.denied(why, decision, asked, self.look().await.as_ref()));
        };
        let cost = match self.way {
            Way::Reserve => asked.in_all(),
            Way::Count => 1,
        };
        let key = self.tenant.as_str();
        let answer = self.limits.check(self.call().costs(&[1, cost, cost])).await?;
        let seen = self.look().await;
        let Some(receipt) = answer.receipt.filter(|_| answer.decision.allowed) else {
            let why = answer.outage.map_or(Why::Axis(AXES[answer.binding]), |_| Why::Outage);
            return Ok(self.denied(why, answer.decision, asked, seen.as_ref()));
        };
        let window_ends = seen.as_ref().map_or(answer.decision.reset_at, |seen| seen.each[2].reset_at);
        self.ledger.charged(key, window_ends, cost as i64);
        let charged = Charged {
            limiter: self.clone(),
            bill: Some(Bill { receipt, window_ends, charged: cost }),
            used: 0,
            _slot: slot,
        };
        // Either lets a request run as long as it may: the one has charged for it, the other does not look.
        let (allowances, may_use) = (allowances(seen.as_ref()), asked.most);
        Ok(Answer { allowances, may_use, outcome: Ok(Permit::Baseline(charged)) })
    }

    pub(super) async fn allowances(&self) -> Allowances {
        allowances(self.look().await.as_ref())
    }

    pub(super) async fn held(&self) -> Result<u32, StoreError> {
        self.slots.peek(&self.tenant).await.map(|seen| (seen.limit - seen.remaining) as u32)
    }

    fn denied(&self, why: Why, decision: Decision, asked: Asked, seen: Option<&Seen>) -> Answer {
        let (limit, retry) = (decision.limit, decision.retry_after);
        let (asked, window) = (asked.in_all(), self.window);
        let denial = Denial { tenant: self.tenant.clone(), why, limit, asked, window, retry };
        Answer { allowances: allowances(seen), may_use: 0, outcome: Err(denial) }
    }

    fn call(&self) -> Call<'_> {
        Call::by(&self.tenant).and(&[EVERYONE])
    }

    /// Returns what is left of each limit: a decision over several reports only the binding one. Headers are
    /// worth another round trip, but not an error.
    async fn look(&self) -> Option<Seen> {
        let each = self.limits.peek_each(self.call()).await.ok()?;
        Some(Seen { each, now: self.limits.now() })
    }
}

/// Units left of each limit, and the time.
struct Seen {
    each: Vec<Decision>,
    now: Timestamp,
}

fn allowances(seen: Option<&Seen>) -> Allowances {
    let allowance = |nth: usize| seen.map(|seen| Allowance::of(&seen.each[nth], seen.now));
    Allowances { requests: allowance(0), tokens: allowance(1) }
}

/// The charge of one request, until it is settled.
pub struct Charged {
    limiter: Arc<Baseline>,
    bill: Option<Bill>,
    used: u64,
    _slot: SharedGuardPermit,
}

struct Bill {
    receipt: Receipt,
    window_ends: Timestamp,
    charged: u64,
}

impl Charged {
    pub(super) fn count(&mut self, tokens: u64) -> Debit {
        self.used += tokens;
        Debit::Allow
    }

    /// Settles in the background.
    pub(super) fn refuse(mut self) {
        self.used = 0;
    }

    pub(super) async fn finish(mut self, total: Option<u64>) {
        self.used = total.unwrap_or(self.used);
        if let Some(settles) = self.settle() {
            settles.await;
        }
    }

    /// Replaces what was charged by what was used, once.
    fn settle(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let Bill { receipt, window_ends, charged } = self.bill.take()?;
        let (limiter, used) = (self.limiter.clone(), self.used);
        limiter.ledger.charged(&limiter.tenant, window_ends, used as i64 - charged as i64);
        Some(async move {
            if let Err(error) = limiter.limits.settle_each(receipt, &[1, used, used]).await {
                eprintln!("{}: {used} tokens used, {charged} charged, not settled: {error}", limiter.tenant);
            }
        })
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        if let (Some(settles), Ok(runtime)) = (self.settle(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(settles);
        }
    }
}
