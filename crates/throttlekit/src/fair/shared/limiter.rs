//! The public shared fair limiter: one participant in a shared budget.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::fair::Weight;
use throttlekit_core::fair::branch::{BranchDecision, BranchRequest, Credit};
use throttlekit_core::rate::Limit;
use throttlekit_core::{Decision, Retry, Timestamp};
use tokio::sync::Notify;

use super::SharedFairLimiterBuilder;
use super::branch_state::BranchState;
use super::source::Source;
use crate::call::Part;
use crate::clock::{BootClock, LeaseClock};
use crate::fair::FairReceipt;
use crate::fair::limiter::WeightOf;
use crate::fair::receipt::{Charged, Portion};
use crate::hash::{KeyHash, SecretHash};
use crate::shared::{Fallback, Tallies, Tally};
use crate::store::{Background, RegionGrant, Store, StoreError};
use crate::sync::Mutex;
use crate::{Answer, Budget, BuildError, Call};

/// Maximum number of times that a request waits for units. Then it is denied with a retry time.
const ROUNDS_MAX: usize = 64;

/// [`FairLimiter`](crate::FairLimiter) for a fleet: one participant, a process or a region, in one shared budget per
/// window. Its tenants share its available units by weight.
///
/// ```
/// use std::sync::Arc;
/// use throttlekit::{Budget, SharedFairLimiter, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // In production a RedisStore or a PostgresStore, which each region reaches from its own processes.
/// let store = Arc::new(MemoryStore::new());
/// let here = |region| {
///     SharedFairLimiter::builder(store.clone(), "tokens", Budget::per_minute(30_000))
///         .region(region)
///         .weights(|tenant| if tenant.starts_with(b"pro:") { 4 } else { 1 })
///         .build()
/// };
/// let (us, eu) = (here("us-east")?, here("eu-west")?);
///
/// assert!(us.check(("pro:ada", 1_500)).await?.decision.allowed);
/// assert!(eu.check(("free:bob", 1_500)).await?.decision.allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedFairLimiter<C: LeaseClock + 'static = BootClock> {
    pub(super) place: Arc<Place<C>>,
}

/// State that the limiter and its requests share.
pub(super) struct Place<C> {
    pub(super) source: Box<dyn Source>,
    pub(super) weight_of: WeightOf,
    pub(super) clock: C,
    pub(super) hash: SecretHash,
    pub(super) hold: Duration,
    pub(super) state: Mutex<BranchState>,
    /// Notifies when a request has completed.
    pub(super) bell: Notify,
    pub(super) stand_in: Fallback,
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

impl SharedFairLimiter {
    /// Creates a participant for tenants of equal weight. Every process that names the same policy on the same store
    /// shares the budget.
    pub fn new<S: Store>(store: S, name: &str, budget: Budget) -> Result<Self, BuildError> {
        Self::builder(store, name, budget).build()
    }

    /// Creates a builder, with all options.
    pub fn builder<S: Store>(store: S, name: &str, budget: Budget) -> SharedFairLimiterBuilder<S> {
        SharedFairLimiterBuilder::new(store, name, budget)
    }
}

impl<C: LeaseClock + 'static> SharedFairLimiter<C> {
    pub(super) fn from_place(place: Place<C>) -> Self {
        Self { place: Arc::new(place) }
    }

    /// Checks one request, and charges it if allowed. The reported limit is the tenant's own at present. A request of
    /// cost zero changes nothing, and returns the most that would pass.
    pub async fn check<'a>(&self, call: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        let call = call.into();
        self.check_tenant(self.tenant(&call), call.units()).await
    }

    /// Returns the tenant of a call. Runs the user's code, which weighs the tenant.
    pub(crate) fn tenant(&self, call: &Call<'_>) -> Tenant {
        self.place.tenant(call)
    }

    pub(crate) async fn check_tenant(&self, tenant: Tenant, cost: u64) -> Result<Answer, StoreError> {
        let (place, Tenant { name, weight }) = (&self.place, tenant);
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
    pub fn try_check<'a>(&self, call: impl Into<Call<'a>>) -> Option<Answer> {
        let call = call.into();
        self.try_check_tenant(self.tenant(&call), call.units())
    }

    pub(crate) fn try_check_tenant(&self, Tenant { name, weight }: Tenant, cost: u64) -> Option<Answer> {
        let place = &self.place;
        let turn = place.state.lock().ask(name, weight, cost, &place.clock);
        match turn {
            BranchDecision::Admit(decision) | BranchDecision::Deny(decision) => Some(place.answer(decision)),
            BranchDecision::Wait { .. } => None,
        }
    }

    /// Like [`check`](Self::check), with proof of the charge, by which it can be [settled](Self::settle) when the actual
    /// cost is known. There is none for requests admitted in an [outage](Answer::outage), which were charged to no
    /// budget.
    pub async fn charge<'a>(
        &self,
        call: impl Into<Call<'a>>,
    ) -> Result<(Answer, Option<FairReceipt>), StoreError> {
        let call = call.into();
        let (tenant, cost) = (self.tenant(&call), call.units());
        let answer = self.check_tenant(tenant, cost).await?;
        let Tenant { name, weight } = tenant;
        let receipt = || {
            let reset_at = answer.decision.reset_at;
            FairReceipt { portion: Portion { member: Charged::Tenant { name, weight }, reset_at }, cost }
        };
        let receipt = (answer.decision.allowed && answer.outage.is_none()).then(receipt);
        Ok((answer, receipt))
    }

    /// Replaces the charged cost by the actual cost. Call it on the participant that charged.
    ///
    /// Unused units are available here again while their window lasts here; they expire if another tenant took over the
    /// entry. Of the excess, as much is charged as the tenant can have: a participant cannot charge units that it was
    /// not granted.
    pub async fn settle(&self, receipt: FairReceipt, actual: u64) -> Result<(), StoreError> {
        let FairReceipt { portion: Portion { member, reset_at }, cost } = receipt;
        let Charged::Tenant { name, weight } = member else { return Ok(()) };
        if actual < cost {
            self.place.refund(name, cost - actual, reset_at);
        } else if actual > cost {
            let tenant = Tenant { name, weight };
            let most = self.check_tenant(tenant, 0).await?.decision.remaining;
            self.check_tenant(tenant, most.min(actual - cost)).await?;
        }
        Ok(())
    }

    /// Returns what a tenant has left, without spending: `allowed` reports whether one unit would pass.
    pub async fn peek<'a>(&self, call: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        let mut answer = self.check(call.into().cost(0)).await?;
        let decision = &mut answer.decision;
        if answer.outage.is_none() && decision.allowed && decision.remaining == 0 {
            decision.allowed = false;
            decision.retry_after = Retry::after(decision.reset_at.since(answer.now));
        }
        Ok(answer)
    }

    /// Returns unused units of a tenant to the window that ends at `reset_at`. Once per charge, and only for decisions
    /// of the budget itself.
    pub(crate) fn refund(&self, tenant: &[u8], units: u64, reset_at: Timestamp) {
        self.place.refund(self.place.hash.fingerprint(tenant), units, reset_at);
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

    /// Returns the budget that all participants share.
    pub(crate) fn budget(&self) -> &Limit {
        self.place.source.limit()
    }

    /// Returns the approximate current time of the store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.place.theirs()
    }

    /// Returns the background of its source of units.
    pub(crate) fn background(&self) -> Background {
        self.place.background.clone()
    }
}

