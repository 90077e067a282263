//! What users hold: one of the places that share a budget.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throttlekit_core::fair::Weight;
use throttlekit_core::fair::branch::{Credit, Turn};
use throttlekit_core::{Cost, Decision, Retry, Timestamp};
use tokio::sync::Notify;

use super::branch_state::BranchState;
use super::fetch::Fetch;
use super::{Budget, Quanta, Region, SharedFairBuilder};
use crate::fair::limiter::WeightOf;
use crate::shared::{StandIn, Tallies};
use crate::store::{Background, RegionGrant, RegionPool, Store, StoreError};
use crate::{Answer, Ask, BootClock, KeyHash, LeaseClock, Limit, LimitError, SecretHash, Tally};

/// How often an ask waits for units. Then it is told to come back.
const ROUNDS_MAX: usize = 64;

/// One of the places that share one budget per window: a region, or a process. Its tenants share what it can have by
/// weight.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use throttlekit::fair::{SharedFairLimiter, Weight};
/// use throttlekit::{Ask, Limit, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // In production a RedisStore or a PostgresStore, which each region reaches from its own processes.
/// let pool = Arc::new(MemoryStore::new());
/// let minute = Limit::fixed_window(30_000, Duration::from_secs(60))?;
/// let tiers = |tenant: &[u8]| Weight::new(if tenant.starts_with(b"pro:") { 4 } else { 1 }).unwrap_or_default();
/// let us = SharedFairLimiter::in_region(pool.clone(), "tokens", "us-east", minute).weights(tiers).build()?;
/// let eu = SharedFairLimiter::in_region(pool, "tokens", "eu-west", minute).weights(tiers).build()?;
///
/// assert!(us.check(Ask::of("pro:ada").cost(1_500)).await?.decision.allowed);
/// assert!(eu.check(Ask::of("free:bob").cost(1_500)).await?.decision.allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedFairLimiter<B: Budget, C: LeaseClock + 'static = BootClock> {
    pub(super) place: Arc<Place<B, C>>,
}

/// What the limiter and its requests share.
pub(super) struct Place<B, C> {
    pub(super) budget: B,
    pub(super) weight_of: WeightOf,
    pub(super) clock: C,
    pub(super) hash: SecretHash,
    pub(super) hold: Duration,
    pub(super) state: Mutex<BranchState>,
    /// Rings when a request has come back.
    pub(super) bell: Notify,
    pub(super) stand_in: StandIn<1>,
    pub(super) tallies: Tallies,
    pub(super) counters: Counters,
    /// Where requests run.
    pub(super) background: Background,
}

#[derive(Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    failures: AtomicU64,
    granted: AtomicU64,
    lapsed: AtomicU64,
}

/// What a [`SharedFairLimiter`] has on its books.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedFairStats {
    /// Units fetched in this window.
    pub granted: u64,
    /// Of them, those not spent.
    pub in_hand: u64,
    /// How many tenants have asked in this window and have a place.
    pub tenants: usize,
    /// How often ever a tenant took the place of another. Should this grow, so should `tenants_max`.
    pub displaced: u64,
    /// Requests ever sent.
    pub requests: u64,
    /// Of them, those that ended in an error.
    pub failures: u64,
    /// Units ever fetched.
    pub units_granted: u64,
    /// Of them, those that were dead when they arrived.
    pub units_lapsed: u64,
}

impl<P: RegionPool> SharedFairLimiter<Region<P>> {
    /// A region, among those that share a window under this policy through one pool. Each process that asks by itself
    /// is a region of its own: name it so, as `eu-west/7`.
    pub fn in_region<L: TryInto<Limit>>(
        pool: P,
        policy: &str,
        region: &str,
        limit: L,
    ) -> SharedFairBuilder<Region<P>>
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into().map_err(LimitError::from);
        SharedFairBuilder::new(limit.and_then(|limit| Region::new(pool, policy, region, limit)))
    }
}

