//! What a stream holds while it runs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::lease::{Draw, Purse, Spend, Want};
use throttlekit_core::{Cost, Decision, Retry, Timestamp};

use super::handle::Opened;
use super::ledger::{Ledger, Owed, RETURN_TRIES_MAX, Slip};
use super::returner::Returns;
use crate::store::{DebitId, Lent, Store, StoreError};
use crate::sync::SharedWord;
use crate::{Answer, Ask, LeaseClock};

/// How often a debit is sent. It has a name and counts once, however often it arrives.
const DEBIT_TRIES_MAX: u32 = 3;

/// Proof that a stream was admitted, held while it produces tokens.
///
/// Settled when it is dropped: what is left of what was set aside is given back by a task of the budget's own, and the
/// learner is told how many tokens there were. Where no runtime is left to do that, and where a process ends, what is left
/// lapses with its window. A stream that was cut short counts for the learner with what it produced.
pub struct TokenStream<S: Store, C: LeaseClock + 'static> {
    ledger: Arc<Ledger<S, C>>,
    slip: Arc<Slip>,
    returns: Returns,
    id: u128,
    key: Box<[u8]>,
    hint: Option<u64>,
    /// Whether the learner hears of it: once it has been handed over to whoever asked.
    teaches: bool,
    produced: Cost,
    opened_at: Timestamp,
    /// The time from then to the last allowed chunk. Later time, such as a denial or a handle kept open, is not throughput.
    lasted: Duration,
    /// The last debit that was sent to the store, by number, and its tokens while nobody has allowed or answered it.
    sent: (u64, Option<Cost>),
    /// When the whole budget is free again, by the store's clock.
    reset_at: Timestamp,
    /// What is to be given back, until it has been.
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

    /// Sets tokens aside, and becomes a stream if there are enough. While the store does not answer, whatever stands in
    /// for it says whether to begin, and nothing is set aside.
    pub(super) async fn reserve(mut self) -> Result<Opened<S, C>, StoreError> {
        let ledger = &self.ledger;
        let want = ledger.want(ledger.fingerprint(&self.key), self.hint);
        let sent = ledger.clock.now();
        let answer = match ledger.lend(&self.slip.key, want, sent).await {
            Ok(lent) if lent.loan.granted > 0 => self.credit(&lent, sent),
            Ok(lent) => self.denial(&lent, want),
            Err(error) => ledger.shared.without_store([Ask { key: &self.key, cost: 0 }], error)?,
        };
        let (admitted, counters) = (answer.decision.allowed, &self.ledger.counters);
        let counter = if admitted { &counters.opened } else { &counters.denied };
        counter.fetch_add(1, Relaxed);
        let stream = admitted.then_some(self);
        Ok(Opened { answer, stream })
    }

    /// Whoever asked for it has it. What nobody took is no stream of no tokens.
    pub(super) fn hand_over(&mut self) {
        self.teaches = true;
    }

    fn credit(&mut self, lent: &Lent, sent: Timestamp) -> Answer {
        self.reset_at = lent.loan.decision.reset_at;
        self.ledger.credit(&self.slip, lent, sent);
        self.ledger.shared.answered(lent.now, lent.loan.decision)
    }

    /// The store says when the window ends. What is set aside for other streams here may come back before.
    fn denial(&self, lent: &Lent, want: Want) -> Answer {
        let mut decision = lent.loan.decision;
        let held = self.ledger.held_for(&self.slip.key);
        if held > 0 && held.saturating_add(decision.remaining) >= want.least {
            decision.retry_after = Retry::OnRelease;
        }
        self.ledger.shared.answered(lent.now, decision)
    }

    /// Answers for a chunk of tokens, and charges it if allowed. Ask before the chunk is passed on; after a denial stop
    /// generating.
    ///
    /// From what is set aside this takes no call to the store. Beyond that the store decides: a chunk passes while the
    /// budget has any tokens left, those set aside for this stream among them, and is counted in full. A debit that gets
    /// no answer is sent again under its name, up to three times, and counts once; then
    /// [`OnOutage`](crate::OnOutage) answers. If the same number of tokens is debited again after that refused, or after
    /// this was dropped while it waited, it goes under the same name.
    ///
    /// A denial says [`Retry::OnRelease`] while tokens are set aside for other streams of this process: one that ends may
    /// give them back before the window ends.
    pub async fn debit(&mut self, tokens: Cost) -> Result<Answer, StoreError> {
        let slip = self.slip.clone();
        let drawn = Drawn::of(&slip.purse, tokens);
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
            // Any token that another stream here gives back lets the next chunk pass.
            answer.decision.retry_after = Retry::OnRelease;
        }
        Ok(answer)
    }

    /// Asks again for a chunk that was denied, after giving back what is set aside. That may be all that the budget has
    /// left, and the chunk may then cross the edge; otherwise the last tokens could never be used.
    async fn debit_whole(&mut self, tokens: Cost, denied: Answer) -> Result<Answer, StoreError> {
        if self.return_reserve().await.is_err() {
            return Ok(denied);
        }
        self.debit_beyond(tokens).await
    }

    /// Says that the stream goes on, though it has nothing to debit.
    pub fn heartbeat(&self) {
        self.slip.stir(self.ledger.clock.now());
    }

    /// Gives back what is left of what was set aside, and says whether that was counted. If not, or if this is dropped
    /// while it waits, it is tried again in the background.
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

    /// Tokens that were allowed so far.
    pub fn produced(&self) -> Cost {
        self.produced
    }

    /// Tokens that are set aside and can still be spent.
    pub fn reserved(&self) -> Cost {
        self.slip.purse.left(self.ledger.clock.now())
    }

    fn local(&self) -> Answer {
        let shared = &self.ledger.shared;
        let decision = Decision {
            allowed: true,
            limit: shared.limits()[0].units(),
            remaining: self.slip.purse.units(),
            reset_at: self.reset_at,
            retry_after: Retry::Now,
        };
        let guarantee = shared.store().guarantee();
        Answer { decision, binding: 0, guarantee, now: shared.now(), outage: None, receipt: None }
    }

    /// Debits what is not set aside, or lets whatever stands in for the store answer.
    async fn debit_beyond(&mut self, tokens: Cost) -> Result<Answer, StoreError> {
        if self.sent.1 != Some(tokens) {
            self.sent = (self.sent.0 + 1, Some(tokens));
        }
        let answer = match self.send(tokens, self.sent.0).await {
            Ok(answer) => answer,
            Err(error) => self.ledger.shared.without_store([Ask { key: &self.key, cost: tokens }], error)?,
        };
        // A chunk that passed is not tried again, whatever the store would say of it.
        if answer.decision.allowed || answer.outage.is_none() {
            self.sent.1 = None;
        }
        Ok(answer)
    }

    /// Sends a debit until an answer comes, but only so often.
    async fn send(&self, tokens: Cost, number: u64) -> Result<Answer, StoreError> {
        let id = DebitId { stream: self.id, number };
        let mut tries = 1;
        loop {
            self.ledger.counters.debits.fetch_add(1, Relaxed);
            match self.ledger.shared.try_debit(&self.slip.key, tokens, id).await {
                Err(error) if error.may_pass() && tries < DEBIT_TRIES_MAX => tries += 1,
                done => return done,
            }
        }
    }

    /// Strikes the stream off the list. Once: the second time there is nothing left.
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
            // Nobody to give it back, or too many before it: it lapses with its window.
            let _ = self.returns.send(owed);
        }
        if self.teaches {
            let fingerprint = self.ledger.fingerprint(&self.key);
            self.ledger.learners.observe(fingerprint, self.hint, self.produced, self.lasted);
        }
    }
}

impl<S: Store, C: LeaseClock + 'static> std::fmt::Debug for TokenStream<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenStream")
            .field("produced", &self.produced)
            .field("reserved", &self.reserved())
            .finish_non_exhaustive()
    }
}

/// Tokens taken out for a chunk. If that does not pass, or is not waited for, they go back where they came from.
struct Drawn<'a> {
    purse: &'a Purse<SharedWord>,
    draw: Draw,
}

impl<'a> Drawn<'a> {
    fn of(purse: &'a Purse<SharedWord>, tokens: Cost) -> Self {
        Self { purse, draw: purse.draw(tokens) }
    }

    /// How many of them can still be spent at `now`, which was read after they were taken out.
    fn alive(&self, now: Timestamp) -> Cost {
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
            self.purse.put_back(self.draw);
        }
    }
}
