//! The store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use throttlekit::Guarantee;
use throttlekit::clock::{Clock, ManualClock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{Background, Settlement, Snapshot, Store, StoreError};
use throttlekit::store::{
    Charge, Charges, Countable, Debit, Debited, LeaseRequest, LeaseReturn, Leased, Lendable, LocalShares,
    Outcome, StoreClientStats,
};
use throttlekit_core::rate::shared::{Correction, ScriptEncoding};

use crate::builder::RedisStoreBuilder;
use crate::debits;
use crate::exposure::{Exposure, FailoverRecords};
use crate::failover::Failover;
use crate::fence::Fences;
use crate::hash_slot::slot_of;
use crate::lineage::{Lineage, Since};
use crate::route::{Route, RouteStats};
use crate::script::{ScriptText, Scripts};
use crate::server_check::Warning;
use crate::wire::{self, Call, Preamble};

/// Maximum number of requests per script call: at most some 2 ms of the server's time.
const FLIGHT_MAX: usize = 128;

/// A [`Store`] on Redis or Valkey. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) route: Arc<Route>,
    pub(crate) scripts: Arc<Scripts>,
    grace: Duration,
    clock: Option<ManualClock>,
    pub(crate) fences: Option<Arc<Fences>>,
    pub(crate) books: Option<Arc<FailoverRecords>>,
    lineage: Arc<Lineage>,
    local_shares: LocalShares,
}