/// A tenant as the state identifies it.
#[derive(Clone, Copy)]
pub(crate) struct Tenant {
    /// Fingerprint of its key.
    name: u64,
    weight: Weight,
}

/// The next step after a check of the state.
enum Round {
    Answer(Decision),
    Outage(StoreError),
    Again,
}

impl<C: LeaseClock + 'static> Place<C> {
    /// Returns the tenant of a call. Runs the user's code: no lock may be held meanwhile.
    fn tenant(&self, call: &Call<'_>) -> Tenant {
        let weight = call.of_weight().unwrap_or_else(|| (self.weight_of)(call.key()));
        Tenant { name: self.hash.fingerprint(call.key()), weight }
    }

    fn refund(&self, name: u64, units: u64, reset_at: Timestamp) {
        let mut state = self.state.lock();
        state.refund(name, units, reset_at, self.clock.now());
    }

    /// Checks the state once, and waits if needed.
    async fn round(self: &Arc<Self>, name: u64, weight: Weight, cost: u64) -> Round {
        let mut bell = pin!(self.bell.notified());
        let (needs, awaited, request) = {
            let mut state = self.state.lock();
            let needs = match state.ask(name, weight, cost, &self.clock) {
                BranchDecision::Admit(decision) | BranchDecision::Deny(decision) => {
                    return Round::Answer(decision);
                }
                BranchDecision::Wait { needs } => needs,
            };
            bell.as_mut().enable();
            let Some((awaited, request)) = state.wait(needs, self.clock.now()) else {
                return Round::Outage(StoreError::unavailable("too many requests wait for a fetch"));
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

    fn fetch(self: &Arc<Self>, BranchRequest { id, weight, wants }: BranchRequest) {
        self.counters.requests.fetch_add(1, Relaxed);
        let (asks, lands) = (self.clone(), self.clone());
        let request = async move { asks.source.more(weight, wants).await };
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
        let guarantee = self.source.guarantee();
        self.tallies.count(guarantee);
        Answer::new(decision, guarantee, self.theirs())
    }

    /// Decides a request by the fallback, as [`OnOutage`](crate::OnOutage) sets it, for all tenants alike.
    fn without_budget(&self, cost: u64, error: StoreError) -> Result<Answer, StoreError> {
        if !error.is_outage() {
            self.tallies.errors.fetch_add(1, Relaxed);
            return Err(error);
        }
        let now = self.theirs();
        let everyone = Part { key: b"", cost };
        let (verdict, guarantee) = self.stand_in.answer(&[everyone], &[*self.source.limit()], now);
        self.tallies.count(guarantee);
        Ok(Answer { outage: Some(error), ..Answer::new(verdict.decision, guarantee, now) })
    }

    fn come_back(&self) -> Decision {
        let retry_after = Retry::after(self.hold);
        let limit = self.source.limit().units();
        Decision { allowed: false, limit, remaining: 0, reset_at: self.theirs(), retry_after }
    }

    fn theirs(&self) -> Timestamp {
        self.state.lock().theirs(self.clock.now())
    }
}

/// A caller that waits for a notification, until it is dropped.
struct Waiting<'a, C: LeaseClock + 'static> {
    place: &'a Place<C>,
    needs: u64,
}

impl<C: LeaseClock + 'static> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        self.place.state.lock().stop_waiting(self.needs);
    }
}

// A clone is the same participant.
clone_fields!([C: LeaseClock + 'static] SharedFairLimiter<C>, place);

debug_fields!([C: LeaseClock + 'static] SharedFairLimiter<C>, |it| stats = it.stats());
