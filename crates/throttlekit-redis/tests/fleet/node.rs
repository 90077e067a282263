//! What a node process does: asks the shipped limiter as its demand says, and writes down what was admitted.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::store::Store;
use throttlekit::tier::{Batch, TierBuilder};
use throttlekit::{Ask, LeaseClock, TwoTier};
use throttlekit_conformance::Dice;
use throttlekit_redis::RedisStore;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::broken::{AnchoredAtReply, FrozenClock, ReturnsTwice, SlowClock};
use super::log::{Admission, Log, micros};
use super::member::Post;
use super::{Broken, NodePlan, Plan, demand};

const KEY: &str = "shared";
const CALLERS: u64 = 4;
const COST_MAX: u64 = 3;
/// Units that a till takes out at a time.
pub(crate) const TILL: u64 = 4;
/// The most a learner may ask for.
const LEARNED_MAX: u64 = 100;
/// Longer than replies are held up, so that late ones count.
const DEADLINE: Duration = Duration::from_millis(400);
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// Serves until its parent is gone or ends it.
pub(crate) async fn serve(plan: &Plan, post: &Post) -> ! {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let node = &plan.nodes[post.number];
    let store = RedisStore::builder(&post.url).deadline(DEADLINE).breaker(5, PROBE_EVERY);
    let store = store.connect().await.unwrap();
    match node.broken {
        None => start(builder(store, plan, node, post).build().unwrap(), plan, post),
        Some(Broken::SlowClock(times)) => {
            start(builder(store, plan, node, post).clock(SlowClock::by(times)).build().unwrap(), plan, post);
        }
        Some(Broken::FrozenClock) => {
            start(builder(store, plan, node, post).clock(FrozenClock::new()).build().unwrap(), plan, post);
        }
        Some(Broken::AnchoredAtReply) => {
            start(builder(AnchoredAtReply(store), plan, node, post).build().unwrap(), plan, post);
        }
        Some(Broken::ReturnsTwice) => {
            start(builder(ReturnsTwice(store), plan, node, post).build().unwrap(), plan, post);
        }
    }
    std::future::pending().await
}

fn builder<S: Store>(store: S, plan: &Plan, node: &NodePlan, post: &Post) -> TierBuilder<S> {
    let units_max = node.batch.map_or(LEARNED_MAX, |units| units.max(COST_MAX));
    let builder = TwoTier::builder(store, &post.policy, plan.rule.limit())
        .mode(node.mode)
        .batch(node.batch.map_or_else(Batch::learned, Batch::Fixed))
        .refill_at_percent(node.refill_at_percent)
        .share(node.share)
        .return_after(Some(node.return_after))
        .lease_max(units_max)
        .hold(plan.rule.hold());
    match node.carry {
        Some(nodes) => builder.carry(nodes),
        None => builder,
    }
}

fn start<S: Store, C: LeaseClock + 'static>(limiter: TwoTier<S, C>, plan: &Plan, post: &Post) {
    let till = plan.nodes[post.number].till;
    let (limiter, log, beat) = (Arc::new(limiter), Arc::new(Log::open(&post.log)), plan.rule.beat());
    for caller in 0..CALLERS {
        let dice = Dice::new(u64::from(std::process::id()) * CALLERS + caller);
        tokio::spawn(ask_on(limiter.clone(), log.clone(), beat, caller, till, dice));
    }
}

/// One caller. The first asks for one unit at a time, so that the last of a window is spent; the second may have a till.
async fn ask_on<S: Store, C: LeaseClock + 'static>(
    limiter: Arc<TwoTier<S, C>>,
    log: Arc<Log>,
    beat: Duration,
    caller: u64,
    till: bool,
    mut dice: Dice,
) {
    let held = limiter.hold(KEY.as_bytes()).filter(|_| caller == 1 && till);
    let mut till = held.as_ref().map(|held| held.till(TILL));
    loop {
        let cost = if caller == 0 { 1 } else { dice.between(1, COST_MAX) };
        let from = micros();
        let admitted = match till.as_mut().and_then(|till| till.try_spend(cost)) {
            Some(decision) => decision.allowed,
            None => limiter
                .check(Ask::of(KEY).cost(cost))
                .await
                .is_ok_and(|answer| answer.outage.is_none() && answer.decision.allowed),
        };
        let to = micros();
        if admitted {
            log.write(Admission { from, to, cost });
        }
        match demand::pause(to, beat, admitted, &mut dice) {
            Duration::ZERO => yield_now().await,
            pause => sleep(pause).await,
        }
    }
}
