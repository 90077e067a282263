//! The store itself.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use throttlekit::store::{Background, Settlement, Sight, Store, StoreError};
use throttlekit::store::{
    Charge, Charges, Countable, Debit, Debited, GiveBack, LeaseAsk, Lendable, Lent, LineStats, LocalShares,
    Outcome,
};
use throttlekit::{Clock, Guarantee, ManualClock, Timestamp};
use throttlekit_core::rate::shared::{Correction, SharedForm};

use crate::builder::Builder;
use crate::debits;
use crate::exposure::memory_of;
use crate::exposure::{Exposure, FailoverRecords};
use crate::failover::Failover;
use crate::fence::Fences;
use crate::hash_slot::slot_of;
use crate::lineage::{Lineage, Since};
use crate::route::{Route, RouteStats};
use crate::script::Scripts;
use crate::server_check::Warning;
use crate::wire::{self, Preamble};

/// How many asks one script call answers: some 2 ms of the server's time at the most.
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
    /// One server, at an address such as `redis://user:secret@host:6379` or `rediss://…`.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::single(url.into())
    }

    /// A cluster, by the addresses of some of its nodes.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Builder {
        Builder::cluster(urls.into_iter().map(Into::into).collect())
    }

    /// The primary that these Sentinels name for a service.
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        service: impl Into<String>,
    ) -> Builder {
        Builder::sentinel(urls.into_iter().map(Into::into).collect(), service.into())
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

    /// The same store deciding at the time of this clock. For tests.
    pub fn at(&self, clock: ManualClock) -> Self {
        Self { clock: Some(clock), lineage: Arc::default(), ..self.clone() }
    }

    /// What an operator should know about the servers that are asked now.
    pub fn warnings(&self) -> Vec<Warning> {
        self.route.warnings()
    }

    /// What failovers may lose and have lost of what this process charged. All zero, unless it is sampled: see
    /// [`Failover::Async`].
    pub fn exposure(&self) -> Exposure {
        self.books.as_ref().map(|books| books.exposure()).unwrap_or_default()
    }

    /// What the lines to all nodes have seen, together.
    pub fn line_stats(&self) -> LineStats {
        self.route.stats().0
    }

    /// What happened on the way to the nodes.
    pub fn route_stats(&self) -> RouteStats {
        self.route.stats().1
    }

    pub(crate) fn preamble(&self) -> Preamble {
        let now = self.clock.as_ref().map(Clock::now);
        Preamble { now, grace_ms: u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Where a key lives; all in one place, unless the server is a cluster.
    pub(crate) fn slot(&self, key: &str) -> u16 {
        if self.route.splits_by_slot() { slot_of(key) } else { 0 }
    }

    /// Parts that one call can take: those of one slot in a cluster, and never too many.
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
        let (scripts, head) = (&self.scripts, self.preamble());
        let cmd = |by| match &self.fences {
            None => wire::admit(&scripts.admit, by, head, asks, None),
            Some(fences) => wire::admit(&scripts.fenced_admit, by, head, asks, Some(&fences.at(slot))),
        };
        let units = asks.iter().copied().map(units_of).sum();
        let reply = self.route.charge(slot, units, cmd).await?;
        let outcomes = wire::outcomes(asks, &reply.value)?;
        if let Some(outcome) = outcomes.iter().flatten().next() {
            let charges = asks.iter().flat_map(|ask| ask.charges);
            self.answered(outcome.now, charges.map(|charge| charge.form), reply.since);
        }
        let each = asks.iter().zip(&outcomes);
        let charged = each.filter(|(_, outcome)| is_admitted(outcome)).map(|(ask, _)| units_of(ask)).sum();
        match reply.spend(charged) {
            None => Ok(outcomes),
            Some(why) => {
                Ok(outcomes.into_iter().map(|o| if is_admitted(&o) { Err(why.clone()) } else { o }).collect())
            }
        }
    }

    /// Takes note of an answer, of the limits it was about, and of the memory behind it: for what answers are worth.
    pub(crate) fn answered<'f>(
        &self,
        now: Timestamp,
        limits: impl Iterator<Item = &'f SharedForm>,
        since: Since,
    ) {
        self.answered_for(now, limits.map(memory_of).max().unwrap_or(0), since);
    }

    /// The same for an answer about what counts for so long, in µs.
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
        let (scripts, head, debits) = (&self.scripts, self.preamble(), &flight.items);
        let cmd = |by| match &self.fences {
            None => debits::debit(&scripts.debit, by, head, debits, None),
            Some(fences) => {
                debits::debit(&scripts.fenced_debit, by, head, debits, Some(&fences.at(flight.slot)))
            }
        };
        let most = debits.iter().map(|debit| debit.cost()).sum();
        let reply = self.route.charge(flight.slot, most, cmd).await?;
        let debited = debits::debited(debits, &reply.value)?;
        if let Some(first) = debited.iter().flatten().next() {
            self.answered(first.outcome.now, debits.iter().map(|debit| debit.charge.form), reply.since);
        }
        // What was charged when it first came is granted by this answer, so it counts here too.
        let granted = |debited: &Result<Debited, StoreError>| {
            debited.as_ref().is_ok_and(|debited| debited.outcome.verdict.decision.allowed)
        };
        let each = debits.iter().zip(&debited).filter(|(_, debited)| granted(debited));
        match reply.spend(each.map(|(debit, _)| debit.cost()).sum()) {
            None => Ok(debited),
            Some(why) => {
                Ok(debited.into_iter().map(|d| if granted(&d) { Err(why.clone()) } else { d }).collect())
            }
        }
    }

    async fn peek_flight(&self, flight: &Flight<'_, Charge<'_>>) -> Result<Sight, StoreError> {
        let (script, head) = (&self.scripts.peek, self.preamble());
        let cmd = |by| wire::peek(script, by, head, &flight.items);
        let answer = self.route.call(flight.slot, cmd).await?;
        wire::sight(&flight.items, &answer)
    }

    async fn settle_flight(&self, flight: &Flight<'_, Settlement<'_>>) -> Result<(), StoreError> {
        let corrected = flight.items.iter().map(|s| (*s, s.form.correction(s.mark, s.charged, s.actual)));
        let all: Vec<_> = corrected.filter(|(_, correction)| *correction != Correction::Nothing).collect();
        if all.is_empty() {
            return Ok(());
        }
        let (script, head) = (&self.scripts.settle, self.preamble());
        self.route.track(flight.slot, |by| wire::settle(script, by, head, &all)).await?;
        Ok(())
    }

    async fn lease_flight(
        &self,
        flight: &Flight<'_, LeaseAsk<'_>>,
    ) -> Result<Vec<Result<Lent, StoreError>>, StoreError> {
        let (scripts, head, asks) = (&self.scripts, self.preamble(), &flight.items);
        let cmd = |by| match &self.fences {
            None => wire::lease(&scripts.lease, by, head, asks, None),
            Some(fences) => wire::lease(&scripts.fenced_lease, by, head, asks, Some(&fences.at(flight.slot))),
        };
        let most = asks.iter().map(|ask| ask.form.clamped(ask.want).wants).sum();
        let reply = self.route.charge(flight.slot, most, cmd).await?;
        let lent = wire::lent(asks, &reply.value)?;
        if let Some(first) = lent.iter().flatten().next() {
            self.answered(first.now, asks.iter().map(|ask| ask.form), reply.since);
        }
        let granted = |lent: &Result<Lent, StoreError>| lent.as_ref().map_or(0, |lent| lent.loan.granted);
        match reply.spend(lent.iter().map(granted).sum()) {
            None => Ok(lent),
            Some(why) => {
                Ok(lent.into_iter().map(|l| if granted(&l) > 0 { Err(why.clone()) } else { l }).collect())
            }
        }
    }
}

