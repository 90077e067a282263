//! Limits over a store that is called for every request. The engine of the strict mode, and below that of leasing.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Limit, Mark, Need, Rule, Settle};
use throttlekit_core::{Decision, Forecast, Timestamp};

use super::outage::Fallback;
use super::tally::Tallies;
use super::{Answer, Paid, Receipt};
use crate::call::Part;
use crate::clock::{Clock, WallClock};
use crate::store::{Charge, Charges, Decided, KeySpace, Outcome, Settlement, Snapshot, Store, StoreError};
use crate::store::{Debit, DebitId};
use crate::{Call, Guarantee, LimitName};

/// One to sixteen limits over a store.
pub(crate) struct Strict<S> {
    pub(super) store: S,
    pub(super) need: Need,
    pub(super) limits: Box<[Limit]>,
    /// One for each limit.
    pub(super) places: Box<[Place]>,
    /// Index of the limit whose key selects the cluster slot for all keys of a request. `None`: all keys of the policy
    /// live in one slot.
    pub(super) home: Option<usize>,
    pub(super) fallback: Fallback,
    pub(super) tallies: Tallies,
    /// Time for which debits are remembered by their idempotency keys.
    pub(super) remember: Duration,
    /// The limit of the records of debits of several limits.
    pub(super) once: ScriptEncoding,
    /// Offset of the store's clock ahead of ours when it last responded, in nanoseconds.
    pub(super) ahead: AtomicI64,
    /// The store's time at which that was noted last for a decision without waiting, in milliseconds.
    pub(super) noted_ms: AtomicU64,
}

thread_local! {
    /// Memory for the name of a key.
    static NAME: Cell<String> = const { Cell::new(String::new()) };
}

/// One limit, as the store counts it.
pub(super) struct Place {
    pub(super) name: Box<str>,
    /// Index of the call's key that it counts by.
    pub(super) by: usize,
    pub(super) form: ScriptEncoding,
    /// The same where nothing crosses the edge of a budget, for reservations.
    pub(super) reserving: ScriptEncoding,
    pub(super) space: KeySpace,
    /// Set if it shares the counts of another limit.
    pub(super) also: Option<Also>,
}

/// A limit that counts a further key of the call in the counts of another.
pub(super) struct Also {
    /// Index of the other limit.
    pub(super) of: usize,
    /// Names of the key that stands for one that is left out. Nothing is charged to it.
    pub(super) unused: KeySpace,
}

