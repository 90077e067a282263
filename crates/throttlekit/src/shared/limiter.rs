//! The limiter over a shared store.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Limit, LimitError, Need, Rule};
use throttlekit_core::{Cost, Decision, Forecast, Timestamp};

use super::outage::Fallback;
use super::receipt::charges;
use super::tally::Tallies;
use super::{Answer, OnOutage, Receipt, Tally};
use crate::store::{CHARGES_MAX, Charge, Charges, KeySpace, Outcome, Settlement, Store, StoreError};
use crate::store::{Debit, DebitId, REMEMBER_DEFAULT};
use crate::{Call, Clock, WallClock};

const PREFIX: &str = "tk";

/// One limit, or several decided as one, over state that many processes share.
///
/// Every process that names the same policy on the same store counts together. A request is one round trip. While the
/// store is unavailable, [`OnOutage`] decides, and every [`Answer`] carries its guarantee.
///
/// ```
/// use throttlekit::{OnOutage, Rate, SharedLimiter, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let limiter = SharedLimiter::new(MemoryStore::new(), "api", Rate::per_minute(100).burst(10))?
///     .on_outage(OnOutage::Open);
///
/// let answer = limiter.check("alice").await?;
/// assert!(answer.decision.allowed && answer.decision.remaining == 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedLimiter<S, const N: usize = 1> {
    store: S,
    need: Need,
    forms: [ScriptEncoding; N],
    /// The same limits where nothing crosses the edge of a budget, for reservations.
    reserving: [ScriptEncoding; N],
    spaces: [KeySpace; N],
    home: Home,
    stand_in: Fallback<N>,
    tallies: Tallies,
    /// Time for which debits are remembered by name.
    remember: Duration,
    /// Offset of the store's clock ahead of ours when it last responded, in nanoseconds.
    ahead: AtomicI64,
}

/// Routing key: the key that selects the cluster slot for all keys of one request.
#[derive(Clone, Copy, Debug)]
enum Home {
    /// None: all keys of the policy live in one slot.
    Policy,
    /// The key of the limit with this index.
    Limit(usize),
}

impl<S: Store> SharedLimiter<S> {
    /// Creates one limit over many keys. The policy's name separates its keys from those of others on the same store.
    pub fn new<L: TryInto<Limit>>(store: S, policy: &str, limit: L) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        Ok(Self::needing(Need::All, store, policy, [("", limit)])?.home(0))
    }

    /// Checks one request, and charges it if allowed.
    pub async fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        self.check_all([ask.into()]).await
    }

    /// Checks a debit that has an idempotency key, and charges it if it is allowed and was not charged before.
    ///
    /// For windows and token budgets, metered by many streams. A stream has one debit in flight at a time and numbers
    /// them upwards. If the store did not respond, the same debit may be sent again, under the same number: it counts
    /// once, and its response is that of the first time. See [`remember_debits`](Self::remember_debits) for how long.
    /// There is no receipt: one that is returned often would be settled often.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throttlekit::{Limit, SharedLimiter, store::{DebitId, MemoryStore}};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let minute = Limit::token_budget(100_000, Duration::from_secs(60))?;
    /// let meter = SharedLimiter::new(MemoryStore::new(), "tokens", minute)?;
    ///
    /// let stream = 0x5eed_0001; // draw 128 random bits
    /// let first = DebitId { stream, number: 1 };
    /// assert_eq!(meter.debit("acme", 80, first).await?.decision.remaining, 99_920);
    /// // The answer was lost: the same again changes nothing.
    /// assert_eq!(meter.debit("acme", 80, first).await?.decision.remaining, 99_920);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn debit(
        &self,
        key: impl AsRef<[u8]>,
        tokens: Cost,
        id: DebitId,
    ) -> Result<Answer, StoreError> {
        let ask = Call::by(key.as_ref()).cost(tokens);
        let keys = self.keys(&[ask]);
        match self.try_debit(&keys[0], tokens, id).await {
            Ok(answer) => Ok(answer),
            Err(error) => self.without_store([ask], error),
        }
    }

    /// Sets how long [debits](Self::debit) are remembered by their idempotency keys, whether their window lasts or not.
    /// Choose it longer than any caller keeps retrying; at most a day. Default: one minute.
    pub fn remember_debits(self, remember: Duration) -> Self {
        Self { remember, ..self }
    }

    /// Sends a debit once, to a key as the store keeps it. No fallback applies.
    pub(crate) async fn try_debit(&self, key: &str, tokens: Cost, id: DebitId) -> Result<Answer, StoreError> {
        let charge = Charge { key, form: &self.forms[0], cost: tokens };
        let answers = self.store.debit(&[Debit { charge, id, remember: self.remember }]).await;
        let outcome = answers.into_iter().next().unwrap_or_else(|| Err(no_answer()))?.outcome;
        let guarantee = self.note(&outcome);
        Ok(Answer::of(outcome.verdict.decision, guarantee, outcome.now))
    }

    /// Creates an answer of the store that is not settled.
    pub(crate) fn answered(&self, now: Timestamp, decision: Decision) -> Answer {
        Answer::of(decision, self.note_as(crate::Guarantee::Exact, now), now)
    }

    /// Returns the key of a request as the store keeps it.
    pub(crate) fn key(&self, key: &[u8]) -> String {
        self.spaces[0].key(key, key)
    }

    /// Returns the limit in the script encoding.
    pub(crate) fn form(&self) -> &ScriptEncoding {
        &self.forms[0]
    }

    /// Forecasts what a key could spend at the request's cost, now and later.
    pub async fn forecast<'a>(&self, ask: impl Into<Call<'a>>) -> Result<Forecast, StoreError> {
        let ask = ask.into();
        let keys = self.keys(&[ask]);
        let sight = self.store.peek(&charges(&keys, &self.forms, &[ask.units()])).await?;
        Ok(self.forms[0].limit().forecast(&sight.states[0], ask.units(), sight.now))
    }
}

