//! The limit of a guard: the inference, the share from outside, and the least of both.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{PoisonError, TryLockError};

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Estimator, Sample};

use super::count::{LIMIT_MAX, TURNS};
use super::sampling::SamplingRate;
use super::slots::Slots;
use crate::sync::{AtomicU64, Mutex, MutexGuard};

/// More drops at once teach nothing more: the estimate is at its least long before.
const DROPS_AT_ONCE_MAX: u64 = 1_024;

/// Learns from endings, one at a time. Nobody waits for it: a sample that finds another one being learnt is lost, a drop
/// is counted and learnt by whoever comes next.
#[derive(Debug)]
pub(super) struct Tuner {
    state: Mutex<TunerState>,
    /// Drops that were not learnt yet.
    drops: AtomicU64,
}

#[derive(Debug)]
struct TunerState {
    own: Own,
    /// What another authority leaves of it.
    share: u32,
    /// Of how many that is a share, where the own limit is of these.
    whole: Option<u32>,
    pace: SamplingRate,
    thinned: Thinned,
    samples: u64,
    dropped: u64,
}

/// The limit before the share.
#[derive(Debug)]
pub(super) enum Own {
    Fixed(u32),
    Inferred(Box<Estimator>),
}

/// What a tuner has seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Learnt {
    pub(super) own: u32,
    pub(super) samples: u64,
    pub(super) dropped: u64,
}

impl Own {
    pub(super) fn limit(&self) -> u32 {
        match self {
            Self::Fixed(limit) => *limit,
            Self::Inferred(estimator) => estimator.limit(),
        }
    }
}

impl Tuner {
    pub(super) fn new(own: Own) -> Self {
        let state = TunerState {
            own,
            share: u32::MAX,
            whole: None,
            pace: SamplingRate::default(),
            thinned: Thinned::default(),
            samples: 0,
            dropped: 0,
        };
        Self { state: Mutex::new(state), drops: AtomicU64::new(0) }
    }

    /// At most so many, whatever is inferred.
    pub(super) fn cap(&self, share: u32, now: Timestamp, slots: &Slots) {
        let mut state = self.lock();
        (state.share, state.whole) = (share, None);
        self.leave(state, now, slots);
    }

    /// A share of a ceiling that others use as well. What is inferred here is of all of it, and not far above it.
    #[cfg(feature = "store")]
    pub(super) fn cap_of(&self, share: u32, ceiling: u32, now: Timestamp, slots: &Slots) {
        let mut state = self.lock();
        (state.share, state.whole) = (share, Some(ceiling));
        if let Own::Inferred(estimator) = &mut state.own {
            estimator.at_most(ceiling.saturating_add((ceiling / 8).max(2)));
        }
        self.leave(state, now, slots);
    }

    /// So many, fixed.
    pub(super) fn fix(&self, limit: u32, now: Timestamp, slots: &Slots) {
        let mut state = self.lock();
        state.own = Own::Fixed(limit.min(LIMIT_MAX));
        slots.timed.store(0, Relaxed);
        self.leave(state, now, slots);
    }

    /// Work was done.
    pub(super) fn success(&self, sample: Sample, now: Timestamp, slots: &Slots) {
        if let Some(mut state) = self.try_lock() {
            state.learn(sample, now, slots);
            self.leave(state, now, slots);
        }
    }

    /// Work was dropped.
    pub(super) fn dropped(&self, now: Timestamp, slots: &Slots) {
        self.drops.fetch_add(1, AcqRel);
        if let Some(state) = self.try_lock() {
            self.leave(state, now, slots);
        }
    }

    /// What was learnt, the drops until now among it.
    pub(super) fn learnt(&self, now: Timestamp, slots: &Slots) -> Learnt {
        let mut state = self.lock();
        state.take_drops(&self.drops, now, slots);
        let learnt = Learnt { own: state.own.limit(), samples: state.samples, dropped: state.dropped };
        self.leave(state, now, slots);
        learnt
    }

    #[cfg(all(test, loom))]
    pub(super) fn unlearnt(&self) -> u64 {
        self.drops.load(Relaxed)
    }

