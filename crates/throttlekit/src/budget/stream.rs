//! A running stream.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::lease::{Draw, LocalLease, Spend, Want};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::handle::Opened;
use super::ledger::{Ledger, Owed, RETURN_TRIES_MAX, Slip};
use super::returner::Returns;
use crate::Answer;
use crate::call::Part;
use crate::clock::LeaseClock;
use crate::store::{DebitId, Leased, Store, StoreError};
use crate::sync::SharedWord;

/// Maximum number of attempts for a debit. It carries an idempotency key and counts once.
const DEBIT_TRIES_MAX: u32 = 3;

/// Proof that a stream was admitted, held while it produces tokens.
///
/// Settled when it is dropped: a background task of the budget returns the rest of the reservation, and the learner
/// records the number of tokens. If no runtime is left to do that, or the process ends, the rest expires with its
/// window. A stream that was cut short counts for the learner with what it produced.
pub struct TokenStream<S: Store, C: LeaseClock + 'static> {
    ledger: Arc<Ledger<S, C>>,
    slip: Arc<Slip>,
    returns: Returns,
    id: u128,
    key: Box<[u8]>,
    hint: Option<u64>,
    /// `true` once the stream was handed to the caller: then the learner records it.
    teaches: bool,
    produced: u64,
    opened_at: Timestamp,
    /// The time from then to the last allowed chunk. Later time, such as a denial or a handle kept open, is not
    /// throughput.
    lasted: Duration,
    /// The last debit sent to the store, by number, and its tokens while it is neither allowed nor responded to.
    sent: (u64, Option<u64>),
    /// Time at which the whole budget is available again, by the store's clock.
    reset_at: Timestamp,
    /// Tokens to return, until that is done.
    owed: Option<Owed>,
}

