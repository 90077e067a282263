//! The state that all streams of a budget share: the store, and the open streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Epoch, LocalLease, Margin, Return, ReturnId, Term, UNITS_HELD_MAX, Want};
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Rule as _, State};

use super::learners::Learners;
use super::stats::Counters;
use crate::SharedLimiter;
use crate::clock::LeaseClock;
use crate::hash::{KeyHash, SecretHash, random_u128};
use crate::store::{Background, LeaseRequest, LeaseReturn, Leased, Store, StoreError};
use crate::sync::{Mutex, SharedWord};

/// Maximum number of attempts for a return. It carries an idempotency key and counts once.
pub(super) const RETURN_TRIES_MAX: u32 = 4;
/// Pause before a return is retried.
const RETURN_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of open streams of a key to check for tokens that they may return to a denied one.
const LOOKED_AT_MAX: usize = 64;

/// Value of [`Ledger::ahead`] while it is unknown: the store has not responded yet.
const AHEAD_UNKNOWN: i64 = i64::MIN;

/// The open streams, those of a key next to each other.
type Streams = BTreeMap<(Arc<str>, u128), Arc<Slip>>;

pub(super) struct Ledger<S, C> {
    pub(super) shared: SharedLimiter<S>,
    /// The limit for reservations: it shares its counts with the budget, and no reservation exceeds it.
    set_aside: ScriptEncoding,
    pub(super) clock: C,
    margin: Margin,
    /// Nanoseconds by which the store's clock was ahead of `clock` at the last loan; [`AHEAD_UNKNOWN`] before.
    ahead: AtomicI64,
    pub(super) learners: Learners,
    pub(super) idle_timeout: Duration,
    streams_max: usize,
    open: Mutex<Streams>,
    returning: Returning,
    hash: SecretHash,
    pub(super) counters: Counters,
}

/// The reservation of one stream, spent by the stream and reclaimed under the lock of the open streams.
pub(super) struct Slip {
    /// The key in the store's encoding.
    pub(super) key: Arc<str>,
    pub(super) local_lease: LocalLease<SharedWord>,
    /// The window that the local reservation was taken from.
    epoch: AtomicU64,
    /// Time of the last activity of the stream, in nanoseconds.
    stirred_at: AtomicU64,
}

/// Tokens being returned, by key.
type Returning = Arc<Mutex<BTreeMap<Arc<str>, u64>>>;

/// Tokens being returned, with an idempotency key, so that they count once.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    key: Arc<str>,
    back: Return,
    id: ReturnId,
    /// Until the last copy is dropped, the tokens are neither held nor returned.
    _counted: Arc<Counted>,
}

/// Counts tokens as being returned, until it is dropped.
#[derive(Debug)]
struct Counted {
    returning: Returning,
    key: Arc<str>,
    units: u64,
}

impl Counted {
    fn new(returning: &Returning, key: &Arc<str>, units: u64) -> Arc<Self> {
        *returning.lock().entry(key.clone()).or_default() += units;
        Arc::new(Self { returning: returning.clone(), key: key.clone(), units })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.returning.lock();
        if let Some(units) = all.get_mut(&self.key) {
            *units -= self.units;
            if *units == 0 {
                all.remove(&self.key);
            }
        }
    }
}

impl<S: Store, C: LeaseClock> Ledger<S, C> {
    pub(super) fn new(
        shared: SharedLimiter<S>,
        set_aside: ScriptEncoding,
        clock: C,
        margin: Margin,
        learners: Learners,
    ) -> Self {
        Self {
            shared,
            set_aside,
            clock,
            margin,
            ahead: AtomicI64::new(AHEAD_UNKNOWN),
            learners,
            idle_timeout: Duration::MAX,
            streams_max: usize::MAX,
            open: Mutex::default(),
            returning: Returning::default(),
            hash: SecretHash::random(),
            counters: Counters::default(),
        }
    }

    pub(super) fn bounded(self, streams_max: usize, idle_timeout: Duration) -> Self {
        Self { streams_max, idle_timeout, ..self }
    }

    /// Returns the background that its returner and its requests run on.
    pub(super) fn background(&self) -> Background {
        self.shared.store().background()
    }

    pub(super) fn fingerprint(&self, key: &[u8]) -> u64 {
        self.hash.fingerprint(key)
    }

    /// Returns the size of the reservation to request: at least one token, so that an exhausted budget admits no
    /// stream.
    pub(super) fn want(&self, fingerprint: u64, hint: Option<u64>) -> Want {
        let budget = self.set_aside.limit().units().min(UNITS_HELD_MAX);
        self.learners.want(fingerprint, hint, budget, self.window_left())
    }

    /// Estimates the time until the store's window ends. Only the size of a request depends on it: the deadline of a
    /// loan comes from the store.
    fn window_left(&self) -> Option<Duration> {
        let ahead = Some(self.ahead.load(Relaxed)).filter(|ahead| *ahead != AHEAD_UNKNOWN)?;
        let now = Timestamp::from_nanos(self.clock.now().as_nanos().saturating_add_signed(ahead));
        Some(self.set_aside.limit().decide(&State::default(), 0, now).reset_at.since(now))
    }

