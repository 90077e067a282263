//! The public shared fair limiter: one participant in a shared budget.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::fair::Weight;
use throttlekit_core::fair::branch::{Credit, Request, Turn};
use throttlekit_core::{Cost, Decision, Retry, Timestamp};
use tokio::sync::Notify;

use super::branch_state::BranchState;
use super::{Budget, Quanta, Region, SharedFairLimiterBuilder};
use crate::fair::limiter::WeightOf;
use crate::shared::{Fallback, Tallies};
use crate::store::{Background, RegionGrant, RegionStore, Store, StoreError};
use crate::sync::Mutex;
use crate::{Answer, BootClock, Call, KeyHash, LeaseClock, Limit, LimitError, SecretHash, Tally};

/// Maximum number of times that a request waits for units. Then it is denied with a retry time.
const ROUNDS_MAX: usize = 64;

/// A participant in one shared budget per window: a region, or a process. Its tenants share its available units by
/// weight.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use throttlekit::fair::{SharedFairLimiter, Weight};
/// use throttlekit::{Call, Limit, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // In production a RedisStore or a PostgresStore, which each region reaches from its own processes.
/// let pool = Arc::new(MemoryStore::new());
/// let minute = Limit::fixed_window(30_000, Duration::from_secs(60))?;
/// let tiers = |tenant: &[u8]| Weight::new(if tenant.starts_with(b"pro:") { 4 } else { 1 }).unwrap_or_default();
/// let us = SharedFairLimiter::in_region(pool.clone(), "tokens", "us-east", minute).weights(tiers).build()?;
/// let eu = SharedFairLimiter::in_region(pool, "tokens", "eu-west", minute).weights(tiers).build()?;
///
/// assert!(us.check(Call::by("pro:ada").cost(1_500)).await?.decision.allowed);
/// assert!(eu.check(Call::by("free:bob").cost(1_500)).await?.decision.allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedFairLimiter<B: Budget, C: LeaseClock + 'static = BootClock> {
    pub(super) place: Arc<Place<B, C>>,
}

/// State that the limiter and its requests share.
pub(super) struct Place<B, C> {
    pub(super) budget: B,
    pub(super) weight_of: WeightOf,
    pub(super) clock: C,
    pub(super) hash: SecretHash,
    pub(super) hold: Duration,
    pub(super) state: Mutex<BranchState>,
    /// Notifies when a request has completed.
    pub(super) bell: Notify,
    pub(super) stand_in: Fallback<1>,
    pub(super) tallies: Tallies,
    pub(super) counters: Counters,
    /// The background that requests run on.
    pub(super) background: Background,
}

counters! {
    /// State and counters of a [`SharedFairLimiter`].
    pub struct SharedFairStats, counted by Counters {
        /// Requests sent.
        requests,
        /// Of these, those that failed.
        failures,
        /// Units fetched.
        units_granted,
        /// Of these, those that had expired on arrival.
        units_lapsed,
    }
    beside {
        /// Units fetched in this window.
        granted: u64,
        /// Of these, those not spent.
        in_hand: u64,
        /// Number of tenants with a request in this window and an entry.
        tenants: usize,
        /// Number of times that a tenant took over the entry of another, ever. If this grows, raise `tenants_max`.
        displaced: u64,
    }
}

impl<P: RegionStore> SharedFairLimiter<Region<P>> {
    /// Describes a region, among those that share a window under this policy through one pool. Each process that sends
    /// its own requests is a region of its own: name it accordingly, as `eu-west/7`.
    pub fn in_region<L: TryInto<Limit>>(
        pool: P,
        policy: &str,
        region: &str,
        limit: L,
    ) -> SharedFairLimiterBuilder<Region<P>>
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into().map_err(LimitError::from);
        SharedFairLimiterBuilder::new(limit.and_then(|limit| Region::new(pool, policy, region, limit)))
    }
}

impl<S: Store> SharedFairLimiter<Quanta<S>> {
    /// Describes a process, among those that take quanta of one window under this policy from a store.
    pub fn by_quanta<L: TryInto<Limit>>(
        store: S,
        policy: &str,
        limit: L,
    ) -> SharedFairLimiterBuilder<Quanta<S>>
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into().map_err(LimitError::from);
        SharedFairLimiterBuilder::new(limit.and_then(|limit| Quanta::new(store, policy, limit)))
    }
}