impl<S: Store, C: LeaseClock + 'static> TokenStream<S, C> {
    pub(super) fn new(
        ledger: Arc<Ledger<S, C>>,
        slip: Arc<Slip>,
        returns: Returns,
        id: u128,
        key: &[u8],
        hint: Option<u64>,
    ) -> Self {
        Self {
            opened_at: ledger.clock.now(),
            ledger,
            slip,
            returns,
            id,
            key: key.into(),
            hint,
            teaches: false,
            produced: 0,
            lasted: Duration::ZERO,
            sent: (0, None),
            reset_at: Timestamp::EPOCH,
            owed: None,
        }
    }

    /// Reserves tokens, and becomes a stream if there are enough. While the store does not respond, the fallback
    /// decides whether it may start, and nothing is reserved.
    pub(super) async fn reserve(mut self) -> Result<Opened<S, C>, StoreError> {
        let ledger = &self.ledger;
        let want = ledger.want(ledger.fingerprint(&self.key), self.hint);
        let sent = ledger.clock.now();
        let answer = match ledger.lend(&self.slip.key, want, sent).await {
            Ok(lent) if lent.loan.granted > 0 => self.credit(&lent, sent),
            Ok(lent) => self.denial(&lent, want),
            Err(error) => ledger.shared.strict().without_store(&[Part { key: &self.key, cost: 0 }], error)?,
        };
        let (admitted, counters) = (answer.decision.allowed, &self.ledger.counters);
        let counter = if admitted { &counters.opened } else { &counters.denied };
        counter.fetch_add(1, Relaxed);
        let stream = admitted.then_some(self);
        Ok(Opened { answer, stream })
    }

    /// Marks the stream as handed to the caller. One that no caller received does not count as a stream of zero tokens.
    pub(super) fn hand_over(&mut self) {
        self.teaches = true;
    }

    fn credit(&mut self, lent: &Leased, sent: Timestamp) -> Answer {
        self.reset_at = lent.loan.decision.reset_at;
        self.ledger.credit(&self.slip, lent, sent);
        self.ledger.shared.strict().answered(lent.now, lent.loan.decision)
    }

    /// Returns the denial. The store reports when the window ends; reservations of other streams here may be returned
    /// earlier.
    fn denial(&self, lent: &Leased, want: Want) -> Answer {
        let mut decision = lent.loan.decision;
        let held = self.ledger.held_for(&self.slip.key);
        if held > 0 && held.saturating_add(decision.remaining) >= want.least {
            decision.retry_after = Retry::OnRelease;
        }
        self.ledger.shared.strict().answered(lent.now, decision)
    }

    /// Decides a chunk of tokens, and charges it if allowed. Call it before the chunk is sent; after a denial stop
    /// generating.
    ///
    /// Within the reservation this makes no call to the store. Beyond it the store decides: a chunk passes while the
    /// budget has any tokens left, those reserved for this stream included, and is counted in full. A debit without a
    /// response is retried with its idempotency key, up to three times, and counts once; then
    /// [`OnOutage`](crate::OnOutage) decides. If the same number of tokens is debited again after that denied, or after
    /// this future was dropped, the same idempotency key is used.
    ///
    /// A denial has [`Retry::OnRelease`] while tokens are reserved for other streams of this process: one that ends may
    /// return them before the window ends.
    pub async fn debit(&mut self, tokens: u64) -> Result<Answer, StoreError> {
        let slip = self.slip.clone();
        let drawn = Drawn::of(&slip.local_lease, tokens);
        let now = self.ledger.clock.now();
        slip.stir(now);
        let part = drawn.alive(now);
        let mut answer = if part == tokens { self.local() } else { self.debit_beyond(tokens - part).await? };
        if answer.decision.allowed {
            drawn.spend();
        } else if answer.outage.is_none() && part > 0 {
            drop(drawn);
            answer = self.debit_whole(tokens, answer).await?;
        }
        if answer.decision.allowed {
            self.produced = self.produced.saturating_add(tokens);
            self.lasted = now.since(self.opened_at);
        } else if answer.outage.is_none() && self.ledger.held_for(&self.slip.key) > 0 {
            // Any token that another stream here returns lets the next chunk pass.
            answer.decision.retry_after = Retry::OnRelease;
        }
        Ok(answer)
    }

    /// Retries a denied chunk after returning the reservation. That may be all that the budget has left, and the chunk
    /// may then exceed the budget; otherwise the last tokens could never be used.
    async fn debit_whole(&mut self, tokens: u64, denied: Answer) -> Result<Answer, StoreError> {
        if self.return_reserve().await.is_err() {
            return Ok(denied);
        }
        self.debit_beyond(tokens).await
    }

    /// Reports that the stream is active, though it has nothing to debit.
    pub fn heartbeat(&self) {
        self.slip.stir(self.ledger.clock.now());
    }

    /// Returns the rest of the reservation, and reports whether that was counted. If not, or if this future is dropped,
    /// it is retried in the background.
    pub async fn settle(mut self) -> Result<(), StoreError> {
        self.return_reserve().await
    }

    async fn return_reserve(&mut self) -> Result<(), StoreError> {
        self.hand_in();
        if let Some(owed) = self.owed.clone() {
            let ledger = self.ledger.clone();
            let back = async move { ledger.give_back(&[owed]).await };
            self.ledger.background().run(RETURN_TRIES_MAX, back).await??;
            self.owed = None;
        }
        Ok(())
    }

    /// Returns the tokens allowed so far.
    pub fn produced(&self) -> u64 {
        self.produced
    }

    /// Returns the reserved tokens that can still be spent.
    pub fn reserved(&self) -> u64 {
        self.slip.local_lease.left(self.ledger.clock.now())
    }

    fn local(&self) -> Answer {
        let shared = &self.ledger.shared;
        let decision = Decision {
            allowed: true,
            limit: shared.limits()[0].units(),
            remaining: self.slip.local_lease.units(),
            reset_at: self.reset_at,
            retry_after: Retry::Now,
        };
        let guarantee = shared.store().guarantee();
        Answer::new(decision, guarantee, shared.now())
    }

    /// Debits tokens that are not reserved, or lets the fallback decide.
    async fn debit_beyond(&mut self, tokens: u64) -> Result<Answer, StoreError> {
        if self.sent.1 != Some(tokens) {
            self.sent = (self.sent.0 + 1, Some(tokens));
        }
        let answer = match self.send(tokens, self.sent.0).await {
            Ok(answer) => answer,
            Err(error) => {
                let part = Part { key: &self.key, cost: tokens };
                self.ledger.shared.strict().without_store(&[part], error)?
            }
        };
        // A chunk that passed is not retried, whatever the store would decide.
        if answer.decision.allowed || answer.outage.is_none() {
            self.sent.1 = None;
        }
        Ok(answer)
    }

    /// Sends a debit until the store responds, up to a maximum number of attempts.
    async fn send(&self, tokens: u64, number: u64) -> Result<Answer, StoreError> {
        let id = DebitId { stream: self.id, number };
        let mut tries = 1;
        loop {
            self.ledger.counters.debits.fetch_add(1, Relaxed);
            match self.ledger.shared.strict().try_debit(&self.slip.key, tokens, id).await {
                Err(error) if error.may_pass() && tries < DEBIT_TRIES_MAX => tries += 1,
                done => return done,
            }
        }
    }

    /// Removes the stream from the open streams. Once: a second call has no effect.
    fn hand_in(&mut self) {
        if let Some(owed) = self.ledger.leave(self.id, &self.slip.key) {
            self.owed = Some(owed);
        }
    }
}

impl<S: Store, C: LeaseClock + 'static> Drop for TokenStream<S, C> {
    fn drop(&mut self) {
        self.hand_in();
        if let Some(owed) = self.owed.take() {
            // No task to return it, or a full queue: it expires with its window.
            let _ = self.returns.send(owed);
        }
        if self.teaches {
            let fingerprint = self.ledger.fingerprint(&self.key);
            self.ledger.learners.observe(fingerprint, self.hint, self.produced, self.lasted);
        }
    }
}

debug_fields!(
    [S: Store, C: LeaseClock + 'static] TokenStream<S, C>,
    |it| produced = it.produced, reserved = it.reserved()
);

/// Tokens taken for a chunk. If it is denied, or its future is dropped, they are put back.
struct Drawn<'a> {
    local_lease: &'a LocalLease<SharedWord>,
    draw: Draw,
}

impl<'a> Drawn<'a> {
    fn of(local_lease: &'a LocalLease<SharedWord>, tokens: u64) -> Self {
        Self { local_lease, draw: local_lease.draw(tokens) }
    }

    /// Returns how many of them can still be spent at `now`, which was read after they were taken.
    fn alive(&self, now: Timestamp) -> u64 {
        let units = self.draw.units();
        match { self.draw }.spend(units, || now) {
            Spend::Spent { .. } => units,
            Spend::Short | Spend::Lapsed => 0,
        }
    }

    fn spend(mut self) {
        self.draw = Draw::default();
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        if self.draw.units() > 0 {
            self.local_lease.put_back(self.draw);
        }
    }
}
