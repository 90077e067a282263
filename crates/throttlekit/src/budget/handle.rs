//! What users hold.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::rate::{Limit, LimitError};
use throttlekit_core::{Decision, Retry};

use super::builder::BudgetBuilder;
use super::ledger::Ledger;
use super::returner::{self, Returns};
use super::stats::BudgetStats;
use super::stream::TokenStream;
use crate::hash::random_u128;
use crate::store::{Store, StoreError};
use crate::{Answer, BootClock, LeaseClock, SharedLimiter};

/// A token budget over state that many processes share, spent by streams. See [the module](super).
pub struct TokenBudget<S, C = BootClock> {
    ledger: Arc<Ledger<S, C>>,
    /// The way to the returner, which the first stream starts.
    returns: Returns,
}

/// The answer to who wants to begin a stream.
#[derive(Debug)]
pub struct Opened<S: Store, C: LeaseClock + 'static> {
    /// Whether it may begin; if not, why and when.
    pub answer: Answer,
    /// The stream, if it may.
    pub stream: Option<TokenStream<S, C>>,
}

impl<S: Store> TokenBudget<S> {
    /// Describes a budget for each of many keys. The policy's name tells its keys apart from those of others on the store;
    /// a [`SharedLimiter`] of the same policy and limit counts together with it.
    pub fn builder<L: TryInto<Limit>>(store: S, policy: &str, limit: L) -> BudgetBuilder<S>
    where
        LimitError: From<L::Error>,
    {
        BudgetBuilder::new(store, policy, limit.try_into().map_err(LimitError::from))
    }
}

impl<S: Store, C: LeaseClock + 'static> TokenBudget<S, C> {
    pub(super) fn new(ledger: Ledger<S, C>) -> Self {
        let ledger = Arc::new(ledger);
        Self { returns: Arc::new(returner::mailbox(&ledger)), ledger }
    }

    /// Begins a stream: sets tokens aside for it in one call to the store. `hint` is how many it is expected to
    /// produce, if anything is known; it is trusted as far as hints have been right.
    ///
    /// A denial says when the budget's next window begins. That is the latest: streams of other processes may give back
    /// something before. Where streams of the key that are open here may give back enough when they end, it says
    /// `OnRelease`, and `reset_at` has the window's end; so it does where too many streams are open here. Whoever goes away while this waits leaves nothing behind: what is set aside then goes back, and the learner hears nothing.
    pub async fn open(&self, key: impl AsRef<[u8]>, hint: Option<u64>) -> Result<Opened<S, C>, StoreError> {
        let (ledger, key) = (&self.ledger, key.as_ref());
        let id = random_u128();
        let Some(slip) = ledger.enter(id, key) else {
            ledger.counters.denied.fetch_add(1, Relaxed);
            return Ok(Opened { answer: self.too_many(), stream: None });
        };
        self.returns.wake();
        let stream = TokenStream::new(ledger.clone(), slip, self.returns.clone(), id, key, hint);
        // As a task of its own, which lands whether or not anyone waits for it.
        let mut opened = ledger.background().run(1, stream.reserve()).await??;
        opened.stream.iter_mut().for_each(TokenStream::hand_over);
        Ok(opened)
    }

    /// What has been done.
    pub fn stats(&self) -> BudgetStats {
        self.ledger.counters.read(self.ledger.open_now())
    }

    /// The limiter that asks the store.
    pub fn shared(&self) -> &SharedLimiter<S> {
        &self.ledger.shared
    }

    fn too_many(&self) -> Answer {
        let shared = self.shared();
        let (now, limit) = (shared.now(), shared.limits()[0].units());
        let decision =
            Decision { allowed: false, limit, remaining: 0, reset_at: now, retry_after: Retry::OnRelease };
        let guarantee = shared.store().guarantee();
        Answer { decision, binding: 0, guarantee, now, outage: None, receipt: None }
    }
}

impl<S, C> Clone for TokenBudget<S, C> {
    fn clone(&self) -> Self {
        Self { ledger: self.ledger.clone(), returns: self.returns.clone() }
    }
}

impl<S: Store, C: LeaseClock + 'static> std::fmt::Debug for TokenBudget<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenBudget").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