impl<S: Store, const N: usize> SharedLimiter<S, N> {
    /// Creates several limits, each with a name of its own, that must all allow.
    ///
    /// ```
    /// use throttlekit::{Call, Rate, SharedLimiter, store::MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let limits = [("user", Rate::per_minute(60)), ("org", Rate::per_minute(1_000))];
    /// // Users belong to one organisation, so its key may say where all of them are kept.
    /// let limiter = SharedLimiter::all(MemoryStore::new(), "api", limits)?.home(1);
    ///
    /// let answer = limiter.check_all([Call::by("alice"), Call::by("acme")]).await?;
    /// assert_eq!((answer.decision.remaining, answer.binding), (59, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn all<L: TryInto<Limit>>(store: S, policy: &str, limits: [(&str, L); N]) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        Self::needing(Need::All, store, policy, limits)
    }

    /// Creates several limits of which at least one must allow; those that do are charged.
    pub fn any<L: TryInto<Limit>>(store: S, policy: &str, limits: [(&str, L); N]) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        Self::needing(Need::Any, store, policy, limits)
    }

    fn needing<L: TryInto<Limit>>(
        need: Need,
        store: S,
        policy: &str,
        named: [(&str, L); N],
    ) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        const { assert!(N >= 1 && N <= CHARGES_MAX, "an ask has one to sixteen limits") };
        let names = named.each_ref().map(|(name, _)| *name);
        if names.iter().enumerate().any(|(i, name)| names[..i].contains(name)) {
            return Err(LimitError::NotShareable("two limits of one policy have the same name"));
        }
        let limits: Vec<Limit> =
            named.into_iter().map(|(_, limit)| limit.try_into()).collect::<Result<_, _>>()?;
        let forms: Vec<ScriptEncoding> = limits.iter().map(ScriptEncoding::of).collect::<Result<_, _>>()?;
        let forms: [ScriptEncoding; N] = forms.try_into().expect("as many limits as were given");
        let reserving = forms.each_ref().map(ScriptEncoding::uncrossed);
        Ok(Self {
            store,
            need,
            spaces: std::array::from_fn(|i| KeySpace::new(PREFIX, policy, names[i], &forms[i])),
            stand_in: Fallback::Closed,
            forms,
            reserving,
            home: Home::Policy,
            tallies: Tallies::default(),
            remember: REMEMBER_DEFAULT,
            ahead: AtomicI64::new(0),
        })
    }

    /// Keeps the keys of each request in the cluster slot of the key of the limit at `index`, so that a policy spreads
    /// over a cluster.
    ///
    /// Correct only if each key always comes with the same key of that limit, as users do with their organization:
    /// under another it counts as another. Default: all keys of a policy with several limits live in one slot.
    pub fn home(self, index: usize) -> Self {
        assert!(index < N, "the home is one of the policy's limits");
        Self { home: Home::Limit(index), ..self }
    }

    /// Sets the fallback while the store is unavailable. Default: deny.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        let (shares, limits) = (self.store.local_shares().cloned().unwrap_or_default(), self.limits());
        let share = |place: usize, nodes| shares.of(&self.spaces[place], limits[place], nodes);
        Self { stand_in: Fallback::new(choice, self.need, share), ..self }
    }

    /// Checks one request over all limits, and charges all or none.
    pub async fn check_all(&self, asks: [Call<'_>; N]) -> Result<Answer, StoreError> {
        let (keys, costs) = (self.keys(&asks), asks.map(|ask| ask.units()));
        let answers = {
            let charges = charges(&keys, &self.forms, &costs);
            self.store.admit(&[Charges { need: self.need, charges: &charges }]).await
        };
        let outcome = answers.and_then(|answers| answers.into_iter().next().ok_or_else(no_answer));
        self.answer(outcome, keys, &costs, asks)
    }

    /// Like [`check_all`](Self::check_all) where nothing crosses the edge of a budget; with the decision of each limit,
    /// if the store responded.
    pub(crate) async fn reserve_all(
        &self,
        asks: [Call<'_>; N],
    ) -> Result<(Answer, Option<Vec<Decision>>), StoreError> {
        let (keys, costs) = (self.keys(&asks), asks.map(|ask| ask.units()));
        let answers = {
            let charges = charges(&keys, &self.reserving, &costs);
            self.store.admit(&[Charges { need: self.need, charges: &charges }]).await
        };
        let outcome = answers.and_then(|answers| answers.into_iter().next().ok_or_else(no_answer));
        let decisions = outcome.as_ref().ok().map(|outcome| outcome.decisions.clone());
        Ok((self.answer(outcome, keys, &costs, asks)?, decisions))
    }

    /// Checks several requests, each independently and in order, in one round trip; over a cluster, in one for each
    /// slot. If the part of the store for a request is unavailable, [`OnOutage`] decides that request; the others are
    /// not affected.
    pub async fn check_many(&self, asks: &[[Call<'_>; N]]) -> Vec<Result<Answer, StoreError>> {
        let keys: Vec<_> = asks.iter().map(|ask| self.keys(ask)).collect();
        let costs: Vec<[Cost; N]> = asks.iter().map(|ask| ask.map(|ask| ask.units())).collect();
        let outcomes = {
            let all: Vec<_> =
                keys.iter().zip(&costs).map(|(keys, costs)| charges(keys, &self.forms, costs)).collect();
            let flight: Vec<_> = all.iter().map(|charges| Charges { need: self.need, charges }).collect();
            self.store.admit_each(&flight).await
        };
        let each = outcomes.into_iter().zip(keys).zip(&costs).zip(asks);
        each.map(|(((outcome, keys), costs), ask)| self.answer(outcome, keys, costs, *ask)).collect()
    }

    fn answer(
        &self,
        outcome: Result<Outcome, StoreError>,
        keys: Vec<String>,
        costs: &[Cost; N],
        asks: [Call<'_>; N],
    ) -> Result<Answer, StoreError> {
        match outcome {
            Ok(outcome) => {
                let guarantee = self.note(&outcome);
                Ok(Answer::from_store(&outcome, keys, costs, guarantee))
            }
            Err(error) => self.without_store(asks, error),
        }
    }

    /// Returns what each key has left on its limit, without spending. No fallback applies.
    pub async fn peek_each(&self, keys: [&[u8]; N]) -> Result<[Decision; N], StoreError> {
        let asks = keys.map(|key| Call::by(key));
        let keys = self.keys(&asks);
        let sight = self.store.peek(&charges(&keys, &self.forms, &[1; N])).await?;
        Ok(std::array::from_fn(|i| self.forms[i].limit().peek(&sight.states[i], sight.now)))
    }

    /// Replaces the cost of each charge by what was used: returns what was too much, charges what was too little.
    ///
    /// Units go to the window they came from, while that lasts. What a smooth rate has refilled since is not returned a
    /// second time.
    pub async fn settle(&self, receipt: Receipt, actual: [Cost; N]) -> Result<(), StoreError> {
        let each = receipt.charged.iter().map(|charged| Settlement {
            key: &charged.key,
            form: &self.forms[charged.limit],
            mark: charged.mark,
            charged: charged.cost,
            actual: actual[charged.limit],
        });
        let settlements: Vec<_> = each.filter(|s| s.charged != s.actual).collect();
        if settlements.is_empty() {
            return Ok(());
        }
        self.store.settle(&settlements).await
    }

    /// Forgets the keys of a request: their next request counts as their first.
    pub async fn reset(&self, keys: [&[u8]; N]) -> Result<(), StoreError> {
        let names = self.keys(&keys.map(|key| Call::by(key)));
        self.store.reset(&names.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// Returns the approximate current time of the store's clock, which the answers' `reset_at` uses.
    pub fn now(&self) -> Timestamp {
        let ours = WallClock.now().as_nanos();
        Timestamp::from_nanos(ours.saturating_add_signed(self.ahead.load(Relaxed)))
    }

    /// Returns the number of answers of each kind.
    pub fn tally(&self) -> Tally {
        self.tallies.read()
    }

    /// Returns the limits.
    pub fn limits(&self) -> [Limit; N] {
        limits_of(&self.forms)
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns whether all limits must allow.
    pub(crate) fn needs_all(&self) -> bool {
        self.need == Need::All
    }

    /// Returns the limit at this index in the script encoding.
    pub(crate) fn form_at(&self, place: usize) -> &ScriptEncoding {
        &self.forms[place]
    }

    /// The same where nothing crosses the edge of its budget.
    pub(crate) fn reserving(&self, place: usize) -> &ScriptEncoding {
        &self.reserving[place]
    }

    /// Returns how long debits are remembered by their idempotency keys.
    pub(crate) fn remembers(&self) -> Duration {
        self.remember
    }

    /// Counts an answer of the store, and returns its guarantee.
    pub(crate) fn note(&self, outcome: &Outcome) -> crate::Guarantee {
        self.note_as(outcome.guarantee, outcome.now)
    }

    /// The same for an answer with this guarantee of its own.
    pub(crate) fn note_as(&self, guarantee: crate::Guarantee, now: Timestamp) -> crate::Guarantee {
        let guarantee = self.store.guarantee().weaker(guarantee);
        self.tallies.count(guarantee);
        self.note_time(now);
        guarantee
    }

    pub(crate) fn note_time(&self, theirs: Timestamp) {
        let ahead = i128::from(theirs.as_nanos()) - i128::from(WallClock.now().as_nanos());
        self.ahead.store(i64::try_from(ahead).unwrap_or(0), Relaxed);
    }

    /// Returns the fallback's answer to a request for which the store has none.
    pub(crate) fn without_store(&self, asks: [Call<'_>; N], error: StoreError) -> Result<Answer, StoreError> {
        if !error.is_outage() {
            self.tallies.errors.fetch_add(1, Relaxed);
            return Err(error);
        }
        let now = self.now();
        let (verdict, guarantee) = self.stand_in.answer(asks, &self.limits(), now);
        self.tallies.count(guarantee);
        let (decision, binding) = (verdict.decision, verdict.binding);
        Ok(Answer { decision, binding, guarantee, now, outage: Some(error), receipt: None })
    }

    /// Returns the keys of a request as the store keeps them.
    pub(crate) fn keys(&self, asks: &[Call<'_>; N]) -> Vec<String> {
        let home = match self.home {
            Home::Policy => &[],
            Home::Limit(index) => asks[index].key(),
        };
        asks.iter().zip(&self.spaces).map(|(ask, space)| space.key(home, ask.key())).collect()
    }
}

fn limits_of<const N: usize>(forms: &[ScriptEncoding; N]) -> [Limit; N] {
    forms.each_ref().map(|form| *form.limit())
}

fn no_answer() -> StoreError {
    StoreError::bad_state("the store left an ask without an answer")
}

debug_fields!([S, const N: usize] SharedLimiter<S, N>, |it| limits = limits_of(&it.forms));