impl<B: Budget, C: LeaseClock + 'static> SharedFairLimiter<B, C> {
    pub(super) fn from_place(place: Place<B, C>) -> Self {
        Self { place: Arc::new(place) }
    }

    /// Decides one request, and charges it if allowed. The reported limit is the tenant's own at present. A request of
    /// cost zero changes nothing, and returns the most that would pass.
    pub async fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        let ask = ask.into();
        self.check_weighing(ask, (self.place.weight_of)(ask.key())).await
    }

    /// Like [`check`](Self::check), and sets the tenant's weight until another request changes it.
    pub async fn check_weighing<'a>(
        &self,
        ask: impl Into<Call<'a>>,
        weight: Weight,
    ) -> Result<Answer, StoreError> {
        let call = ask.into();
        let (key, cost) = (call.key(), call.units());
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

    /// Decides a request if that is possible without waiting. Charges as [`check`](Self::check) does.
    pub fn try_check<'a>(&self, ask: impl Into<Call<'a>>) -> Option<Answer> {
        let call = ask.into();
        let (key, cost) = (call.key(), call.units());
        let (place, weight) = (&self.place, (self.place.weight_of)(key));
        let turn = place.state.lock().ask(place.hash.fingerprint(key), weight, cost, &place.clock);
        match turn {
            Turn::Admit(decision) | Turn::Deny(decision) => Some(place.answer(decision)),
            Turn::Wait { .. } => None,
        }
    }

    /// Returns unused units of an admitted request to the window that ends at `reset_at`, as in its decision: they are
    /// available here again. No effect if that window is over here, or if another tenant took over the entry: then they
    /// expire.
    ///
    /// Call it once per charge, and only for decisions of the budget itself: requests admitted in an
    /// [outage](Answer::outage) were charged to no budget.
    pub fn refund(&self, tenant: &(impl AsRef<[u8]> + ?Sized), units: Cost, reset_at: Timestamp) {
        let Place { hash, clock, .. } = &*self.place;
        let (name, mut state) = (hash.fingerprint(tenant.as_ref()), self.place.state.lock());
        state.refund(name, units, reset_at, clock.now());
    }

    /// Returns the current state and counters.
    pub fn stats(&self) -> SharedFairStats {
        let mut state = self.place.state.lock();
        state.advance(self.place.clock.now());
        SharedFairStats {
            granted: state.branch.granted(),
            in_hand: state.branch.in_hand(),
            tenants: state.names.len(),
            displaced: state.names.displaced(),
            ..self.place.counters.read()
        }
    }

    /// Returns the number of decisions by guarantee.
    pub fn tally(&self) -> Tally {
        self.place.tallies.read()
    }

    /// Returns the budget that its units come from.
    pub fn budget(&self) -> &B {
        &self.place.budget
    }
}

/// The next step after a check of the state.
enum Round {
    Answer(Decision),
    Outage(StoreError),
    Again,
}

impl<B: Budget, C: LeaseClock + 'static> Place<B, C> {
    /// Checks the state once, and waits if needed.
    async fn round(self: &Arc<Self>, name: u64, weight: Weight, cost: Cost) -> Round {
        let mut bell = pin!(self.bell.notified());
        let (needs, awaited, request) = {
            let mut state = self.state.lock();
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
            self.fetch(request);
        }
        match self.background.wait(1, bell).await {
            Ok(()) => self.state.lock().failed(awaited).map_or(Round::Again, Round::Outage),
            Err(late) => self.give_up(awaited, late),
        }
    }

    fn fetch(self: &Arc<Self>, Request { id, weight, wants }: Request) {
        self.counters.requests.fetch_add(1, Relaxed);
        let (asks, lands) = (self.clone(), self.clone());
        let request = async move { asks.budget.more(weight, wants).await };
        self.background.request(request, move |answer| lands.land(id, answer));
    }

    /// Fails a request that neither completed nor failed in time, because nothing drives it. The next caller then sends
    /// another; units that it may still bring expire.
    #[cold]
    fn give_up(&self, awaited: u64, late: StoreError) -> Round {
        if self.state.lock().branch.asking() != Some(awaited) {
            return Round::Again;
        }
        self.land(awaited, Err(late.clone()));
        Round::Outage(late)
    }

    /// Credits the fetched units, or records the error; then wakes all waiting callers.
    fn land(&self, id: u64, answer: Result<RegionGrant, StoreError>) {
        match answer {
            Ok(granted) => {
                let units = granted.grant.granted;
                self.counters.units_granted.fetch_add(units, Relaxed);
                if self.state.lock().reply(id, &granted, self.clock.now()) == Credit::Lapsed {
                    self.counters.units_lapsed.fetch_add(units, Relaxed);
                }
            }
            Err(error) => {
                self.counters.failures.fetch_add(1, Relaxed);
                self.state.lock().fail(id, error);
            }
        }
        self.bell.notify_waiters();
    }

    fn answer(&self, decision: Decision) -> Answer {
        let guarantee = self.budget.guarantee();
        self.tallies.count(guarantee);
        Answer { decision, binding: 0, guarantee, now: self.theirs(), outage: None, receipt: None }
    }

    /// Decides a request by the fallback, as [`OnOutage`](crate::OnOutage) sets it, for all tenants alike.
    fn without_budget(&self, cost: Cost, error: StoreError) -> Result<Answer, StoreError> {
        if !error.is_outage() {
            self.tallies.errors.fetch_add(1, Relaxed);
            return Err(error);
        }
        let now = self.theirs();
        let everyone = Call::by(b"").cost(cost);
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
        self.state.lock().theirs(self.clock.now())
    }
}

/// A caller that waits for a notification, until it is dropped.
struct Waiting<'a, B: Budget, C: LeaseClock + 'static> {
    place: &'a Place<B, C>,
    needs: Cost,
}

impl<B: Budget, C: LeaseClock + 'static> Drop for Waiting<'_, B, C> {
    fn drop(&mut self) {
        self.place.state.lock().stop_waiting(self.needs);
    }
}

// A clone is the same participant.
clone_fields!([B: Budget, C: LeaseClock + 'static] SharedFairLimiter<B, C>, place);

debug_fields!([B: Budget, C: LeaseClock + 'static] SharedFairLimiter<B, C>, |it| stats = it.stats());
