//! Callers that charge one key as fast as they can, strictly and by leases, and count the responses by label.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use futures_util::future::{join_all, join3};
use throttlekit::clock::ManualClock;
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::store::{Store, StoreError};
use throttlekit::{Answer, Guarantee, Limit, SharedLimiter};
use throttlekit_redis::{Failover, RedisStore};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::bugs::Bug;
use crate::failover::signpost::Signpost;

pub(super) const STORES: usize = 3;
const CALLERS: u64 = 2 * STORES as u64;
pub(super) const WINDOW: Duration = Duration::from_secs(3_600);
const DEADLINE: Duration = Duration::from_millis(900);
/// Units that a leasing caller leases at once.
const BATCH: u64 = 10;
/// The pause of a caller after a refusal, so that it does not take the processor from the recovery.
const REST: Duration = Duration::from_millis(1);
const KEY: &str = "key";
/// Reads that a busy caller makes before each of its own calls, and decisions on new keys after them: with so many calls in
/// flight the store leaves the check for evictions to one that follows for all.
const READS_BESIDE: u64 = 8;
const NEW_KEYS_BESIDE: u64 = 16;

pub(super) struct Load {
    pub(super) limiters: Vec<Arc<SharedLimiter<RedisStore>>>,
    tasks: JoinSet<()>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    over: AtomicBool,
    /// Set while callers must pause, and how many do.
    held: AtomicBool,
    paused: AtomicU64,
    /// Incremented when a phase of the round begins.
    phase: AtomicU64,
    /// Callers that were refused in this phase.
    refused: AtomicU64,
    /// Decisions on keys that were never used, by busy callers.
    new_keys: AtomicU64,
    admitted: AtomicU64,
    exact: AtomicU64,
}

impl Counts {
    async fn pause(&self) {
        self.paused.fetch_add(1, SeqCst);
        while self.held.load(SeqCst) && !self.over.load(SeqCst) {
            sleep(REST).await;
        }
        self.paused.fetch_sub(1, SeqCst);
    }
}

impl Load {
    /// Connects the callers. They begin when they are [released](Self::release).
    pub(super) async fn start(
        post: &Signpost,
        failover: Failover,
        clock: &ManualClock,
        policy: &str,
        limit: u64,
        busy: bool,
        bug: Option<Bug>,
    ) -> Result<Self> {
        let mut limiters = Vec::new();
        let (mut tasks, counts) =
            (JoinSet::new(), Arc::new(Counts { held: true.into(), ..Counts::default() }));
        for _ in 0..STORES {
            let store = connect(post, failover, clock).await?;
            let window = || Limit::fixed_window(limit, WINDOW);
            let strict = Arc::new(SharedLimiter::new(store.clone(), policy, window()?)?);
            let leasing = Leasing::new().batch(Batch::Fixed(BATCH)).return_after(None).remember_denials(REST);
            let leased = SharedLimiter::builder(store.clone(), policy, window()?);
            let leased = leased.leased_with(leasing).build()?;
            limiters.push(strict.clone());
            if busy {
                // Checks are shared by calls that know the lineage record.
                strict.check("first").await?;
            }
            let strict = if busy { Caller::Busy(strict, counts.clone()) } else { Caller::Strict(strict) };
            tasks.spawn(charge(strict, counts.clone(), bug));
            tasks.spawn(charge(Caller::Leased(store, leased), counts.clone(), bug));
        }
        Ok(Self { limiters, tasks, counts })
    }

    /// Returns the units admitted so far, and how many of them were labeled `exact`.
    pub(super) fn counted(&self) -> (u64, u64) {
        // In this order: every exact one is an admitted one.
        let exact = self.counts.exact.load(SeqCst);
        (self.counts.admitted.load(SeqCst), exact)
    }

    /// Returns the number of decisions on new keys so far.
    pub(super) fn new_keys(&self) -> u64 {
        self.counts.new_keys.load(SeqCst)
    }

    /// Waits until this many units are admitted.
    pub(super) async fn until_admitted(&self, units: u64, within: Duration) {
        self.wait(within, || self.counted().0 >= units).await;
    }

