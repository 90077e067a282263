//! Callers that charge one key as fast as they can, from several stores: one request at a time, and by
//! leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use throttlekit::clock::ManualClock;
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::store::StoreError;
use throttlekit::{Answer, Call, Limit, SharedLimiter};
use throttlekit_redis::{Exposure, Failover, RedisStore};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::signpost::Signpost;

/// Half of the stores follow one signpost, half the other.
pub(super) const STORES: usize = 4;
const TASKS_EACH: usize = 2;
/// Units that a leasing caller leases at once.
const BATCH: u64 = 20;
pub(super) const WINDOW: Duration = Duration::from_secs(3_600);
const DEADLINE: Duration = Duration::from_millis(500);
/// The pause of a caller after an outage, so that a refusal does not take the processor from the recovery.
const REST: Duration = Duration::from_millis(1);

pub(super) struct Load {
    limiters: Vec<Arc<SharedLimiter<RedisStore>>>,
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    admitted: AtomicU64,
    /// Tasks that were denied because nothing is left.
    spent: AtomicU64,
}

/// The result of a round's load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    pub(super) admitted: u64,
    /// The maximum loss as reported by the stores themselves.
    pub(super) lost_max: u64,
}

impl Load {
    pub(super) async fn start(
        posts: &[Signpost; 2],
        failover: Failover,
        clock: &ManualClock,
        policy: &str,
        limit: u64,
    ) -> Result<Self> {
        let mut limiters = Vec::new();
        for store in 0..STORES {
            let store = connect(&posts[store % 2], failover, clock).await?;
            limiters.push(Arc::new(SharedLimiter::new(store, policy, Limit::fixed_window(limit, WINDOW)?)?));
        }
        let (mut tasks, shared) = (JoinSet::new(), Arc::new(Shared::default()));
        for (number, limiter) in limiters.iter().enumerate() {
            let leasing = Leasing::new().batch(Batch::Fixed(BATCH)).return_after(None).remember_denials(REST);
            let window = Limit::fixed_window(limit, WINDOW)?;
            let leased = SharedLimiter::builder(limiter.store().clone(), policy, window);
            let leased = leased.leased_with(leasing).build()?;
            for (task, caller) in
                [Caller::Strict(limiter.clone()), Caller::Leased(leased)].into_iter().enumerate()
            {
                tasks.spawn(charge(caller, shared.clone(), (number * TASKS_EACH + task) as u64));
            }
        }
        Ok(Self { limiters, tasks, shared })
    }

    pub(super) fn admitted(&self) -> u64 {
        self.shared.admitted.load(Relaxed)
    }

    /// Waits until every caller was denied because nothing is left, but at most for this long.
    pub(super) async fn exhaust(&self, within: Duration) {
        let all = (STORES * TASKS_EACH) as u64;
        let mut left = within;
        while self.shared.spent.load(Relaxed) < all && !left.is_zero() {
            let step = left.min(Duration::from_millis(2));
            sleep(step).await;
            left -= step;
        }
    }

    pub(super) async fn finish(self) -> Heard {
        self.shared.over.store(true, Relaxed);
        self.tasks.join_all().await;
        let exposures = self.limiters.iter().map(|limiter| limiter.store().exposure());
        Heard { admitted: self.shared.admitted.load(Relaxed), lost_max: exposures.map(lost_of).sum() }
    }
}

/// Returns the loss. A store that has seen no change may have lost what is at risk already. One that has seen
/// it risks the rest for the next.
fn lost_of(exposure: Exposure) -> u64 {
    exposure.lost_max + if exposure.changes == 0 { exposure.at_risk } else { 0 }
}

pub(super) async fn connect(post: &Signpost, failover: Failover, clock: &ManualClock) -> Result<RedisStore> {
    let builder = RedisStore::sentinel([post.url()], "mymaster").servers("redis://127.0.0.1");
    let builder = builder.deadline(DEADLINE).breaker(5, Duration::from_millis(10));
    Ok(builder.failover(failover).clock(clock.clone()).connect().await?)
}

/// Calls the store each time, or leases units and spends them.
enum Caller {
    Strict(Arc<SharedLimiter<RedisStore>>),
    Leased(SharedLimiter<RedisStore>),
}

impl Caller {
    async fn check(&self, cost: u64) -> Result<Answer, StoreError> {
        let ask = Call::by("key").cost(cost);
        match self {
            Self::Strict(limiter) => limiter.check(ask).await,
            Self::Leased(limiter) => limiter.check(ask).await,
        }
    }
}

/// Charges costs of one to three repeatedly; once nothing is left, single units only, so that the last one is
/// requested.
async fn charge(caller: Caller, shared: Arc<Shared>, mut dice: u64) {
    let mut spent = false;
    while !shared.over.load(Relaxed) {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let cost = if spent { 1 } else { 1 + (dice >> 33) % 3 };
        match caller.check(cost).await {
            Ok(answer) if answer.outage.is_none() => {
                if answer.decision.allowed {
                    shared.admitted.fetch_add(cost, Relaxed);
                } else {
                    if cost == 1 && !std::mem::replace(&mut spent, true) {
                        shared.spent.fetch_add(1, Relaxed);
                    }
                    sleep(REST).await;
                }
            }
            _ => sleep(REST).await,
        }
    }
}
