//! The limiter over a shared store.

use std::sync::Arc;

use throttlekit_core::rate::{Limit, LimitError};
use throttlekit_core::{Decision, Forecast, Timestamp};

use super::leasing::{Engine, LeasedKey};
use super::strict::Strict;
use super::{Answer, Receipt, SharedLimiterBuilder, SharedLimiterStats};
use crate::clock::{BootClock, LeaseClock};
use crate::store::{DebitId, Store, StoreError};
use crate::{BuildError, Call, Guarantee};

/// One limit, or several decided as one, over state that many processes share. A cheap handle: clones share everything.
///
/// Every process that names the same policy on the same store counts together. By default a request is one round trip;
/// [leased](SharedLimiterBuilder::leased), most requests are decided in this process. While the store is unavailable,
/// [`OnOutage`](crate::OnOutage) decides, and every [`Answer`] carries its guarantee.
///
/// ```
/// use throttlekit::{OnOutage, Rate, SharedLimiter, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let limiter = SharedLimiter::builder(MemoryStore::new(), "api", Rate::per_minute(100).burst(10))
///     .on_outage(OnOutage::Open)
///     .build()?;
///
/// let answer = limiter.check("alice").await?;
/// assert!(answer.allowed && answer.remaining == 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Several limits are charged all or none. Each counts by one of the call's keys:
///
/// ```
/// use throttlekit::{Budget, Call, Rate, SharedLimiter, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let limiter = SharedLimiter::builder(MemoryStore::new(), "api", Rate::per_minute(60))
///     .limit("daily", Budget::per_day(10_000))
///     .limit_by(1, "org", Rate::per_minute(1_000))
///     .route_by(1) // users belong to one organization
///     .build()?;
///
/// let answer = limiter.check(Call::by("alice").and(&["acme"])).await?;
/// assert_eq!((answer.remaining, answer.binding), (59, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedLimiter<S, C = BootClock> {
    mode: Mode<S, C>,
}

pub(super) enum Mode<S, C> {
    /// The store is called for every request.
    Strict(Arc<Strict<S>>),
    /// Units are leased, or denials remembered.
    Leased(Arc<Engine<S, C>>),
}

impl<S: Store> SharedLimiter<S> {
    /// Creates one limit over many keys. The policy's name separates its keys from those of others on the same store.
    pub fn new<L: TryInto<Limit>>(store: S, policy: &str, limit: L) -> Result<Self, BuildError>
    where
        LimitError: From<L::Error>,
    {
        Self::builder(store, policy, limit).build()
    }

    /// Creates a builder of a limiter over many keys, with its first limit.
    pub fn builder<L: TryInto<Limit>>(store: S, policy: &str, limit: L) -> SharedLimiterBuilder<S>
    where
        LimitError: From<L::Error>,
    {
        SharedLimiterBuilder::new(store, policy, limit.try_into().map_err(LimitError::from))
    }
}