impl<S: Store> Strict<S> {
    /// Checks one request over all limits, and charges all or none.
    pub(crate) async fn check(&self, parts: &[Part<'_>]) -> Result<Answer, StoreError> {
        let keys = self.keys(parts);
        let outcome = {
            let charges = self.charges(&keys, parts, |place| &place.form);
            self.admit(&charges).await
        };
        self.answer(outcome, keys, parts)
    }

    /// Like [`check`](Self::check) without a receipt, for one limit over a store that decides in process. `None` for all
    /// others.
    pub(crate) fn check_now(&self, call: &Call<'_>) -> Option<Result<Answer, StoreError>> {
        let [place] = &self.places[..] else { return None };
        let part = self.part(call, 0);
        let home = self.home.map_or(&[][..], |_| part.key);
        // An allocation for each key would cost as much as the lookup.
        let mut key = NAME.take();
        key.clear();
        place.space.write_key(home, part.key, &mut key);
        let decided = self.store.decide_now(&Charge { key: &key, form: &place.form, cost: part.cost });
        NAME.set(key);
        Some(match decided? {
            Ok(Decided { now, decision, guarantee }) => {
                let guarantee = self.store.guarantee().weaker(guarantee);
                self.tallies.count(guarantee);
                self.note_time_rarely(now);
                Ok(self.named(Answer::new(decision, guarantee, now)))
            }
            Err(error) => self.without_store(&[part], error),
        })
    }

    /// Like [`check`](Self::check) where nothing crosses the edge of a budget; with the decision of each limit, if the
    /// store responded.
    pub(crate) async fn reserve(
        &self,
        parts: &[Part<'_>],
    ) -> Result<(Answer, Option<Vec<Decision>>), StoreError> {
        let keys = self.keys(parts);
        let outcome = {
            let charges = self.charges(&keys, parts, |place| &place.reserving);
            self.admit(&charges).await
        };
        let decisions = outcome.as_ref().ok().map(|outcome| outcome.decisions.clone());
        Ok((self.answer(outcome, keys, parts)?, decisions))
    }

    pub(super) async fn admit(&self, charges: &[Charge<'_>]) -> Result<Outcome, StoreError> {
        let answers = self.store.admit(&[Charges { need: self.need, charges }]).await?;
        answers.into_iter().next().ok_or_else(no_answer)
    }

    /// Checks several requests, each independently and in order.
    pub(super) async fn check_many(&self, calls: &[Vec<Part<'_>>]) -> Vec<Result<Answer, StoreError>> {
        let keys: Vec<_> = calls.iter().map(|parts| self.keys(parts)).collect();
        let outcomes = {
            let each = keys.iter().zip(calls);
            let all: Vec<_> =
                each.map(|(keys, parts)| self.charges(keys, parts, |place| &place.form)).collect();
            let batch: Vec<_> = all.iter().map(|charges| Charges { need: self.need, charges }).collect();
            self.store.admit_each(&batch).await
        };
        let each = outcomes.into_iter().zip(keys).zip(calls);
        each.map(|((outcome, keys), parts)| self.answer(outcome, keys, parts)).collect()
    }

    fn answer(
        &self,
        outcome: Result<Outcome, StoreError>,
        keys: Vec<String>,
        parts: &[Part<'_>],
    ) -> Result<Answer, StoreError> {
        match outcome {
            Ok(outcome) => {
                let guarantee = self.note(&outcome);
                let mut answer = Answer::from_store(&outcome, keys, parts, guarantee);
                if let Some(receipt) = &mut answer.receipt {
                    receipt.charged.retain(|paid| !self.is_left_out(paid.limit, parts[paid.limit]));
                }
                Ok(self.named(answer))
            }
            Err(error) => self.without_store(parts, error),
        }
    }

    /// Checks a debit over all limits, and charges all or none.
    pub(super) async fn debit(&self, parts: &[Part<'_>], id: DebitId) -> Result<Answer, StoreError> {
        let keys = self.keys(parts);
        let answer = match parts {
            [part] => self.try_debit(&keys[0], part.cost, id).await,
            _ => self.try_debit_all(&self.charges(&keys, parts, |place| &place.form), id).await,
        };
        answer.or_else(|error| self.without_store(parts, error))
    }

    /// Sends a debit once, to a key as the store keeps it. No fallback applies.
    pub(crate) async fn try_debit(&self, key: &str, tokens: u64, id: DebitId) -> Result<Answer, StoreError> {
        let charge = Charge { key, form: self.form(0), cost: tokens };
        let answers = self.store.debit(&[Debit { charge, id, remember: self.remember }]).await;
        let outcome = answers.into_iter().next().unwrap_or_else(|| Err(no_answer()))?.outcome;
        let guarantee = self.note(&outcome);
        Ok(self.named(Answer::new(outcome.verdict.decision, guarantee, outcome.now)))
    }

    /// Returns what each key has left on its limit, and the store's time. No fallback applies.
    pub(super) async fn peek(&self, parts: &[Part<'_>]) -> Result<(Vec<Decision>, Timestamp), StoreError> {
        let seen = self.look(parts).await?;
        let each = self.limits.iter().zip(&seen.states);
        Ok((each.map(|(limit, state)| limit.peek(state, seen.now)).collect(), seen.now))
    }

    /// Forecasts what could be spent, now and later. No fallback applies.
    pub(super) async fn forecast(&self, parts: &[Part<'_>]) -> Result<Forecast, StoreError> {
        let seen = self.look(parts).await?;
        let each = self.limits.iter().zip(&seen.states).zip(parts);
        let forecasts = each.map(|((limit, state), part)| limit.forecast(state, part.cost, seen.now));
        let both = |a: Forecast, b: Forecast| match self.need {
            // More can be spent when the limit with the least left is replenished.
            Need::All => {
                let scarcer = if b.spendable_now < a.spendable_now { b } else { a };
                Forecast { full_at: a.full_at.max(b.full_at), ..scarcer }
            }
            Need::Any => {
                let richer = if b.spendable_now > a.spendable_now { b } else { a };
                Forecast { full_at: a.full_at.min(b.full_at), ..richer }
            }
        };
        Ok(forecasts.reduce(both).expect("at least one limit"))
    }

    async fn look(&self, parts: &[Part<'_>]) -> Result<Snapshot, StoreError> {
        let keys = self.keys(parts);
        self.store.peek(&self.charges(&keys, parts, |place| &place.form)).await
    }

    /// Replaces the cost of each charge by what `actual` returns for it.
    pub(super) async fn settle(
        &self,
        receipt: Receipt,
        actual: impl Fn(&Paid) -> u64 + Send,
    ) -> Result<(), StoreError> {
        let each = receipt.charged.iter().map(|charged| Settlement {
            key: &charged.key,
            form: self.form(charged.limit),
            mark: charged.mark,
            charged: charged.cost,
            actual: actual(charged),
        });
        let settlements: Vec<_> = each.filter(|s| s.charged != s.actual).collect();
        if settlements.is_empty() {
            return Ok(());
        }
        self.store.settle(&settlements).await
    }

    /// Charges costs whatever is left of the limits.
    pub(super) async fn charge(&self, parts: &[Part<'_>]) -> Result<(), StoreError> {
        let keys = self.keys(parts);
        let each = keys.iter().zip(parts).enumerate();
        let debts: Vec<_> = each
            .map(|(place, (key, part))| {
                let (form, mark) = (self.form(place), Mark(0));
                Settlement { key, form, mark, charged: 0, actual: part.cost }
            })
            .filter(|debt| debt.actual > 0)
            .collect();
        self.store.settle(&debts).await
    }

    /// Returns costs to the keys, to their windows of this instant.
    pub(super) async fn take_back(&self, parts: &[Part<'_>]) -> Result<(), StoreError> {
        let (keys, seen) = (self.keys(parts), self.look(parts).await?);
        let each = keys.iter().zip(parts).zip(&seen.states).enumerate();
        let refunds: Vec<_> = each
            .map(|(place, ((key, part), state))| {
                let (form, mark) = (self.form(place), self.limits[place].mark(state, seen.now));
                Settlement { key, form, mark, charged: part.cost, actual: 0 }
            })
            .collect();
        self.store.settle(&refunds).await
    }

    /// Forgets keys: their next request counts as their first.
    pub(super) async fn reset(&self, parts: &[Part<'_>]) -> Result<(), StoreError> {
        let keys = self.keys(parts);
        self.store.reset(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// Returns the part of a call that each limit counts.
    pub(super) fn parts<'a>(&self, call: &Call<'a>) -> Vec<Part<'a>> {
        (0..self.places.len()).map(|place| self.part(call, place)).collect()
    }

    /// Returns the part of a call that the limit at this index counts.
    #[inline]
    pub(super) fn part<'a>(&self, call: &Call<'a>, place: usize) -> Part<'a> {
        self.part_of(place, call.units_at(place), |place| call.key_at(self.places[place].by))
    }

    /// Returns the part of a call that the limit at this index counts, where `key_of` returns the key of each limit.
    #[inline]
    pub(crate) fn part_of<'a>(
        &self,
        place: usize,
        cost: u64,
        key_of: impl Fn(usize) -> &'a [u8],
    ) -> Part<'a> {
        let key = key_of(place);
        let counted = |of: usize| {
            let mut before = (of..place).filter(|&other| other == of || self.shares_counts(other, of));
            key.is_empty() || before.any(|other| key_of(other) == key)
        };
        match &self.places[place].also {
            Some(also) if counted(also.of) => Part { key: &[], cost: 0 },
            _ => Part { key, cost },
        }
    }

    fn shares_counts(&self, place: usize, of: usize) -> bool {
        self.places[place].also.as_ref().is_some_and(|also| also.of == of)
    }

    /// Checks whether a limit that shares the counts of another does not count this call.
    pub(crate) fn is_left_out(&self, place: usize, part: Part<'_>) -> bool {
        self.places[place].also.is_some() && part.key.is_empty()
    }

    /// Returns the keys of a request as the store keeps them.
    pub(crate) fn keys(&self, parts: &[Part<'_>]) -> Vec<String> {
        let home = self.home.map_or(&[][..], |place| parts[place].key);
        let key = |(place, part): (&Place, &Part<'_>)| match &place.also {
            Some(also) if part.key.is_empty() => also.unused.key(home, part.key),
            _ => place.space.key(home, part.key),
        };
        self.places.iter().zip(parts).map(key).collect()
    }

    /// Returns the only key of a request as the store keeps it. For one limit only.
    pub(crate) fn key(&self, key: &[u8]) -> String {
        let home = self.home.map_or(&[][..], |_| key);
        self.places[0].space.key(home, key)
    }

    fn charges<'a>(
        &'a self,
        keys: &'a [String],
        parts: &[Part<'_>],
        form: impl Fn(&'a Place) -> &'a ScriptEncoding,
    ) -> Vec<Charge<'a>> {
        let each = keys.iter().zip(&self.places).zip(parts);
        each.map(|((key, place), part)| Charge { key, form: form(place), cost: part.cost }).collect()
    }

    /// Creates an answer of the store that is not settled.
    pub(crate) fn answered(&self, now: Timestamp, decision: Decision) -> Answer {
        Answer::new(decision, self.note_as(Guarantee::Exact, now), now)
    }

    /// Returns the fallback's answer to a request for which the store has none.
    pub(crate) fn without_store(&self, parts: &[Part<'_>], error: StoreError) -> Result<Answer, StoreError> {
        if !error.is_outage() {
            self.tallies.errors.fetch_add(1, Relaxed);
            return Err(error);
        }
        let now = self.now();
        let (verdict, guarantee) = self.fallback.answer(parts, &self.limits, now);
        self.tallies.count(guarantee);
        let (decision, binding) = (verdict.decision, verdict.binding);
        Ok(self.named(Answer { binding, outage: Some(error), ..Answer::new(decision, guarantee, now) }))
    }

    /// Names the limit that denied, if one did.
    #[inline]
    pub(crate) fn named(&self, mut answer: Answer) -> Answer {
        if !answer.decision.allowed && answer.guarantee != Guarantee::Closed {
            answer.limit_name = self.name_of(answer.binding);
        }
        answer
    }

    /// Counts an answer of the store, and returns its guarantee.
    pub(crate) fn note(&self, outcome: &Outcome) -> Guarantee {
        self.note_as(outcome.guarantee, outcome.now)
    }

    /// The same for an answer with this guarantee of its own.
    fn note_as(&self, guarantee: Guarantee, now: Timestamp) -> Guarantee {
        let guarantee = self.store.guarantee().weaker(guarantee);
        self.tallies.count(guarantee);
        self.note_time(now);
        guarantee
    }

    pub(super) fn note_time(&self, theirs: Timestamp) {
        let ahead = i128::from(theirs.as_nanos()) - i128::from(WallClock.now().as_nanos());
        self.ahead.store(i64::try_from(ahead).unwrap_or(0), Relaxed);
    }

    /// Does the same at most once in a millisecond of the store's time: for a store in this process, where reading the
    /// clock is a large part of a decision.
    fn note_time_rarely(&self, theirs: Timestamp) {
        let noted = self.noted_ms.load(Relaxed);
        let now = theirs.as_micros() / 1_000;
        if noted != now {
            self.noted_ms.store(now, Relaxed);
            self.note_time(theirs);
        }
    }

    /// Returns the approximate current time of the store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        let ours = WallClock.now().as_nanos();
        Timestamp::from_nanos(ours.saturating_add_signed(self.ahead.load(Relaxed)))
    }
}

impl<S> Strict<S> {
    /// Returns the limits.
    pub(crate) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Returns the name of the limit at this index, for decisions.
    pub(crate) fn name_of(&self, place: usize) -> Option<LimitName> {
        LimitName::new(&self.places[place].name)
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    /// Returns whether all limits must allow.
    pub(crate) fn needs_all(&self) -> bool {
        self.need == Need::All
    }

    /// Returns whether all limits count by the same key of a call.
    pub(crate) fn counts_by_one_key(&self) -> bool {
        self.places.iter().all(|place| place.by == self.places[0].by)
    }

    /// Returns the limit at this index in the script encoding.
    pub(crate) fn form(&self, place: usize) -> &ScriptEncoding {
        &self.places[place].form
    }

    /// The same where nothing crosses the edge of its budget.
    pub(crate) fn reserving(&self, place: usize) -> &ScriptEncoding {
        &self.places[place].reserving
    }

    /// Returns how long debits are remembered by their idempotency keys.
    pub(crate) fn remembers(&self) -> Duration {
        self.remember
    }
}

pub(super) fn no_answer() -> StoreError {
    StoreError::bad_state("the store returned too few results")
}