impl RedisStore {
    /// Connects to one server with the defaults; see [`RedisStoreBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Creates a builder for one server, at an address such as `redis://user:secret@host:6379` or `rediss://…`.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::single(url.into())
    }

    /// Creates a builder for a cluster, from the addresses of some of its nodes.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        RedisStoreBuilder::cluster(urls.into_iter().map(Into::into).collect())
    }

    /// Creates a builder for the primary that these Sentinels report for a service.
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        service: impl Into<String>,
    ) -> RedisStoreBuilder {
        RedisStoreBuilder::sentinel(urls.into_iter().map(Into::into).collect(), service.into())
    }

    pub(crate) fn new(
        route: Arc<Route>,
        grace: Duration,
        clock: Option<ManualClock>,
        failover: Failover,
        books: Option<Arc<FailoverRecords>>,
    ) -> Self {
        let by_slot = route.splits_by_slot();
        let fences = failover.isolation().map(|isolation| Arc::new(Fences::new(isolation, by_slot)));
        let (scripts, lineage) = (Arc::new(Scripts::new()), Arc::default());
        let local_shares = LocalShares::default();
        Self { route, scripts, grace, clock, fences, books, lineage, local_shares }
    }

    /// Returns the same store deciding at the time of this clock. For tests.
    pub fn at(&self, clock: ManualClock) -> Self {
        Self { clock: Some(clock), lineage: Arc::default(), ..self.clone() }
    }

    /// Returns whether its servers are a cluster.
    pub fn is_cluster(&self) -> bool {
        self.route.splits_by_slot()
    }

    /// Returns warnings about the servers in use.
    pub fn warnings(&self) -> Vec<Warning> {
        self.route.warnings()
    }

    /// Returns the units charged by this process that failovers may lose and have lost. All zero without sampling: see
    /// [`Failover::Async`].
    pub fn exposure(&self) -> Exposure {
        self.books.as_ref().map(|books| books.exposure()).unwrap_or_default()
    }

    /// Returns the combined call statistics of all nodes.
    pub fn line_stats(&self) -> StoreClientStats {
        self.route.stats().0
    }

    /// Returns the routing statistics.
    pub fn route_stats(&self) -> RouteStats {
        self.route.stats().1
    }

    /// Creates a call of a script that needs no fence.
    pub(crate) fn call<'a>(&self, script: &'a ScriptText) -> Call<'a> {
        let now = self.clock.as_ref().map(Clock::now);
        let head = Preamble { now, grace_ms: u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX) };
        Call { script, head, fence: None }
    }

    /// Creates a call of the script that charges at this slot: the fenced one under [`Failover::Fence`].
    pub(crate) fn fenced_call<'a>(
        &self,
        slot: u16,
        script: &'a ScriptText,
        fenced: &'a ScriptText,
    ) -> Call<'a> {
        match &self.fences {
            None => self.call(script),
            Some(fences) => Call { fence: Some(fences.at(slot)), ..self.call(fenced) },
        }
    }

    /// Returns the slot of a key; the same for all keys unless the server is a cluster.
    pub(crate) fn slot(&self, key: &str) -> u16 {
        if self.route.splits_by_slot() { slot_of(key) } else { 0 }
    }

    /// Splits items into batches for one call each: of one slot in a cluster, and bounded in size.
    pub(crate) fn flights<'a, T>(
        &self,
        items: &'a [T],
        key: impl Fn(&'a T) -> &'a str,
    ) -> Vec<Flight<'a, T>> {
        let mut placed: Vec<(u16, usize, &T)> =
            items.iter().enumerate().map(|(place, item)| (self.slot(key(item)), place, item)).collect();
        placed.sort_by_key(|(slot, place, _)| (*slot, *place));
        let parts = placed.chunk_by(|a, b| a.0 == b.0).flat_map(|of_slot| of_slot.chunks(FLIGHT_MAX));
        let flight = |part: &[(u16, usize, &'a T)]| Flight {
            slot: part[0].0,
            places: part.iter().map(|(_, place, _)| *place).collect(),
            items: part.iter().map(|(.., item)| *item).collect(),
        };
        parts.map(flight).collect()
    }

    async fn admit_at(
        &self,
        slot: u16,
        asks: &[&Charges<'_>],
    ) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
        let call = self.fenced_call(slot, &self.scripts.admit, &self.scripts.fenced_admit);
        let units = asks.iter().copied().map(units_of).sum();
        let reply = self.route.admit(slot, units, call.head, |by| wire::admit(call, by, asks)).await?;
        let outcomes = wire::outcomes(asks, &reply.value)?;
        if let Some(outcome) = outcomes.iter().flatten().next() {
            let charges = asks.iter().flat_map(|ask| ask.charges);
            self.answered(outcome.now, charges.map(|charge| charge.form), reply.since);
        }
        let charged = |(place, outcome): (usize, &Outcome)| {
            if outcome.verdict.decision.allowed { units_of(asks[place]) } else { 0 }
        };
        Ok(reply.spend_each(outcomes, charged))
    }

    /// Records a response, its limits and the completeness of the state behind it, which determine the guarantee.
    pub(crate) fn answered<'f>(
        &self,
        now: Timestamp,
        limits: impl Iterator<Item = &'f ScriptEncoding>,
        since: Since,
    ) {
        self.answered_for(now, limits.map(ScriptEncoding::counts_for_micros).max().unwrap_or(0), since);
    }

    /// The same for a response about charges that count for `remembers` µs.
    pub(crate) fn answered_for(&self, now: Timestamp, remembers: u64, since: Since) {
        self.lineage.answered(now, remembers, since);
        if let Some(books) = &self.books {
            books.answered_for(now, remembers);
        }
    }

    async fn debit_flight(
        &self,
        flight: &Flight<'_, Debit<'_>>,
    ) -> Result<Vec<Result<Debited, StoreError>>, StoreError> {
        let debits = &flight.items;
        let call = self.fenced_call(flight.slot, &self.scripts.debit, &self.scripts.fenced_debit);
        let most = debits.iter().map(|debit| debit.cost()).sum();
        let reply = self.route.charge(flight.slot, most, |by| debits::debit(call, by, debits)).await?;
        let debited = debits::debited(debits, &reply.value)?;
        if let Some(first) = debited.iter().flatten().next() {
            self.answered(first.outcome.now, debits.iter().map(|debit| debit.charge.form), reply.since);
        }
        // A repeated debit is granted by this response, so what was charged at its first arrival counts here too.
        let granted = |(place, debited): (usize, &Debited)| {
            if debited.outcome.verdict.decision.allowed { debits[place].cost() } else { 0 }
        };
        Ok(reply.spend_each(debited, granted))
    }

    async fn peek_flight(&self, flight: &Flight<'_, Charge<'_>>) -> Result<Snapshot, StoreError> {
        let call = self.call(&self.scripts.peek);
        let answer = self.route.call(flight.slot, |by| wire::peek(call, by, &flight.items)).await?;
        wire::sight(&flight.items, &answer)
    }

    async fn settle_flight(&self, flight: &Flight<'_, Settlement<'_>>) -> Result<(), StoreError> {
        let call = self.call(&self.scripts.settle);
        let now = call.about_now();
        let corrected =
            flight.items.iter().map(|s| (*s, s.form.correction(s.mark, s.charged, s.actual, now)));
        let all: Vec<_> = corrected.filter(|(_, correction)| *correction != Correction::Nothing).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.route.track(flight.slot, |by| wire::settle(call, by, &all)).await?;
        Ok(())
    }

    async fn lease_flight(
        &self,
        flight: &Flight<'_, LeaseRequest<'_>>,
    ) -> Result<Vec<Result<Leased, StoreError>>, StoreError> {
        let asks = &flight.items;
        let call = self.fenced_call(flight.slot, &self.scripts.lease, &self.scripts.fenced_lease);
        let most = asks.iter().map(|ask| ask.form.clamped(ask.want).wants).sum();
        let reply = self.route.charge(flight.slot, most, |by| wire::lease(call, by, asks)).await?;
        let lent = wire::lent(asks, &reply.value)?;
        if let Some(first) = lent.iter().flatten().next() {
            self.answered(first.now, asks.iter().map(|ask| ask.form), reply.since);
        }
        Ok(reply.spend_each(lent, |(_, lent)| lent.loan.granted))
    }
}

