//! The engine of the leased modes: a request is served from the local lease, waits for a fetch, or goes to the store.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit_core::lease::{
    Authority, HolderOptions, HolderRequest, HolderStep, Sizing, Spend, Term, UNITS_HELD_MAX,
};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::key_state::{Failed, KeySlot, KeyState};
use super::leased_key::LeasedKey;
use super::options::{Forecast, Leasing, Mode};
use super::returner::{self, Rounds};
use super::stats::{Counters, LeaseStats};
use super::table::{Place, Table};
use crate::call::Part;
use crate::clock::LeaseClock;
use crate::hash::{KeyHash, SecretHash};
use crate::rate::LimitError;
use crate::shared::strict::Strict;
use crate::store::{Background, Store, StoreError, TaskSlot};
use crate::{Answer, Guarantee, Limit};

/// Maximum number of times that a caller waits for units before it calls the store itself.
const ROUNDS_MAX: usize = 8;
/// Maximum number of callers that wait for units of one key. More call the store themselves.
const WAITING_MAX: usize = 65_536;

/// State shared by the limiter, its lease requests and its returner.
pub(in crate::shared) struct Engine<S, C> {
    pub(in crate::shared) strict: Strict<S>,
    pub(super) clock: C,
    pub(super) options: Leasing,
    /// `None` if nothing is lent.
    pub(super) authority: Option<Authority>,
    pub(super) plan: HolderOptions,
    pub(super) table: Table,
    pub(super) counters: Counters,
    pub(super) hash: SecretHash,
    /// Units beyond the limit that may pass because of leasing.
    beyond: u64,
    limit_units: u64,
    /// Requests that cost more go to the store: no local lease takes as much, the bound does not allow for it, or the
    /// store does not lend as much.
    cost_max: u64,
    request_ids: AtomicU64,
    /// Background of the lease requests and the returner.
    pub(super) background: Background,
    /// Slot of the returner's task.
    pub(super) keeps: Arc<TaskSlot>,
    /// Rounds of the returner: a limiter is closed when the units on their way back have arrived.
    pub(super) rounds: Rounds,
}

