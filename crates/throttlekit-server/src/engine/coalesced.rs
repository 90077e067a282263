//! Concurrent decisions over Redis, sent together.
//!
//! A few calls are in flight at a time. While they are, further decisions of all connections gather, and the next call
//! takes them all: one script call decides up to 128, each on its own and in order. Nothing waits for others to gather, so
//! a server with little load sends each decision at once.
//!
//! Not over a cluster, where a batch would wait for the slowest of its nodes, and not over PostgreSQL, where it would be
//! one transaction, and fail as one.

use std::collections::VecDeque;
use std::sync::Arc;

use throttlekit::forward_store;
use throttlekit::internals::Mutex;
use throttlekit::rate::Need;
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::store::{
    Charge, Charges, MembershipStore, Outcome, RegionStore, SlotStore, Store, StoreError,
};
use throttlekit_redis::RedisStore;
use tokio::sync::oneshot;

/// Maximum number of calls in flight.
const CALLS_MAX: usize = 4;
/// Maximum number of decisions in one call: at most some 2 ms of the server's time.
const BATCH_MAX: usize = 128;
/// Maximum number of decisions that wait for a call; one more is rejected.
const WAITING_MAX: usize = 10_000;

/// A store on Redis whose concurrent decisions are sent together.
#[derive(Clone)]
pub struct Coalesced {
    store: RedisStore,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Number of calls in flight.
    calls: usize,
}

impl Queue {
    /// Returns the next batch: those that still wait, the first ones first.
    fn next(&mut self) -> Option<Vec<Waiting>> {
        let mut batch = Vec::new();
        while batch.len() < BATCH_MAX
            && let Some(waiting) = self.waiting.pop_front()
        {
            if !waiting.tell.is_closed() {
                batch.push(waiting);
            }
        }
        (!batch.is_empty()).then_some(batch)
    }
}

/// A decision that waits for its call.
struct Waiting {
    need: Need,
    charges: Vec<(String, ScriptEncoding, u64)>,
    tell: oneshot::Sender<Result<Outcome, StoreError>>,
}

impl Coalesced {
    pub(super) fn new(store: RedisStore) -> Self {
        Self { store, queue: Arc::default() }
    }

    pub(super) fn store(&self) -> &RedisStore {
        &self.store
    }

    /// Decides one request, alone or with others.
    async fn admit_one(&self, ask: &Charges<'_>) -> Result<Outcome, StoreError> {
        let Some(told) = self.join(ask)? else {
            // Its end makes room for those that gathered, also if it is dropped.
            let _call = InFlight(self);
            let outcomes = self.store.admit(&[*ask]).await?;
            return outcomes.into_iter().next().ok_or_else(no_response);
        };
        // The calls before it, and its own.
        Store::background(&self.store).wait(1, told).await?.unwrap_or_else(|_| Err(no_response()))
    }

    /// Waits for a call with others. `None` if there may be one more call at once.
    fn join(&self, ask: &Charges<'_>) -> Result<Option<Told>, StoreError> {
        let mut queue = self.queue.lock();
        if queue.calls < CALLS_MAX {
            queue.calls += 1;
            return Ok(None);
        }
        if queue.waiting.len() >= WAITING_MAX {
            return Err(StoreError::Overloaded);
        }
        let (tell, told) = oneshot::channel();
        let charges = ask.charges.iter().map(|charge| (charge.key.to_owned(), *charge.form, charge.cost));
        queue.waiting.push_back(Waiting { need: ask.need, charges: charges.collect(), tell });
        Ok(Some(told))
    }

    /// Sends those that gathered, until there are none.
    async fn send_all(self) {
        let _call = InFlight(&self);
        while let Some(batch) = self.next() {
            self.send(batch).await;
        }
    }

    fn next(&self) -> Option<Vec<Waiting>> {
        self.queue.lock().next()
    }

    async fn send(&self, batch: Vec<Waiting>) {
        let charges: Vec<Vec<Charge<'_>>> = batch.iter().map(Waiting::charges).collect();
        let each = batch.iter().zip(&charges);
        let asks: Vec<_> = each.map(|(waiting, charges)| Charges { need: waiting.need, charges }).collect();
        let outcomes = self.store.admit_each(&asks).await;
        for (waiting, outcome) in batch.into_iter().zip(outcomes) {
            // Nobody may wait for it any more.
            let _ = waiting.tell.send(outcome);
        }
    }
}

impl Store for Coalesced {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        match asks {
            [ask] if !self.store.is_cluster() => Ok(vec![self.admit_one(ask).await?]),
            asks => self.store.admit(asks).await,
        }
    }

    forward_store!(Store for self => self.store; admit_each, debit, peek, settle, lease, give_back, reset);
    forward_store!(Store for self => self.store; guarantee, local_shares, capabilities, background);
}

impl SlotStore for Coalesced {
    forward_store!(SlotStore for self => self.store; acquire, heartbeat, release, occupancy);
    forward_store!(SlotStore for self => self.store; guarantee, background);
}

impl MembershipStore for Coalesced {
    forward_store!(MembershipStore for self => self.store; load, swap, guarantee, background);
}

impl RegionStore for Coalesced {
    forward_store!(RegionStore for self => self.store; grant, guarantee, background);
}

type Told = oneshot::Receiver<Result<Outcome, StoreError>>;

fn no_response() -> StoreError {
    StoreError::unavailable("the call ended without a response")
}

impl Waiting {
    fn charges(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(|(key, form, cost)| Charge { key, form, cost: *cost }).collect()
    }
}

/// A call in flight. When it ends, however it ends, those that gathered are sent.
struct InFlight<'a>(&'a Coalesced);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        if queue.waiting.is_empty() {
            queue.calls -= 1;
            return;
        }
        drop(queue);
        // It inherits the place of this call.
        Store::background(&self.0.store).spawn(self.0.clone().send_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> (Waiting, Told) {
        let (tell, told) = oneshot::channel();
        (Waiting { need: Need::All, charges: Vec::new(), tell }, told)
    }

    #[test]
    fn batches_are_bounded_in_order_and_without_those_who_left() {
        let mut queue = Queue::default();
        let (calls, mut told): (Vec<_>, Vec<_>) = (0..BATCH_MAX + 3).map(|_| waiting()).unzip();
        queue.waiting.extend(calls);
        told.remove(0);
        assert_eq!(queue.next().map(|batch| batch.len()), Some(BATCH_MAX));
        assert_eq!(queue.next().map(|batch| batch.len()), Some(2));
        assert!(queue.next().is_none());
    }
}