impl<S: Store, C: LeaseClock + 'static> SharedLimiter<S, C> {
    pub(super) fn from_mode(mode: Mode<S, C>) -> Self {
        Self { mode }
    }

    /// Checks one request over all limits, and charges all or none.
    ///
    /// A leased limiter waits only if the store must be called, and then for up to nine of its deadlines if others take
    /// the units first. Lease requests run in the background, so it makes no difference who else waits for the same
    /// units, and on which runtime; if the background itself stalls, the request is decided as in an outage after no
    /// more than ten deadlines. A store's deadline is that of its [`background`](crate::store::Store::background).
    pub async fn check<'a>(&self, call: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        let call = call.into();
        match &self.mode {
            Mode::Strict(strict) => strict.check(&strict.parts(&call)).await,
            Mode::Leased(engine) => engine.check(engine.strict.part(&call, 0)).await,
        }
    }

    /// Checks a request with what this node holds or remembers. Returns `None` if that does not suffice: call
    /// [`check`](Self::check). Never waits, and never decides if nothing is [leased](SharedLimiterBuilder::leased).
    // Always inline: a call that is passed to another function is written to memory.
    #[inline(always)]
    pub fn try_check<'a>(&self, call: impl Into<Call<'a>>) -> Option<Decision> {
        let Mode::Leased(engine) = &self.mode else { return None };
        engine.try_check(engine.strict.part(&call.into(), 0))
    }

    /// Checks a request at once, if the store is in this process and is called for every request. Returns `None` if not:
    /// call [`check`](Self::check). For limiters with one limit. There is no receipt.
    pub fn check_now(&self, call: &Call<'_>) -> Option<Result<Answer, StoreError>> {
        let Mode::Strict(strict) = &self.mode else { return None };
        strict.check_now(call)
    }

    /// Checks several requests, each independently and in order, in one round trip; over a cluster, in one for each
    /// slot. If the part of the store for a request is unavailable, [`OnOutage`](crate::OnOutage) decides that request;
    /// the others are not affected. A leased limiter checks one after the other.
    pub async fn check_many<'a, T: Into<Call<'a>>>(
        &self,
        calls: impl IntoIterator<Item = T>,
    ) -> Vec<Result<Answer, StoreError>> {
        let strict = self.strict();
        let parts: Vec<_> = calls.into_iter().map(|call| strict.parts(&call.into())).collect();
        let Mode::Leased(engine) = &self.mode else { return strict.check_many(&parts).await };
        let mut answers = Vec::with_capacity(parts.len());
        for parts in &parts {
            answers.push(engine.check(parts[0]).await);
        }
        answers
    }

    /// Checks a debit that has an idempotency key, and charges it if it is allowed and was not charged before.
    ///
    /// For windows and token budgets, metered by many streams. A stream has one debit in flight at a time and numbers
    /// them upwards. If the store did not respond, the same debit may be sent again, under the same number: it counts
    /// once, and its response is that of the first time. See [`remember_debits`](SharedLimiterBuilder::remember_debits)
    /// for how long. There is no receipt: one that is returned often would be settled often. A leased limiter calls the
    /// store too.
    ///
    /// Several limits are charged all or none, also if they are no windows. Then a repeat of a charged debit returns what
    /// is left now, one of a denied debit is decided again, and a number lower than the last is no error.
    ///
    /// ```
    /// use throttlekit::{Budget, SharedLimiter, store::{DebitId, MemoryStore}};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let meter = SharedLimiter::new(MemoryStore::new(), "tokens", Budget::per_minute(100_000).tokens()?)?;
    ///
    /// let stream = 0x5eed_0001; // draw 128 random bits
    /// let first = DebitId { stream, number: 1 };
    /// assert_eq!(meter.debit(("acme", 80), first).await?.remaining, 99_920);
    /// // The response was lost: the same again changes nothing.
    /// assert_eq!(meter.debit(("acme", 80), first).await?.remaining, 99_920);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn debit<'a>(&self, call: impl Into<Call<'a>>, id: DebitId) -> Result<Answer, StoreError> {
        let (call, strict) = (call.into(), self.strict());
        let answer = strict.debit(&strict.parts(&call), id).await?;
        Ok(self.weighed(answer))
    }

    /// Replaces the cost of a charge by what was used, on all limits: returns what was too much, charges what was too
    /// little.
    ///
    /// Units go to the window they came from, while that lasts. What a smooth rate has refilled since is not returned a
    /// second time.
    pub async fn settle(&self, receipt: Receipt, actual: u64) -> Result<(), StoreError> {
        self.strict().settle(receipt, |_| actual).await
    }

    /// Like [`settle`](Self::settle) with what was used on each limit, in their order. A limit without an actual cost
    /// keeps its charge.
    pub async fn settle_each(&self, receipt: Receipt, actual: &[u64]) -> Result<(), StoreError> {
        self.strict().settle(receipt, |paid| actual.get(paid.limit).copied().unwrap_or(paid.cost)).await
    }

    /// Charges the cost of a call whatever is left, for work that is done. Beyond the limit it is a debt: requests are
    /// denied until the limit has recovered. No fallback applies. A charge whose response was lost may have been made.
    pub async fn charge<'a>(&self, call: impl Into<Call<'a>>) -> Result<(), StoreError> {
        let (call, strict) = (call.into(), self.strict());
        strict.charge(&strict.parts(&call)).await
    }

    /// Returns the cost of a call to its keys, for work that was charged and not done, where there is no
    /// [receipt](Answer::receipt). At most what they have used: of a window what was used in it so far, of a smooth rate
    /// until it is full, of a sliding window or log what was used in this bucket or at this instant.
    ///
    /// Units that were charged in an earlier window go to the present one: it admits as much more.
    pub async fn take_back<'a>(&self, call: impl Into<Call<'a>>) -> Result<(), StoreError> {
        let (call, strict) = (call.into(), self.strict());
        strict.take_back(&strict.parts(&call)).await
    }

    /// Returns what the keys of a request have left, without spending. No fallback applies, and units that nodes hold
    /// are spent.
    pub async fn peek<'a>(&self, call: impl Into<Call<'a>>) -> Result<Answer, StoreError> {
        let (call, strict) = (call.into(), self.strict());
        let (each, now) = strict.peek(&strict.parts(&call)).await?;
        let verdict = strict.need.judge(&each);
        let answer = Answer::new(verdict.decision, strict.store().guarantee(), now);
        Ok(self.weighed(strict.named(Answer { binding: verdict.binding, ..answer })))
    }

    /// Like [`peek`](Self::peek), for each limit in their order.
    pub async fn peek_each<'a>(&self, call: impl Into<Call<'a>>) -> Result<Vec<Decision>, StoreError> {
        let (call, strict) = (call.into(), self.strict());
        Ok(strict.peek(&strict.parts(&call)).await?.0)
    }

    /// Forecasts what the keys of a request could spend at its cost, now and later. No fallback applies.
    pub async fn forecast<'a>(&self, call: impl Into<Call<'a>>) -> Result<Forecast, StoreError> {
        let (call, strict) = (call.into(), self.strict());
        strict.forecast(&strict.parts(&call)).await
    }

    /// Forgets the keys of a request: their next request counts as their first.
    pub async fn reset<'a>(&self, call: impl Into<Call<'a>>) -> Result<(), StoreError> {
        let (call, strict) = (call.into(), self.strict());
        strict.reset(&strict.parts(&call)).await
    }

    /// Returns units that this node admitted and that were not used to the window that ends at `reset_at`, as in the
    /// decision: they can be spent here again, or go back to the store with idle units. They lapse if the node holds no
    /// units of that window any more, and if units are not lent by windows. No effect if nothing is leased.
    ///
    /// Call it once for what was charged, and only for answers of this node itself. One with a
    /// [receipt](Answer::receipt) is settled by it; what was admitted in an [outage](Answer::outage) was taken from no
    /// limit.
    pub fn refund(&self, key: impl AsRef<[u8]>, units: u64, reset_at: Timestamp) {
        if let Mode::Leased(engine) = &self.mode {
            engine.refund(key.as_ref(), units, reset_at);
        }
    }

    /// Returns a handle to one key that many threads spend from, which saves finding it. While it exists, the node
    /// keeps the key's slot. Returns `None` if no slot is free or nothing is leased.
    pub fn leased_key(&self, key: impl AsRef<[u8]>) -> Option<LeasedKey<S, C>> {
        let Mode::Leased(engine) = &self.mode else { return None };
        engine.leased_key(key.as_ref())
    }

    /// Gives back all units that this node holds, as far as possible: not those that are still on their way here. For a
    /// node that is about to stop. No effect if nothing is leased.
    pub async fn close(&self) -> Result<(), StoreError> {
        match &self.mode {
            Mode::Strict(_) => Ok(()),
            Mode::Leased(engine) => engine.close().await,
        }
    }

    /// Returns the statistics.
    pub fn stats(&self) -> SharedLimiterStats {
        let leasing = match &self.mode {
            Mode::Strict(_) => Default::default(),
            Mode::Leased(engine) => engine.stats(),
        };
        SharedLimiterStats { answers: self.strict().tallies.read(), leasing }
    }

    /// Returns the approximate current time of the store's clock, which the answers' `reset_at` uses.
    pub fn now(&self) -> Timestamp {
        self.strict().now()
    }

    /// Returns whether charges can be given back: a shaper takes no turns back, and of leased units only those of
    /// windows are refunded.
    pub(crate) fn hands_back(&self) -> bool {
        let takes_back = match &self.mode {
            Mode::Strict(_) => true,
            Mode::Leased(engine) => engine.takes_back(),
        };
        takes_back && self.limits().iter().all(Limit::hands_back)
    }

    /// Returns the guarantee of a decision that this node makes locally.
    pub(crate) fn local_guarantee(&self) -> Guarantee {
        let store = self.store().guarantee();
        match &self.mode {
            Mode::Strict(_) => store,
            Mode::Leased(engine) => engine.worth(store),
        }
    }

    /// Lowers the guarantee of an answer of the store by what is leased.
    fn weighed(&self, answer: Answer) -> Answer {
        match &self.mode {
            Mode::Strict(_) => answer,
            Mode::Leased(engine) => Answer { guarantee: engine.worth(answer.guarantee), ..answer },
        }
    }
}

