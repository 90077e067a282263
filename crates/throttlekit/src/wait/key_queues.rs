//! The queues of all keys, under sharded locks. A queue exists only while a call of its key waits.
//!
//! All changes of a key are made under the lock of its shard. Wakers are called and dropped without it: a waker may drop
//! a future that is in the same queue.

use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::task::Waker;

use hashbrown::HashTable;
use throttlekit_core::Timestamp;
use throttlekit_core::turn::{Departure, Ticket, TurnQueue};

use crate::admit::Denied;
use crate::hash::{KeyHash, SecretHash};
use crate::sync::{AtomicU64, Mutex};

/// Contention needs waiters of many keys on many threads.
#[cfg(not(loom))]
const SHARDS: usize = 16;
#[cfg(loom)]
const SHARDS: usize = 1;

pub(super) struct KeyQueues {
    /// Number of waiters of all keys. While it is zero, calls pass without a lock.
    waiting: AtomicU64,
    max_waiters: u64,
    hash: SecretHash,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    queues: HashTable<KeyQueue>,
    created: u64,
}

struct KeyQueue {
    key: Box<[u8]>,
    hash: u64,
    /// Differs from that of every other queue of the shard, earlier ones of the same key included.
    id: u64,
    turns: TurnQueue<Option<Waker>>,
    /// The last denial of a waiter.
    denied: Denied,
}

/// A position in the queue of a key. Valid until [`KeyQueues::leave`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    hash: u64,
    id: u64,
    ticket: Ticket,
}

/// No more waiters fit. Has the last denial of the key.
#[derive(Debug)]
pub(super) struct Full(pub(super) Denied);

impl KeyQueues {
    pub(super) fn new(max_waiters: usize) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { waiting: AtomicU64::new(0), max_waiters: max_waiters as u64, hash: KeyHash::random(), shards }
    }

    /// Returns the number of waiters.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Acquire)
    }

    /// Joins the queue of a key, if a call of it waits already.
    #[inline]
    pub(super) fn join_waiting(
        &self,
        key: &[u8],
        class: u8,
        now: impl Fn() -> Timestamp,
    ) -> Result<Option<Spot>, Full> {
        if self.waiting() == 0 {
            return Ok(None);
        }
        self.join_present(key, class, now())
    }

    #[cold]
    fn join_present(&self, key: &[u8], class: u8, now: Timestamp) -> Result<Option<Spot>, Full> {
        let hash = self.hash.fingerprint(key);
        let mut shard = self.shard(hash).lock();
        let Some(queue) = shard.queues.find_mut(hash, |queue| *queue.key == *key) else { return Ok(None) };
        if !self.count_one_more() {
            return Err(Full(queue.denied));
        }
        let (spot, waker) = queue.join(class, now);
        drop(shard);
        wake(waker);
        Ok(Some(spot))
    }

    /// Joins the queue of a key after a denial. Creates the queue if there is none.
    pub(super) fn join(&self, key: &[u8], class: u8, denied: Denied, now: Timestamp) -> Result<Spot, Full> {
        let hash = self.hash.fingerprint(key);
        let mut shard = self.shard(hash).lock();
        if !self.count_one_more() {
            return Err(Full(denied));
        }
        let (spot, waker) = shard.queue_of(hash, key, denied).join(class, now);
        drop(shard);
        wake(waker);
        Ok(spot)
    }

    /// Records that a waiter is alive, and stores its waker. If `may_request`, returns whether it is its turn; its
    /// request then is in flight until [`denied`](Self::denied) or [`leave`](Self::leave).
    pub(super) fn poll_turn(&self, spot: Spot, waker: Waker, may_request: bool, now: Timestamp) -> bool {
        let changed = self.change(spot, |queue| {
            let called = queue.turns.see(spot.ticket, now);
            let requests = may_request && queue.turns.request(spot.ticket);
            let before = queue.turns.notify_mut(spot.ticket).and_then(|notify| notify.replace(waker));
            ((requests, before), called)
        });
        changed.is_some_and(|(requests, _before)| requests)
    }

    /// Records that a waiter is alive.
    pub(super) fn see(&self, spot: Spot, now: Timestamp) {
        self.change(spot, |queue| ((), queue.turns.see(spot.ticket, now)));
    }

    /// Ends a request that was denied.
    pub(super) fn denied(&self, spot: Spot, denied: Denied, now: Timestamp) {
        self.change(spot, |queue| {
            queue.denied = denied;
            ((), queue.turns.denied(spot.ticket, now))
        });
    }

    /// Returns the last denial of a waiter of the key.
    pub(super) fn last_denial(&self, spot: Spot) -> Option<Denied> {
        self.change(spot, |queue| (queue.denied, None))
    }

    /// Leaves the queue, and passes the turn on. The last waiter removes the queue.
    pub(super) fn leave(&self, spot: Spot, departure: Departure, now: Timestamp) {
        let mut shard = self.shard(spot.hash).lock();
        let Ok(mut entry) = shard.queues.find_entry(spot.hash, |queue| queue.id == spot.id) else { return };
        let queue = entry.get_mut();
        let own = queue.turns.notify_mut(spot.ticket).and_then(Option::take);
        let called = queue.turns.leave(spot.ticket, departure, now);
        let waker = queue.waker_of(called, spot.ticket);
        if queue.turns.is_empty() {
            entry.remove();
        }
        self.waiting.fetch_sub(1, AcqRel);
        drop(shard);
        drop(own);
        wake(waker);
    }

    /// Changes the queue of a waiter, then wakes the waiter that was called by the change.
    fn change<T>(&self, spot: Spot, by: impl FnOnce(&mut KeyQueue) -> (T, Option<Ticket>)) -> Option<T> {
        let mut shard = self.shard(spot.hash).lock();
        let queue = shard.queues.find_mut(spot.hash, |queue| queue.id == spot.id)?;
        let (result, called) = by(queue);
        let waker = queue.waker_of(called, spot.ticket);
        drop(shard);
        wake(waker);
        Some(result)
    }

    /// Counts a waiter, if it is not one too many.
    fn count_one_more(&self) -> bool {
        let one_more = |waiting| (waiting < self.max_waiters).then_some(waiting + 1);
        self.waiting.fetch_update(AcqRel, Acquire, one_more).is_ok()
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The table inside a shard uses the other bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl Shard {
    fn queue_of(&mut self, hash: u64, key: &[u8], denied: Denied) -> &mut KeyQueue {
        let Self { queues, created } = self;
        let entry = queues.entry(hash, |queue| *queue.key == *key, |queue| queue.hash);
        let queue = entry.or_insert_with(|| {
            *created += 1;
            KeyQueue { key: key.into(), hash, id: *created, turns: TurnQueue::default(), denied }
        });
        queue.into_mut()
    }
}

impl KeyQueue {
    fn join(&mut self, class: u8, now: Timestamp) -> (Spot, Option<Waker>) {
        let (ticket, called) = self.turns.join(class, None, now);
        (Spot { hash: self.hash, id: self.id, ticket }, self.waker_of(called, ticket))
    }

    /// Returns the waker of the waiter that was called. One that called itself needs none.
    fn waker_of(&mut self, called: Option<Ticket>, own: Ticket) -> Option<Waker> {
        self.turns.notify_mut(called.filter(|called| *called != own)?)?.take()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

debug_fields!([] KeyQueues, |it| waiting = it.waiting());