impl<S: Store> SharedFairLimiter<Quanta<S>> {
    /// A process, among those that take quanta of one window under this policy from a store.
    pub fn by_quanta<L: TryInto<Limit>>(store: S, policy: &str, limit: L) -> SharedFairBuilder<Quanta<S>>
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into().map_err(LimitError::from);
        SharedFairBuilder::new(limit.and_then(|limit| Quanta::new(store, policy, limit)))
    }
}

impl<B: Budget, C: LeaseClock + 'static> SharedFairLimiter<B, C> {
    pub(super) fn from_place(place: Place<B, C>) -> Self {
        Self { place: Arc::new(place) }
    }

    /// Answers one ask, and charges it if allowed. The limit it tells is the tenant's own at present. An ask of nothing
    /// changes nothing, and tells the most that would pass.
    pub async fn check<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<Answer, StoreError> {
        let ask = ask.into();
        self.check_weighing(ask, (self.place.weight_of)(ask.key)).await
    }

    /// Like [`check`](Self::check), by a tenant that weighs this from now on, until another ask says otherwise.
    pub async fn check_weighing<'a>(
        &self,
        ask: impl Into<Ask<'a>>,
        weight: Weight,
    ) -> Result<Answer, StoreError> {
        let Ask { key, cost } = ask.into();
        let (place, name) = (&self.place, self.place.hash.fingerprint(key));
        for _ in 0..ROUNDS_MAX {
            match place.round(name, weight, cost).await {
                Round::Answer(decision) => return Ok(place.answer(decision)),
                Round::Outage(error) => return place.without_budget(cost, error),
                Round::Again => {}
            }
        }
        Ok(place.answer(place.come_back()))
    }

    /// The answer, if it can be had without waiting for anyone. Charges as [`check`](Self::check) does.
    pub fn try_check<'a>(&self, ask: impl Into<Ask<'a>>) -> Option<Answer> {
        let Ask { key, cost } = ask.into();
        let (place, weight) = (&self.place, (self.place.weight_of)(key));
        let turn = place.state().ask(place.hash.fingerprint(key), weight, cost, &place.clock);
        match turn {
            Turn::Admit(decision) | Turn::Deny(decision) => Some(place.answer(decision)),
            Turn::Wait { .. } => None,
        }
    }

    /// Hands units of an admitted ask back that were not used, into the window that ends at `reset_at`, as its decision
    /// said: they are in hand here again. Nothing if that window is over here, or if the tenant has lost its place to
    /// another: then they lapse.
    ///
    /// To be called once for what was charged, and only for answers of the budget itself: what was admitted in an
    /// [outage](Answer::outage) was taken from no budget.
    pub fn refund(&self, tenant: &(impl AsRef<[u8]> + ?Sized), units: Cost, reset_at: Timestamp) {
        let Place { hash, clock, .. } = &*self.place;
        let (name, mut state) = (hash.fingerprint(tenant.as_ref()), self.place.state());
        state.refund(name, units, reset_at, clock.now());
    }

    /// What is on the books now.
    pub fn stats(&self) -> SharedFairStats {
        let Place { counters, clock, .. } = &*self.place;
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let mut state = self.place.state();
        state.advance(clock.now());
        SharedFairStats {
            granted: state.branch.granted(),
            in_hand: state.branch.in_hand(),
            tenants: state.names.len(),
            displaced: state.names.displaced(),
            requests: read(&counters.requests),
            failures: read(&counters.failures),
            units_granted: read(&counters.granted),
            units_lapsed: read(&counters.lapsed),
        }
    }

    /// How many answers there were of each kind.
    pub fn tally(&self) -> Tally {
        self.place.tallies.read()
    }

    /// Where its units come from.
    pub fn budget(&self) -> &B {
        &self.place.budget
    }
}

/// The next step after a look at the state.
enum Round {
    Answer(Decision),
    Outage(StoreError),
    Again,
}