/// Returns the most that one key loses if this request is lost. Units beyond a limit are never charged.
fn units_of(ask: &Charges<'_>) -> u64 {
    let can_pass = |charge: &&Charge<'_>| charge.cost <= charge.form.limit().cost_max();
    ask.charges.iter().filter(can_pass).map(|charge| charge.cost).max().unwrap_or(0)
}

/// The items of one call, and their indexes in the whole.
pub(crate) struct Flight<'a, T> {
    pub(crate) slot: u16,
    places: Vec<usize>,
    pub(crate) items: Vec<&'a T>,
}

/// Returns the response to each item in order; a failed batch fails all of its items.
pub(crate) fn each_in_order<T, A: Clone>(
    flights: &[Flight<'_, T>],
    answers: Vec<Result<Vec<Result<A, StoreError>>, StoreError>>,
) -> Vec<Result<A, StoreError>> {
    let mut placed = Vec::new();
    for (flight, answer) in flights.iter().zip(answers) {
        let each = answer.unwrap_or_else(|error| vec![Err(error); flight.places.len()]);
        placed.extend(flight.places.iter().copied().zip(each));
    }
    in_order(placed)
}

/// Sorts items by their index.
fn in_order<T>(mut placed: Vec<(usize, T)>) -> Vec<T> {
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, item)| item).collect()
}

impl Store for RedisStore {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        if let [ask] = asks {
            return self.admit_at(self.slot(ask.charges[0].key), &[ask]).await?.into_iter().collect();
        }
        self.admit_each(asks).await.into_iter().collect()
    }

    async fn admit_each(&self, asks: &[Charges<'_>]) -> Vec<Result<Outcome, StoreError>> {
        let flights = self.flights(asks, |ask| ask.charges[0].key);
        let answers = join_all(flights.iter().map(|flight| self.admit_at(flight.slot, &flight.items))).await;
        each_in_order(&flights, answers)
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let countable = Countable::of(debits);
        let flights = self.flights(&countable.debits, |debit| debit.charge.key);
        let answers = join_all(flights.iter().map(|flight| self.debit_flight(flight))).await;
        let debited = each_in_order(&flights, answers);
        countable.answers(debited)
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        let flights = self.flights(charges, |charge| charge.key);
        let sights = join_all(flights.iter().map(|flight| self.peek_flight(flight))).await;
        let (mut now, mut placed) = (None, Vec::with_capacity(charges.len()));
        for (flight, sight) in flights.iter().zip(sights) {
            let sight = sight?;
            now = now.max(Some(sight.now));
            placed.extend(flight.places.iter().copied().zip(sight.states));
        }
        Ok(Snapshot { now: now.unwrap_or_default(), states: in_order(placed) })
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        let flights = self.flights(settlements, |settlement| settlement.key);
        let settled = join_all(flights.iter().map(|flight| self.settle_flight(flight))).await;
        settled.into_iter().collect()
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        let lendable = Lendable::of(asks);
        let flights = self.flights(&lendable.asks, |ask| ask.key);
        let answers = join_all(flights.iter().map(|flight| self.lease_flight(flight))).await;
        let lent = each_in_order(&flights, answers);
        lendable.answers(lent)
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        backs.iter().try_for_each(|given| given.authority().map(drop))?;
        let backs: Vec<_> = backs.iter().copied().filter(LeaseReturn::says_something).collect();
        let call = self.call(&self.scripts.give_back);
        let flights = self.flights(&backs, |given| given.key);
        let taken = join_all(
            flights
                .iter()
                .map(|flight| self.route.call(flight.slot, |by| wire::give_back(call, by, &flight.items))),
        );
        taken.await.into_iter().try_for_each(|answer| answer.map(drop))
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        let flights = self.flights(keys, |key| key);
        let deleted = join_all(flights.iter().map(|flight| {
            self.route.call(flight.slot, |_| {
                let mut cmd = redis::cmd("DEL");
                flight.items.iter().for_each(|key| {
                    cmd.arg(**key);
                });
                cmd
            })
        }));
        deleted.await.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Returns exact if the servers' state is complete for as long as the limits count. Else bounded: by this process's
    /// own units if they are counted ([`Failover::Async`] with `sample`), and by `u64::MAX` if the loss is unknown.
    fn guarantee(&self) -> Guarantee {
        let counted = self.books.as_ref().map_or(Guarantee::Exact, |books| books.guarantee());
        match counted {
            Guarantee::Exact if self.lineage.is_doubted() => Guarantee::Bounded(u64::MAX),
            counted => counted,
        }
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        Some(&self.local_shares)
    }

    fn background(&self) -> Background {
        self.route.background().clone()
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (line, route) = self.route.stats();
        f.debug_struct("RedisStore").field("line", &line).field("route", &route).finish_non_exhaustive()
    }
}