/// The most that one key loses if this ask is lost. What is beyond a limit is never charged.
fn units_of(ask: &Charges<'_>) -> u64 {
    let can_pass = |charge: &&Charge<'_>| charge.cost <= charge.form.limit().cost_max();
    ask.charges.iter().filter(can_pass).map(|charge| charge.cost).max().unwrap_or(0)
}

fn is_admitted(outcome: &Result<Outcome, StoreError>) -> bool {
    outcome.as_ref().is_ok_and(|outcome| outcome.verdict.decision.allowed)
}

/// What goes in one call, and where in the whole each item stands.
pub(crate) struct Flight<'a, T> {
    pub(crate) slot: u16,
    places: Vec<usize>,
    pub(crate) items: Vec<&'a T>,
}

/// The answer to each item, where a flight without an answer has none for any of its own.
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

/// What stands at each place, by place.
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

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Sight, StoreError> {
        let flights = self.flights(charges, |charge| charge.key);
        let sights = join_all(flights.iter().map(|flight| self.peek_flight(flight))).await;
        let (mut now, mut placed) = (None, Vec::with_capacity(charges.len()));
        for (flight, sight) in flights.iter().zip(sights) {
            let sight = sight?;
            now = now.max(Some(sight.now));
            placed.extend(flight.places.iter().copied().zip(sight.states));
        }
        Ok(Sight { now: now.unwrap_or_default(), states: in_order(placed) })
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        let flights = self.flights(settlements, |settlement| settlement.key);
        let settled = join_all(flights.iter().map(|flight| self.settle_flight(flight))).await;
        settled.into_iter().collect()
    }

    async fn lease(&self, asks: &[LeaseAsk<'_>]) -> Vec<Result<Lent, StoreError>> {
        let lendable = Lendable::of(asks);
        let flights = self.flights(&lendable.asks, |ask| ask.key);
        let answers = join_all(flights.iter().map(|flight| self.lease_flight(flight))).await;
        let lent = each_in_order(&flights, answers);
        lendable.answers(lent)
    }

    async fn give_back(&self, backs: &[GiveBack<'_>]) -> Result<(), StoreError> {
        backs.iter().try_for_each(|given| given.authority().map(drop))?;
        let backs: Vec<_> = backs.iter().copied().filter(GiveBack::says_something).collect();
        let (script, head) = (&self.scripts.give_back, self.preamble());
        let flights = self.flights(&backs, |given| given.key);
        let taken = join_all(flights.iter().map(|flight| {
            self.route.call(flight.slot, |by| wire::give_back(script, by, head, &flight.items))
        }));
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

    /// Exact, where the servers' memory is complete for as long as the limits remember. Else bounded: by this process's
    /// own units where they are counted ([`Failover::Async`] with `sample`), and by `u64::MAX` where nobody can tell.
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
