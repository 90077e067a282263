//! A request on its way to the store and back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::lease::{Reply, Request};
use tokio::time::timeout;

use super::engine::Tier;
use crate::LeaseClock;
use crate::store::{LeaseAsk, Lent, Store, StoreError};

/// One request for units of one key. However it ends, the state learns of it, and everyone who waits wakes up.
pub(super) struct Fetch<S: Store, C: LeaseClock + 'static> {
    tier: Arc<Tier<S, C>>,
    fingerprint: u64,
    request: Request,
    landed: bool,
}

impl<S: Store, C: LeaseClock + 'static> Fetch<S, C> {
    /// Sends it, as a background task: callers come and go. Not to be called while the state is locked: a
    /// runtime that takes no more tasks drops this one at once, and then locks the state.
    pub(super) fn start(tier: &Arc<Tier<S, C>>, fingerprint: u64, key: Arc<str>, request: Request) {
        let fetch = Self { tier: tier.clone(), fingerprint, request, landed: false };
        let deadline = tier.background.deadline();
        tier.background.spawn(async move {
            let answer = timeout(deadline, fetch.ask(&key)).await;
            fetch.land(answer.unwrap_or(Err(StoreError::Deadline(deadline))));
        });
    }

    async fn ask(&self, key: &str) -> Result<Lent, StoreError> {
        let (form, term) = (self.tier.shared.form(), self.tier.plan.term);
        self.tier.counters.leases.fetch_add(1, Relaxed);
        let ask = LeaseAsk { key, form, term, want: self.request.want };
        let mut answers = self.tier.shared.store().lease(&[ask]).await;
        answers.pop().unwrap_or_else(|| Err(StoreError::bad_state("the store left an ask without an answer")))
    }

    fn land(mut self, answer: Result<Lent, StoreError>) {
        self.landed = true;
        match answer {
            Ok(lent) => self.credit(&lent),
            Err(error) => self.fail(error),
        }
    }

    fn credit(&self, lent: &Lent) {
        let tier = &self.tier;
        tier.shared.note_time(lent.now);
        tier.counters.units_lent.fetch_add(lent.loan.granted, Relaxed);
        // A key whose request is under way keeps its place.
        let Some(place) = tier.table.find(self.fingerprint) else { return };
        let slot = place.slot;
        let reply = slot.state().reply(slot, self.request.id, lent, tier.clock.now());
        if reply != Reply::Credited {
            tier.counters.units_lapsed.fetch_add(lent.loan.granted, Relaxed);
        }
        slot.bell.notify_waiters();
    }

    fn fail(&self, error: StoreError) {
        self.tier.counters.failures.fetch_add(1, Relaxed);
        let Some(place) = self.tier.table.find(self.fingerprint) else { return };
        place.slot.state().failed(self.request.id, error);
        place.slot.bell.notify_waiters();
    }
}

/// Dropped before its answer came: it panicked, or its runtime ended.
impl<S: Store, C: LeaseClock + 'static> Drop for Fetch<S, C> {
    fn drop(&mut self) {
        if !self.landed {
            self.fail(StoreError::unavailable("the request was dropped before it was answered"));
        }
    }
}
