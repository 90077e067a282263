//! A node process: sends requests to the shipped limiter by its demand, and logs admissions.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{LeaseClock, PreciseClock, TickClock};
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::limiter::SharedLimiterBuilder;
use throttlekit::store::Store;
use throttlekit::{BuildError, Call, SharedLimiter};
use throttlekit_conformance::Dice;
use throttlekit_redis::RedisStore;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::sleep;

use super::broken::{AnchoredAtReply, FrozenClock, ReturnsTwice, SlowClock};
use super::demand::Demand;
use super::log::{Admission, Log, micros};
use super::member::Post;
use super::plan::NodeClock;
use super::{Broken, NodePlan, Plan};

const KEY: &str = "shared";
const CALLERS: u64 = 4;
const COST_MAX: u64 = 3;
/// Units that a thread cache takes at a time.
const CACHE_UNITS: u64 = 4;
/// The maximum batch of a learner.
const LEARNED_MAX: u64 = 100;
/// Longer than the delay of replies, so that late ones count.
const DEADLINE: Duration = Duration::from_millis(400);
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// Serves until its parent exits or ends it.
pub(crate) async fn serve(plan: &Plan, post: &Post) -> ! {
    let node = &plan.nodes[post.number];
    let store = RedisStore::builder(&post.url).deadline(DEADLINE).breaker(5, PROBE_EVERY);
    let store = store.connect().await.unwrap();
    let tier = |store| builder(store, plan, node, post);
    match (node.broken, node.clock) {
        (None, NodeClock::Boot) => start(tier(store).build(), plan, post),
        (None, NodeClock::Precise) => start(tier(store).clock(PreciseClock::new()).build(), plan, post),
        (None, NodeClock::Tick) => start(tier(store).clock(TickClock::new()).build(), plan, post),
        (Some(Broken::SlowClock(times)), _) => {
            start(tier(store).clock(SlowClock::by(times)).build(), plan, post);
        }
        (Some(Broken::FrozenClock), _) => start(tier(store).clock(FrozenClock::new()).build(), plan, post),
        (Some(Broken::AnchoredAtReply), _) => {
            start(builder(AnchoredAtReply(store), plan, node, post).build(), plan, post);
        }
        (Some(Broken::ReturnsTwice), _) => {
            start(builder(ReturnsTwice(store), plan, node, post).build(), plan, post);
        }
    }
    std::future::pending().await
}

fn builder<S: Store>(store: S, plan: &Plan, node: &NodePlan, post: &Post) -> SharedLimiterBuilder<S> {
    let units_max = node.batch.map_or(LEARNED_MAX, |units| units.max(COST_MAX));
    let leasing = if node.auto { Leasing::auto() } else { Leasing::new() };
    let leasing = leasing
        .batch(node.batch.map_or_else(Batch::learned, Batch::Fixed))
        .refill_at_percent(node.refill_at_percent)
        .share(node.share)
        .return_after(Some(node.return_after))
        .lease_max(units_max)
        .hold(plan.rule.hold());
    let leasing = match node.carry {
        Some(nodes) => leasing.carry(nodes),
        None => leasing,
    };
    SharedLimiter::builder(store, &post.policy, plan.rule.limit()).leased_with(leasing)
}

fn start<S: Store, C: LeaseClock + 'static>(
    limiter: Result<SharedLimiter<S, C>, BuildError>,
    plan: &Plan,
    post: &Post,
) {
    let caller = |number: u64| Caller {
        number,
        has_thread_cache: plan.nodes[post.number].thread_cache && number == 1,
        demand: Demand::of(plan, post.number),
        dice: Dice::new(u64::from(std::process::id()) * CALLERS + number),
    };
    let (limiter, log) = (Arc::new(limiter.unwrap()), Arc::new(Log::open(&post.log)));
    for number in 0..CALLERS {
        tokio::spawn(ask_on(limiter.clone(), log.clone(), caller(number)));
    }
    tokio::spawn(end_with_input(limiter));
}

/// Sends the node's units back and exits, once its parent has closed its input.
async fn end_with_input<S: Store, C: LeaseClock + 'static>(limiter: Arc<SharedLimiter<S, C>>) {
    let _ = spawn_blocking(|| std::io::stdin().read(&mut [0])).await;
    let _ = limiter.close().await;
    std::process::exit(0);
}

struct Caller {
    number: u64,
    has_thread_cache: bool,
    demand: Demand,
    dice: Dice,
}

/// Sends requests forever. The first caller requests one unit at a time, so that the last of a window is
/// spent.
async fn ask_on<S: Store, C: LeaseClock + 'static>(
    limiter: Arc<SharedLimiter<S, C>>,
    log: Arc<Log>,
    mut caller: Caller,
) {
    let held = limiter.leased_key(KEY).filter(|_| caller.has_thread_cache);
    let mut thread_cache = held.as_ref().map(|held| held.thread_cache(CACHE_UNITS));
    loop {
        let cost = if caller.number == 0 { 1 } else { caller.dice.between(1, COST_MAX) };
        let from = micros();
        let admitted = match thread_cache.as_mut().and_then(|thread_cache| thread_cache.try_spend(cost)) {
            Some(_left) => true,
            None => limiter
                .check(Call::by(KEY).cost(cost))
                .await
                .is_ok_and(|answer| answer.outage.is_none() && answer.decision.allowed),
        };
        let to = micros();
        if admitted {
            log.write(Admission { from, to, cost });
        }
        match caller.demand.pause(to, admitted, &mut caller.dice) {
            Duration::ZERO => yield_now().await,
            pause => sleep(pause).await,
        }
    }
}