    /// Waits until every caller is denied, from now on.
    pub(super) async fn exhaust(&self, within: Duration) {
        self.counts.refused.store(0, SeqCst);
        self.counts.phase.fetch_add(1, SeqCst);
        self.wait(within, || self.counts.refused.load(SeqCst) >= CALLERS).await;
    }

    /// Lets no caller have a call in flight until [`release`](Self::release).
    pub(super) async fn hold(&self, within: Duration) {
        self.counts.held.store(true, SeqCst);
        self.wait(within, || self.counts.paused.load(SeqCst) >= CALLERS).await;
    }

    pub(super) fn release(&self) {
        self.counts.held.store(false, SeqCst);
    }

    async fn wait(&self, within: Duration, holds: impl Fn() -> bool) {
        let mut left = within;
        while !holds() && !left.is_zero() {
            let step = left.min(2 * REST);
            sleep(step).await;
            left -= step;
        }
    }

    /// Ends the callers. Returns the admitted units, and those labeled exact.
    pub(super) async fn finish(&mut self) -> (u64, u64) {
        self.counts.over.store(true, SeqCst);
        while self.tasks.join_next().await.is_some() {}
        self.counted()
    }
}

pub(super) async fn connect(post: &Signpost, failover: Failover, clock: &ManualClock) -> Result<RedisStore> {
    let builder = RedisStore::sentinel([post.url()], "mymaster").servers("redis://127.0.0.1");
    let builder = builder.deadline(DEADLINE).breaker(5, Duration::from_millis(10));
    Ok(builder.failover(failover).clock(clock.clone()).connect().await?)
}

/// Calls the store each time, or leases units and spends them.
enum Caller {
    Strict(Arc<SharedLimiter<RedisStore>>),
    /// The same, beside decisions on keys that were never used.
    Busy(Arc<SharedLimiter<RedisStore>>, Arc<Counts>),
    Leased(RedisStore, SharedLimiter<RedisStore>),
}

impl Caller {
    /// Returns the response, labeled as a seeded bug would.
    async fn check(&self, bug: Option<Bug>) -> Result<Answer, StoreError> {
        let (before, mut answer) = match self {
            Self::Strict(limiter) => (limiter.store().guarantee(), limiter.check(KEY).await?),
            Self::Busy(limiter, counts) => {
                let first = counts.new_keys.fetch_add(NEW_KEYS_BESIDE, SeqCst);
                let keys: Vec<_> = (first..first + NEW_KEYS_BESIDE).map(|n| format!("new{n}")).collect();
                let before = limiter.store().guarantee();
                let peeks = join_all((0..READS_BESIDE).map(|_| limiter.peek(KEY)));
                let checks = join_all(keys.iter().map(|key| limiter.check(key.as_str())));
                let (_, _, answer) = join3(peeks, checks, limiter.check(KEY)).await;
                (before, answer?)
            }
            Self::Leased(store, limiter) => (store.guarantee(), limiter.check(KEY).await?),
        };
        answer.guarantee = match (bug, self) {
            (Some(Bug::LabelBeforeCall), _) => before,
            (Some(Bug::LeasesExact), Self::Leased(..)) => Guarantee::Exact,
            _ => answer.guarantee,
        };
        Ok(answer)
    }
}

async fn charge(caller: Caller, counts: Arc<Counts>, bug: Option<Bug>) {
    let mut refused_in = None;
    while !counts.over.load(SeqCst) {
        if counts.held.load(SeqCst) {
            counts.pause().await;
        }
        let phase = counts.phase.load(SeqCst);
        let answer = caller.check(bug).await;
        match answer {
            Ok(answer) if answer.decision.allowed => {
                counts.admitted.fetch_add(1, SeqCst);
                counts.exact.fetch_add(u64::from(answer.guarantee == Guarantee::Exact), SeqCst);
            }
            Ok(answer) if answer.outage.as_ref().is_none_or(is_fenced) => {
                if refused_in.replace(phase) != Some(phase) {
                    counts.refused.fetch_add(1, SeqCst);
                }
                sleep(REST).await;
            }
            _ => sleep(REST).await,
        }
    }
}

pub(super) fn is_fenced(outage: &StoreError) -> bool {
    matches!(outage, StoreError::Unavailable(why) if why.contains("fenced until"))
}
