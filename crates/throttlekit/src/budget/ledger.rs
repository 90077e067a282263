//! What all streams of a budget share: the store, and which streams are open.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throttlekit_core::lease::{Epoch, Margin, Purse, Return, ReturnId, Term, UNITS_HELD_MAX, Want};
use throttlekit_core::rate::shared::SharedForm;
use throttlekit_core::rate::{Rule as _, State};
use throttlekit_core::{Cost, Timestamp};

use super::learners::Learners;
use super::stats::Counters;
use crate::hash::random_u128;
use crate::store::{Background, GiveBack, LeaseAsk, Lent, Store, StoreError};
use crate::sync::SharedWord;
use crate::{KeyHash, LeaseClock, SecretHash, SharedLimiter};

/// How often a return is sent. It has a name and counts once, however often it arrives.
pub(super) const RETURN_TRIES_MAX: u32 = 4;
/// How long to wait before it is sent again.
const RETURN_PAUSE: Duration = Duration::from_millis(100);
/// How many open streams of a key are looked at to say whether one of them may give back what a denied one needs.
const LOOKED_AT_MAX: usize = 64;

/// Marks [`Ledger::ahead`] as unknown: the store has not answered yet.
const AHEAD_UNKNOWN: i64 = i64::MIN;

/// The open streams, those of a key beside each other.
type Streams = BTreeMap<(Arc<str>, u128), Arc<Slip>>;

pub(super) struct Ledger<S, C> {
    pub(super) shared: SharedLimiter<S>,
    /// The limit that tokens are set aside from: it counts together with the budget, and nothing crosses its edge.
    set_aside: SharedForm,
    pub(super) clock: C,
    margin: Margin,
    /// Nanoseconds by which the store's clock was ahead of `clock` when it last lent; [`AHEAD_UNKNOWN`] before.
    ahead: AtomicI64,
    pub(super) learners: Learners,
    pub(super) silence_max: Duration,
    streams_max: usize,
    open: Mutex<Streams>,
    returning: Returning,
    hash: SecretHash,
    pub(super) counters: Counters,
}

/// What is set aside for one stream, spent by the stream and taken back by whoever holds the list of open streams.
pub(super) struct Slip {
    /// The key as the store keeps it.
    pub(super) key: Arc<str>,
    pub(super) purse: Purse<SharedWord>,
    /// The window that the purse was filled from.
    epoch: AtomicU64,
    /// When the stream was last heard of, in nanoseconds.
    stirred_at: AtomicU64,
}

/// Tokens on their way back, by key.
type Returning = Arc<Mutex<BTreeMap<Arc<str>, Cost>>>;

/// Tokens on their way back, under a name by which they count once.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    key: Arc<str>,
    back: Return,
    id: ReturnId,
    /// Until the last copy of this is gone they are neither held nor back.
    _counted: Arc<Counted>,
}

/// Counts tokens as on their way back, until it is dropped.
#[derive(Debug)]
struct Counted {
    returning: Returning,
    key: Arc<str>,
    units: Cost,
}

impl Counted {
    fn new(returning: &Returning, key: &Arc<str>, units: Cost) -> Arc<Self> {
        *all_of(returning).entry(key.clone()).or_default() += units;
        Arc::new(Self { returning: returning.clone(), key: key.clone(), units })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = all_of(&self.returning);
        if let Some(units) = all.get_mut(&self.key) {
            *units -= self.units;
            if *units == 0 {
                all.remove(&self.key);
            }
        }
    }
}