    /// Records that the store's clock read `theirs` for a request sent at `sent`.
    fn note_clock(&self, theirs: Timestamp, sent: Timestamp) {
        let ahead = i128::from(theirs.as_nanos()) - i128::from(sent.as_nanos());
        self.ahead.store(i64::try_from(ahead).unwrap_or(AHEAD_UNKNOWN), Relaxed);
    }

    /// Adds a stream without a reservation, unless too many are open.
    pub(super) fn enter(&self, stream: u128, key: &[u8]) -> Option<Arc<Slip>> {
        let slip = Arc::new(Slip {
            key: self.shared.strict().key(key).into(),
            local_lease: LocalLease::new(),
            epoch: AtomicU64::new(Epoch::NONE.0),
            stirred_at: AtomicU64::new(self.clock.now().as_nanos()),
        });
        let mut open = self.open.lock();
        if open.len() >= self.streams_max {
            return None;
        }
        open.insert((slip.key.clone(), stream), slip.clone());
        Some(slip)
    }

    /// Reserves tokens at the store. The request is sent at `sent`.
    pub(super) async fn lend(&self, key: &str, want: Want, sent: Timestamp) -> Result<Leased, StoreError> {
        let ask = LeaseRequest { key, form: &self.set_aside, term: Term::Window, want };
        let lent = self.shared.store().lease(&[ask]).await.pop();
        let lent = lent.ok_or_else(|| StoreError::bad_state("the store returned too few results"))??;
        self.note_clock(lent.now, sent);
        Ok(lent)
    }

    /// Credits the loan for a request that was sent at `sent`. It expires with its window at the latest.
    pub(super) fn credit(&self, slip: &Slip, lent: &Leased, sent: Timestamp) {
        let Some(lives) = lent.loan.lives else { return };
        self.counters.tokens_reserved.fetch_add(lent.loan.granted, Relaxed);
        let _one_at_a_time = self.open.lock();
        slip.epoch.store(lent.loan.epoch.0, Relaxed);
        slip.local_lease.fill(lent.loan.granted, self.margin.deadline(sent, lives), false);
    }

    /// Removes a stream, and returns the rest of its reservation.
    pub(super) fn leave(&self, stream: u128, key: &Arc<str>) -> Option<Owed> {
        let mut open = self.open.lock();
        open.remove(&(key.clone(), stream))?.hand_in(self.clock.now(), &self.returning)
    }

    /// Returns the tokens reserved for open streams of this key in this process, which are returned when they end, plus
    /// those being returned.
    pub(super) fn held_for(&self, key: &Arc<str>) -> u64 {
        let now = self.clock.now();
        let open = self.open.lock();
        let of_key = open.range((key.clone(), 0)..=(key.clone(), u128::MAX)).take(LOOKED_AT_MAX);
        let held = of_key.map(|(_, slip)| slip.local_lease.left(now)).fold(0, u64::saturating_add);
        held.saturating_add(self.returning.lock().get(key).copied().unwrap_or(0))
    }

    /// Reclaims the reservations of idle streams.
    pub(super) fn silent(&self, now: Timestamp) -> Vec<Owed> {
        let open = self.open.lock();
        let silent = open.values().filter(|slip| now.since(slip.stirred_at()) >= self.idle_timeout);
        let owed: Vec<_> = silent.filter_map(|slip| slip.hand_in(now, &self.returning)).collect();
        self.counters.silenced.fetch_add(owed.len() as u64, Relaxed);
        owed
    }

    /// Returns tokens to the store. Tokens that cannot be returned expire with their window.
    pub(super) async fn give_back(&self, owed: &[Owed]) -> Result<(), StoreError> {
        let form = &self.set_aside;
        let backs: Vec<_> = owed
            .iter()
            .map(|owed| LeaseReturn { key: &owed.key, form, id: owed.id, back: owed.back })
            .collect();
        let mut tries = 1;
        loop {
            match self.send_back(&backs).await {
                Err(error) if error.may_pass() && tries < RETURN_TRIES_MAX => tries += 1,
                done => return done,
            }
            tokio::time::sleep(RETURN_PAUSE).await;
        }
    }

    async fn send_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        self.counters.returns.fetch_add(1, Relaxed);
        self.shared.store().give_back(backs).await?;
        self.counters.tokens_returned.fetch_add(backs.iter().map(|given| given.back.units).sum(), Relaxed);
        Ok(())
    }

    pub(super) fn open_now(&self) -> usize {
        self.open.lock().len()
    }
}

impl Slip {
    /// Records activity of the stream.
    pub(super) fn stir(&self, now: Timestamp) {
        self.stirred_at.store(now.as_nanos(), Relaxed);
    }

    fn stirred_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.stirred_at.load(Relaxed))
    }

    /// Takes the unexpired rest of the reservation. It is filled and emptied by one thread at a time, under the lock of
    /// the open streams.
    fn hand_in(&self, now: Timestamp, returning: &Returning) -> Option<Owed> {
        let units = self.local_lease.empty(now);
        let epoch = Epoch(self.epoch.load(Relaxed));
        let back = Return { epoch, units };
        (units > 0 && epoch != Epoch::NONE).then(|| Owed {
            key: self.key.clone(),
            back,
            id: ReturnId(random_u128()),
            _counted: Counted::new(returning, &self.key, units),
        })
    }
}