    /// The only way to unlock the state: learns the drops that nobody has, and looks again once it is unlocked.
    ///
    /// Who drops counts it first and then finds the state locked, and may go: both touch the count of drops by
    /// read-modify-write, so either this look sees the drop or the one who dropped saw the state unlocked.
    fn leave<'a>(&'a self, mut state: MutexGuard<'a, TunerState>, now: Timestamp, slots: &Slots) {
        loop {
            state.take_drops(&self.drops, now, slots);
            Self::apply(state, slots);
            if self.drops.fetch_add(0, AcqRel) == 0 {
                return;
            }
            let Some(again) = self.try_lock() else { return };
            state = again;
        }
    }

    /// Puts the limit in force, in the order in which it was decided, and hands over what came free without the lock.
    fn apply(state: MutexGuard<'_, TunerState>, slots: &Slots) {
        let limit = state.limit().min(LIMIT_MAX);
        let more = slots.count.seen().limit() != limit && slots.set_limit(limit);
        drop(state);
        if more {
            slots.hand_over();
        }
    }

    fn lock(&self) -> MutexGuard<'_, TunerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, TunerState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl TunerState {
    /// The least of the own limit and the share. An own limit that is of more than this guard lets in counts by as much as
    /// it is below that: a dip that shows how long work takes without a queue is then a dip here as well.
    fn limit(&self) -> u32 {
        let (own, share) = (u64::from(self.own.limit()), u64::from(self.share));
        match self.whole.map(u64::from) {
            Some(whole) if own < whole => ((share * own + whole / 2) / whole) as u32,
            Some(_) => self.share,
            None => own.min(share) as u32,
        }
    }

    fn learn(&mut self, sample: Sample, now: Timestamp, slots: &Slots) {
        let Own::Inferred(estimator) = &mut self.own else { return };
        estimator.success(sample, now);
        self.samples += 1;
        let timed = slots.timed.load(Relaxed).max(1);
        self.keep_pace(TURNS / timed, now, slots);
    }

    /// Takes all drops there are, and learns as many of them as of successes.
    fn take_drops(&mut self, drops: &AtomicU64, now: Timestamp, slots: &Slots) {
        let taken = drops.swap(0, AcqRel);
        self.dropped += taken;
        if taken == 0 || matches!(self.own, Own::Fixed(_)) {
            return;
        }
        let timed = self.keep_pace(u32::try_from(taken).unwrap_or(u32::MAX), now, slots);
        let learnt = self.thinned.learnt(taken, timed).min(DROPS_AT_ONCE_MAX);
        if let Own::Inferred(estimator) = &mut self.own {
            (0..learnt).for_each(|_| _ = estimator.dropped(now));
        }
    }

    /// How many turns are timed from now on.
    fn keep_pace(&mut self, endings: u32, now: Timestamp, slots: &Slots) -> u32 {
        let timed = slots.timed.load(Relaxed);
        let next = self.pace.after(endings, timed, now);
        if next != timed {
            slots.timed.store(next, Relaxed);
        }
        next
    }
}

/// Drops as samples: while one success in sixteen is one, so is one drop, or their part of all endings would seem sixteen
/// times as large as it is.
#[derive(Debug, Default)]
struct Thinned {
    /// What was not learnt yet, in sixteenths of a sample.
    owed: u64,
}

impl Thinned {
    /// How many samples so many drops are, while so many turns are timed. What is left over stays owed.
    fn learnt(&mut self, drops: u64, timed: u32) -> u64 {
        self.owed = self.owed.saturating_add(drops.saturating_mul(timed.into()));
        let learnt = self.owed / u64::from(TURNS);
        self.owed %= u64::from(TURNS);
        learnt
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::sampling::{ALL, FEW};
    use super::*;

    #[test]
    fn drops_are_as_many_samples_as_successes_are() {
        let mut thinned = Thinned::default();
        assert_eq!(thinned.learnt(10, ALL), 10);
        assert_eq!([15, 1, 15, 17].map(|drops| thinned.learnt(drops, FEW)), [0, 1, 0, 2]);
        assert_eq!((0..1_600).map(|_| thinned.learnt(1, FEW)).sum::<u64>(), 100);
    }
}