/// Nothing under it runs code of others, so a panic leaves nothing half done.
fn all_of(returning: &Returning) -> MutexGuard<'_, BTreeMap<Arc<str>, Cost>> {
    returning.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Store, C: LeaseClock> Ledger<S, C> {
    pub(super) fn new(
        shared: SharedLimiter<S>,
        set_aside: SharedForm,
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
            silence_max: Duration::MAX,
            streams_max: usize::MAX,
            open: Mutex::default(),
            returning: Returning::default(),
            hash: SecretHash::random(),
            counters: Counters::default(),
        }
    }

    pub(super) fn bounded(self, streams_max: usize, silence_max: Duration) -> Self {
        Self { streams_max, silence_max, ..self }
    }

    /// Where its returner and its requests run.
    pub(super) fn background(&self) -> Background {
        self.shared.store().background()
    }

    pub(super) fn fingerprint(&self, key: &[u8]) -> u64 {
        self.hash.fingerprint(key)
    }

    /// What to request for a stream: at least one token, so that a budget that is spent admits nobody.
    pub(super) fn want(&self, fingerprint: u64, hint: Option<u64>) -> Want {
        let budget = self.set_aside.limit().units().min(UNITS_HELD_MAX);
        self.learners.want(fingerprint, hint, budget, self.window_left())
    }

    /// Estimates the time until the store's window ends. Only the size of a request depends on it: the deadline of a loan
    /// comes from the store.
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

    /// Enters a stream for which nothing is set aside yet, unless too many are open.
    pub(super) fn enter(&self, stream: u128, key: &[u8]) -> Option<Arc<Slip>> {
        let slip = Arc::new(Slip {
            key: self.shared.key(key).into(),
            purse: Purse::new(),
            epoch: AtomicU64::new(Epoch::NONE.0),
            stirred_at: AtomicU64::new(self.clock.now().as_nanos()),
        });
        let mut open = self.streams();
        if open.len() >= self.streams_max {
            return None;
        }
        open.insert((slip.key.clone(), stream), slip.clone());
        Some(slip)
    }

    /// Sets tokens aside at the store. The request is sent at `sent`.
    pub(super) async fn lend(&self, key: &str, want: Want, sent: Timestamp) -> Result<Lent, StoreError> {
        let ask = LeaseAsk { key, form: &self.set_aside, term: Term::Window, want };
        let lent = self.shared.store().lease(&[ask]).await.pop();
        let lent = lent.ok_or_else(|| StoreError::bad_state("the store left an ask without an answer"))??;
        self.note_clock(lent.now, sent);
        Ok(lent)
    }

    /// Credits what was lent to a request that was sent at `sent`. It lives no longer than its window.
    pub(super) fn credit(&self, slip: &Slip, lent: &Lent, sent: Timestamp) {
        let Some(lives) = lent.loan.lives else { return };
        self.counters.tokens_reserved.fetch_add(lent.loan.granted, Relaxed);
        let _one_at_a_time = self.streams();
        slip.epoch.store(lent.loan.epoch.0, Relaxed);
        slip.purse.fill(lent.loan.granted, self.margin.deadline(sent, lives), false);
    }

    /// Strikes a stream off, and says what is left of what was set aside for it.
    pub(super) fn leave(&self, stream: u128, key: &Arc<str>) -> Option<Owed> {
        let mut open = self.streams();
        open.remove(&(key.clone(), stream))?.hand_in(self.clock.now(), &self.returning)
    }

    /// What is set aside for streams of this key that are open here, and goes back when they end; and what is on its way
    /// back.
    pub(super) fn held_for(&self, key: &Arc<str>) -> Cost {
        let now = self.clock.now();
        let open = self.streams();
        let of_key = open.range((key.clone(), 0)..=(key.clone(), u128::MAX)).take(LOOKED_AT_MAX);
        let held = of_key.map(|(_, slip)| slip.purse.left(now)).fold(0, Cost::saturating_add);
        held.saturating_add(all_of(&self.returning).get(key).copied().unwrap_or(0))
    }

    /// What is set aside for streams that have fallen silent.
    pub(super) fn silent(&self, now: Timestamp) -> Vec<Owed> {
        let open = self.streams();
        let silent = open.values().filter(|slip| now.since(slip.stirred_at()) >= self.silence_max);
        let owed: Vec<_> = silent.filter_map(|slip| slip.hand_in(now, &self.returning)).collect();
        self.counters.silenced.fetch_add(owed.len() as u64, Relaxed);
        owed
    }

    /// Gives tokens back. What cannot be given back lapses with its window.
    pub(super) async fn give_back(&self, owed: &[Owed]) -> Result<(), StoreError> {
        let form = &self.set_aside;
        let backs: Vec<_> =
            owed.iter().map(|owed| GiveBack { key: &owed.key, form, id: owed.id, back: owed.back }).collect();
        let mut tries = 1;
        loop {
            match self.send_back(&backs).await {
                Err(error) if error.may_pass() && tries < RETURN_TRIES_MAX => tries += 1,
                done => return done,
            }
            tokio::time::sleep(RETURN_PAUSE).await;
        }
    }

    async fn send_back(&self, backs: &[GiveBack<'_>]) -> Result<(), StoreError> {
        self.counters.returns.fetch_add(1, Relaxed);
        self.shared.store().give_back(backs).await?;
        self.counters.tokens_returned.fetch_add(backs.iter().map(|given| given.back.units).sum(), Relaxed);
        Ok(())
    }

    pub(super) fn open_now(&self) -> usize {
        self.streams().len()
    }

    /// Nothing under it runs code of others, so a panic leaves nothing half done.
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slip {
    /// The stream was heard of.
    pub(super) fn stir(&self, now: Timestamp) {
        self.stirred_at.store(now.as_nanos(), Relaxed);
    }

    fn stirred_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.stirred_at.load(Relaxed))
    }

    /// Takes out what is still alive. A purse is filled and emptied by one thread at a time, with the list of streams in
    /// hand.
    fn hand_in(&self, now: Timestamp, returning: &Returning) -> Option<Owed> {
        let units = self.purse.empty(now);
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