impl<S: Store, C: LeaseClock + 'static> Engine<S, C> {
    /// Creates the engine of a limiter with one limit. Fails if units of that limit cannot be lent. Sliding windows,
    /// logs and shapers cannot; their denials can be remembered.
    pub(in crate::shared) fn new(strict: Strict<S>, clock: C, options: Leasing) -> Result<Self, LimitError> {
        let limit = strict.limits()[0];
        let authority = if options.leases() { Some(lender(&strict, limit, &clock, &options)?) } else { None };
        let term = authority.map_or(Term::Carry, |authority| authority.term());
        let nodes = options.carry.unwrap_or(u64::MAX);
        let held_max = if term == Term::Carry { options.lease_max } else { UNITS_HELD_MAX };
        let cost_max = held_max.min(strict.store().capabilities().leased_cost_max(&limit));
        Ok(Self {
            plan: options.plan(term, clock.behind_max()),
            table: Table::new(options.keys_max),
            counters: Counters::default(),
            hash: SecretHash::random(),
            beyond: authority.map_or(0, |authority| authority.beyond(nodes, options.lease_max)),
            limit_units: limit.units(),
            cost_max,
            request_ids: AtomicU64::new(0),
            background: strict.store().background(),
            keeps: Arc::default(),
            rounds: Rounds::default(),
            strict,
            clock,
            options,
            authority,
        })
    }

    /// Checks a request with what this node holds or remembers. Returns `None` if that does not suffice. Never waits.
    #[inline]
    pub(in crate::shared) fn try_check(self: &Arc<Self>, call: Part<'_>) -> Option<Decision> {
        let place = self.table.find(self.hash.fingerprint(call.key))?;
        if let Some(decision) = self.spend(&place, call) {
            return Some(decision);
        }
        let state = place.slot.state.try_lock()?;
        state.holder.denied(call.cost, self.clock.now()).filter(|_| place.is_mine())
    }

    /// Checks one request, and charges it if allowed. Waits only if the store must be called.
    pub(in crate::shared) async fn check(self: &Arc<Self>, call: Part<'_>) -> Result<Answer, StoreError> {
        if call.cost == 0 || call.cost > self.cost_max {
            return self.ask_store(call).await;
        }
        let fingerprint = self.hash.fingerprint(call.key);
        if let Some(place) = self.table.find(fingerprint)
            && let Some(decision) = self.spend(&place, call)
        {
            return Ok(self.local(decision));
        }
        self.check_slowly(fingerprint, call).await
    }

    /// Takes back units that this node admitted, of the window that ends at `reset_at`.
    pub(in crate::shared) fn refund(&self, key: &[u8], units: u64, reset_at: Timestamp) {
        let Some(place) = self.table.find(self.hash.fingerprint(key)) else { return };
        let mut state = place.slot.state.lock();
        if place.is_mine() {
            state.refund(place.slot, units, reset_at, self.clock.now());
        }
    }

    /// Returns whether refunds count: if units are lent by windows, and if nothing is lent.
    pub(in crate::shared) fn takes_back(&self) -> bool {
        self.authority.is_none_or(|authority| authority.term() == Term::Window)
    }

    /// Gives back all units that this node holds.
    pub(in crate::shared) async fn close(&self) -> Result<(), StoreError> {
        let given_back = returner::give_back(self, |slot, state, now| state.hand_in(slot, now)).await;
        // Those of idle keys may still be on their way.
        self.rounds.ended(&self.background).await;
        given_back
    }

    /// Returns a handle to one key. Returns `None` if no slot is free or nothing is lent.
    pub(in crate::shared) fn leased_key(self: &Arc<Self>, key: &[u8]) -> Option<LeasedKey<S, C>> {
        self.authority?;
        LeasedKey::new(self, self.hash.fingerprint(key), key)
    }

    /// Returns the statistics.
    pub(in crate::shared) fn stats(&self) -> LeaseStats {
        self.counters.read()
    }

    /// Spends from the key's local lease, if it has enough. Most requests take no other step.
    #[inline]
    pub(super) fn spend(self: &Arc<Self>, place: &Place<'_>, call: Part<'_>) -> Option<Decision> {
        // Read before the units are taken, so that they are never of an earlier window than it names.
        let reset_at = place.slot.reset_at();
        let spend = place.slot.local_lease.spend_if(|| place.is_mine(), call.cost, || self.clock.now());
        let Spend::Spent { left } = spend else { return None };
        if left < place.slot.low.load(Relaxed) {
            self.refill(place, call.key);
        }
        Some(self.allowed(reset_at, left))
    }

    #[inline]
    pub(super) fn allowed(&self, reset_at: Timestamp, left: u64) -> Decision {
        Decision {
            allowed: true,
            limit: self.limit_units,
            remaining: left,
            reset_at,
            retry_after: Retry::Now,
        }
    }

    /// Creates an answer of the node itself.
    pub(super) fn local(&self, decision: Decision) -> Answer {
        let guarantee = self.worth(self.strict.store().guarantee());
        self.strict.named(Answer::new(decision, guarantee, self.strict.now()))
    }

    /// Returns the guarantee of the store's decision beside what is lent.
    pub(in crate::shared) fn worth(&self, store: Guarantee) -> Guarantee {
        match (store, self.beyond) {
            (store, 0) => store,
            (Guarantee::Exact, beyond) => Guarantee::Bounded(beyond),
            (Guarantee::Bounded(more), beyond) => Guarantee::Bounded(more.saturating_add(beyond)),
            (store, _) => store,
        }
    }

    async fn ask_store(&self, call: Part<'_>) -> Result<Answer, StoreError> {
        self.counters.strict.fetch_add(1, Relaxed);
        let answer = self.strict.check(&[call]).await?;
        Ok(Answer { guarantee: self.worth(answer.guarantee), ..answer })
    }

    fn place(&self, fingerprint: u64) -> Option<Place<'_>> {
        self.table.find_or_give(fingerprint, self.clock.now(), || self.new_slot())
    }

    pub(super) fn new_slot(&self) -> KeySlot {
        let period = self.options.period(self.strict.form(0).limit());
        KeySlot::new(
            self.plan,
            Sizing::new(self.options.batch.clone(), period),
            self.options.refill_at_percent,
        )
    }

    /// Returns the key's slot, which stays its own while `pins` counts the handles that rely on that.
    pub(super) fn pin(&self, fingerprint: u64) -> Option<Arc<KeySlot>> {
        let place = self.place(fingerprint)?;
        let mut state = place.slot.state.lock();
        if !place.is_mine() {
            return None;
        }
        state.pins += 1;
        Some(place.slot.clone())
    }

    /// Checks a request that the local lease cannot serve: it waits for units, is denied, or goes to the store.
    async fn check_slowly(self: &Arc<Self>, fingerprint: u64, call: Part<'_>) -> Result<Answer, StoreError> {
        for _ in 0..ROUNDS_MAX {
            let Some(place) = self.place(fingerprint) else { break };
            match self.round(&place, call).await {
                Round::Answer(decision) => return Ok(self.local(decision)),
                Round::Strict => return self.ask_store_and_remember(&place, call).await,
                Round::Outage(error) => return self.strict.without_store(&[call], error),
                Round::Again => {}
            }
        }
        self.ask_store(call).await
    }

    /// Checks the state once, and waits as that requires.
    async fn round(self: &Arc<Self>, place: &Place<'_>, call: Part<'_>) -> Round {
        let slot = place.slot;
        let mut bell = pin!(slot.bell.notified());
        let (awaited, fetch) = {
            let mut state = slot.state.lock();
            if !place.is_mine() {
                return Round::Again;
            }
            let now = self.clock.now();
            state.greet(now);
            self.expect(&mut state.sizing, call.key, now);
            if self.is_cold(&mut state.sizing, now) {
                return state.holder.denied(call.cost, now).map_or(Round::Strict, Round::Answer);
            }
            match state.ask(slot, call.cost, &self.clock) {
                HolderStep::Spent { left } => return Round::Answer(self.allowed(slot.reset_at(), left)),
                HolderStep::Deny(decision) => return Round::Answer(decision),
                HolderStep::Wait => {}
            }
            if state.waiting >= WAITING_MAX {
                return Round::Strict;
            }
            state.waiting += 1;
            bell.as_mut().enable();
            let fetch = self.to_fetch(place, &mut state, call.key, now);
            (state.holder.asking(), fetch)
        };
        let _waiting = Waiting(slot);
        self.fetch(place, fetch);
        match self.background.wait(1, bell).await {
            Ok(()) => match &slot.state.lock().failed {
                Some((id, Failed::Outage(error))) if Some(*id) == awaited => Round::Outage(error.clone()),
                Some((id, Failed::Lapsed)) if Some(*id) == awaited => Round::Strict,
                _ => Round::Again,
            },
            Err(late) => self.give_up(place, awaited, late),
        }
    }

    /// Abandons a lease request that neither succeeded nor failed in time: nothing drives it. It counts as failed, so
    /// that the next caller sends another; units that it may still bring lapse.
    #[cold]
    fn give_up(&self, place: &Place<'_>, awaited: Option<u64>, late: StoreError) -> Round {
        let mut state = place.slot.state.lock();
        if !place.is_mine() || awaited.is_none() || state.holder.asking() != awaited {
            return Round::Again;
        }
        self.counters.failures.fetch_add(1, Relaxed);
        awaited.into_iter().for_each(|id| state.failed(id, late.clone()));
        drop(state);
        place.slot.bell.notify_waiters();
        Round::Outage(late)
    }

    fn expect(&self, sizing: &mut Sizing, key: &[u8], now: Timestamp) {
        if let Some(Forecast(forecast)) = &self.options.forecast {
            sizing.expect(now, || forecast(key));
        }
    }

    /// Returns whether a batch would save nothing for this key now.
    fn is_cold(&self, sizing: &mut Sizing, now: Timestamp) -> bool {
        match self.options.mode {
            Mode::CachedDenials => true,
            Mode::Leased => false,
            Mode::Auto => !sizing.is_worth_it(now),
        }
    }

    /// Checks one request with the store, and remembers what follows from the answer.
    async fn ask_store_and_remember(&self, place: &Place<'_>, call: Part<'_>) -> Result<Answer, StoreError> {
        let sent = self.clock.now();
        let answer = self.ask_store(call).await?;
        let mut state = place.slot.state.lock();
        if place.is_mine() && answer.outage.is_none() {
            if answer.decision.allowed {
                state.sizing.served(call.cost, self.clock.now());
            } else {
                state.holder.handle_denial(call.cost, answer.decision, sent);
            }
        }
        Ok(answer)
    }

    /// Fetches units ahead of need, unless the state is locked.
    #[cold]
    fn refill(self: &Arc<Self>, place: &Place<'_>, key: &[u8]) {
        let Some(mut state) = place.slot.state.try_lock() else { return };
        if !place.is_mine() {
            return;
        }
        let now = self.clock.now();
        place.slot.low.store(0, Relaxed);
        state.holder.handle_low(now);
        let fetch = self.to_fetch(place, &mut state, key, now);
        drop(state);
        self.fetch(place, fetch);
    }

    /// The same for a key that is pinned.
    #[cold]
    pub(super) fn refill_held(self: &Arc<Self>, fingerprint: u64, key: &[u8]) {
        if let Some(place) = self.table.find(fingerprint) {
            self.refill(&place, key);
        }
    }

    /// Returns the lease request that the state wants sent, and its key.
    fn to_fetch(
        &self,
        place: &Place<'_>,
        state: &mut KeyState,
        key: &[u8],
        now: Timestamp,
    ) -> Option<(Arc<str>, HolderRequest)> {
        let id = self.request_ids.fetch_add(1, Relaxed);
        self.expect(&mut state.sizing, key, now);
        let batch = state.sizing.batch(now);
        let request = state.holder.poll_request(&place.slot.local_lease, id, batch, now)?;
        Some((state.key.get_or_insert_with(|| self.strict.key(key).into()).clone(), request))
    }

    fn fetch(self: &Arc<Self>, place: &Place<'_>, fetch: Option<(Arc<str>, HolderRequest)>) {
        if let Some((key, request)) = fetch {
            returner::ensure(self);
            self.send(place, key, request);
        }
    }
}

/// Returns the lender of the limit's units, or the reason why there is none.
fn lender<S: Store>(
    strict: &Strict<S>,
    limit: Limit,
    clock: &impl LeaseClock,
    options: &Leasing,
) -> Result<Authority, LimitError> {
    let term = options.term(&limit);
    let authority = Authority::new(limit, term)?;
    if !strict.form(0).counts_units() {
        return Err(LimitError::NotLeasable);
    }
    let lives = if let Term::Rolling(hold) = term { hold } else { limit.period() };
    let margin = options.plan(term, clock.behind_max()).margin;
    if margin.deadline(Timestamp::EPOCH, lives) == Timestamp::EPOCH {
        return Err(LimitError::LeaseTooShort(lives));
    }
    Ok(authority)
}

/// The next step after a look at the state.
enum Round {
    Answer(Decision),
    Strict,
    Outage(StoreError),
    Again,
}

/// A caller that waits for the notification, until dropped.
struct Waiting<'a>(&'a KeySlot);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}