impl<S, C> SharedLimiter<S, C> {
    /// Returns the limits, in the order in which they were added.
    pub fn limits(&self) -> &[Limit] {
        self.strict().limits()
    }

    /// Returns the name of the limit at this index. The first has the empty name, unless it was given another.
    pub fn limit_name(&self, index: usize) -> Option<&str> {
        self.strict().places.get(index).map(|place| &*place.name)
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        self.strict().store()
    }

    /// Returns the limits as the store counts them, if it is called for every request.
    pub(crate) fn strict_only(&self) -> Option<Arc<Strict<S>>> {
        match &self.mode {
            Mode::Strict(strict) => Some(strict.clone()),
            Mode::Leased(_) => None,
        }
    }

    /// Returns the limits as the store counts them.
    pub(crate) fn strict(&self) -> &Strict<S> {
        match &self.mode {
            Mode::Strict(strict) => strict,
            Mode::Leased(engine) => &engine.strict,
        }
    }
}

impl<S, C> Clone for SharedLimiter<S, C> {
    fn clone(&self) -> Self {
        let mode = match &self.mode {
            Mode::Strict(strict) => Mode::Strict(strict.clone()),
            Mode::Leased(engine) => Mode::Leased(engine.clone()),
        };
        Self { mode }
    }
}

debug_fields!([S, C] SharedLimiter<S, C>, |it| limits = it.limits());