impl<B: Budget, C: LeaseClock + 'static> Place<B, C> {
    /// One look at the state, and the wait that follows from it.
    async fn round(self: &Arc<Self>, name: u64, weight: Weight, cost: Cost) -> Round {
        let mut bell = pin!(self.bell.notified());
        let (needs, awaited, request) = {
            let mut state = self.state();
            let needs = match state.ask(name, weight, cost, &self.clock) {
                Turn::Admit(decision) | Turn::Deny(decision) => return Round::Answer(decision),
                Turn::Wait { needs } => needs,
            };
            bell.as_mut().enable();
            let Some((awaited, request)) = state.wait(needs, self.clock.now()) else {
                return Round::Outage(StoreError::unavailable("too many asks wait for it"));
            };
            (needs, awaited, request)
        };
        let _waiting = Waiting { place: self, needs };
        if let Some(request) = request {
            self.counters.requests.fetch_add(1, Relaxed);
            Fetch::start(self, request);
        }
        match self.background.wait(1, bell).await {
            Ok(()) => self.state().failed(awaited).map_or(Round::Again, Round::Outage),
            Err(late) => self.give_up(awaited, late),
        }
    }

    /// The request was neither answered nor failed in time: nobody drives it. It counts as failed, so that the next caller
    /// sends another; what it may still bring lapses.
    #[cold]
    fn give_up(&self, awaited: u64, late: StoreError) -> Round {
        if self.state().branch.asking() != Some(awaited) {
            return Round::Again;
        }
        self.land(awaited, Err(late.clone()));
        Round::Outage(late)
    }

    /// Credits what a request fetched, or notes why it fetched nothing; then everyone who waits looks again.
    pub(super) fn land(&self, id: u64, answer: Result<RegionGrant, StoreError>) {
        match answer {
            Ok(granted) => {
                let units = granted.grant.granted;
                self.counters.granted.fetch_add(units, Relaxed);
                if self.state().reply(id, &granted, self.clock.now()) == Credit::Lapsed {
                    self.counters.lapsed.fetch_add(units, Relaxed);
                }
            }
            Err(error) => {
                self.counters.failures.fetch_add(1, Relaxed);
                self.state().fail(id, error);
            }
        }
        self.bell.notify_waiters();
    }

    fn answer(&self, decision: Decision) -> Answer {
        let guarantee = self.budget.guarantee();
        self.tallies.count(guarantee);
        Answer { decision, binding: 0, guarantee, now: self.theirs(), outage: None, receipt: None }
    }

    /// The answer to an ask for which the budget has none: as [`OnOutage`](crate::OnOutage) says, for all tenants alike.
    fn without_budget(&self, cost: Cost, error: StoreError) -> Result<Answer, StoreError> {
        if !error.is_outage() {
            self.tallies.count_error();
            return Err(error);
        }
        let now = self.theirs();
        let everyone = Ask { key: b"", cost };
        let (verdict, guarantee) = self.stand_in.answer([everyone], &[*self.budget.limit()], now);
        self.tallies.count(guarantee);
        Ok(Answer {
            decision: verdict.decision,
            binding: 0,
            guarantee,
            now,
            outage: Some(error),
            receipt: None,
        })
    }

    fn come_back(&self) -> Decision {
        let retry_after = Retry::after(self.hold);
        let limit = self.budget.limit().units();
        Decision { allowed: false, limit, remaining: 0, reset_at: self.theirs(), retry_after }
    }

    fn theirs(&self) -> Timestamp {
        self.state().theirs(self.clock.now())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, BranchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for the bell, until it goes.
struct Waiting<'a, B: Budget, C: LeaseClock + 'static> {
    place: &'a Place<B, C>,
    needs: Cost,
}

impl<B: Budget, C: LeaseClock + 'static> Drop for Waiting<'_, B, C> {
    fn drop(&mut self) {
        self.place.state().stop_waiting(self.needs);
    }
}

/// A clone is the same place.
impl<B: Budget, C: LeaseClock + 'static> Clone for SharedFairLimiter<B, C> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone() }
    }
}

impl<B: Budget, C: LeaseClock + 'static> std::fmt::Debug for SharedFairLimiter<B, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedFairLimiter").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
