//! The public token budget type.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::{Decision, Retry};

use super::builder::TokenBudgetBuilder;
use super::ledger::Ledger;
use super::returner::{self, Returns};
use super::stats::BudgetStats;
use super::stream::TokenStream;
use crate::clock::{BootClock, LeaseClock};
use crate::hash::random_u128;
use crate::policy::TokenLimit;
use crate::store::{Store, StoreError};
use crate::{Answer, SharedLimiter};

/// A token budget over state that many processes share, spent by streams. See [the module](super).
pub struct TokenBudget<S, C = BootClock> {
    ledger: Arc<Ledger<S, C>>,
    /// The mailbox of the returner, which the first stream starts.
    returns: Returns,
}

/// The result of opening a stream.
#[derive(Debug)]
pub struct Opened<S: Store, C: LeaseClock + 'static> {
    /// The decision; for a denial, with its reason and retry time.
    pub answer: Answer,
    /// The stream, if it was admitted.
    pub stream: Option<TokenStream<S, C>>,
}

impl<S: Store> TokenBudget<S> {
    /// Creates a builder of a budget for each of many keys. The policy's name separates its keys from those of others on the
    /// store; a [`SharedLimiter`] of the same policy and limit shares its counts.
    pub fn builder(store: S, policy: &str, limit: impl Into<TokenLimit>) -> TokenBudgetBuilder<S> {
        TokenBudgetBuilder::new(store, policy, limit.into())
    }
}

impl<S: Store, C: LeaseClock + 'static> TokenBudget<S, C> {
    pub(super) fn new(ledger: Ledger<S, C>) -> Self {
        let ledger = Arc::new(ledger);
        Self { returns: Arc::new(returner::mailbox(&ledger)), ledger }
    }

    /// Opens a stream: reserves tokens for it in one call to the store. `hint` is the expected number of tokens, if
    /// known; it is trusted as far as hints have been right.
    ///
    /// A denial reports the start of the budget's next window. That is the latest time: streams of other processes may
    /// return tokens earlier. If open streams of the key in this process may return enough when they end, the denial
    /// has `OnRelease`, and `reset_at` is the end of the window; likewise if too many streams are open here. Cancel
    /// safe: if the future is dropped, the reservation is returned, and the learner records nothing.
    pub async fn open(&self, key: impl AsRef<[u8]>, hint: Option<u64>) -> Result<Opened<S, C>, StoreError> {
        let (ledger, key) = (&self.ledger, key.as_ref());
        let id = random_u128();
        let Some(slip) = ledger.enter(id, key) else {
            ledger.counters.denied.fetch_add(1, Relaxed);
            return Ok(Opened { answer: self.too_many(), stream: None });
        };
        self.returns.wake();
        let stream = TokenStream::new(ledger.clone(), slip, self.returns.clone(), id, key, hint);
        // In a task of its own, which completes whether or not the caller waits for it.
        let mut opened = ledger.background().run(1, stream.reserve()).await??;
        opened.stream.iter_mut().for_each(TokenStream::hand_over);
        Ok(opened)
    }

    /// Returns the counters.
    pub fn stats(&self) -> BudgetStats {
        BudgetStats { open: self.ledger.open_now() as u64, ..self.ledger.counters.read() }
    }

    /// Returns the limiter that calls the store.
    pub fn shared(&self) -> &SharedLimiter<S> {
        &self.ledger.shared
    }

    fn too_many(&self) -> Answer {
        let shared = self.shared();
        let (now, limit) = (shared.now(), shared.limits()[0].units());
        let decision =
            Decision { allowed: false, limit, remaining: 0, reset_at: now, retry_after: Retry::OnRelease };
        let guarantee = shared.store().guarantee();
        Answer::new(decision, guarantee, now)
    }
}

clone_fields!([S, C] TokenBudget<S, C>, ledger, returns);

debug_fields!([S: Store, C: LeaseClock + 'static] TokenBudget<S, C>, |it| stats = it.stats());
