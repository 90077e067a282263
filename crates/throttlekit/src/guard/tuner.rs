//! The limit of a guard: the inferred one, the external share, and the smaller of both.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Estimator, Sample};

use super::count::{LIMIT_MAX, TURNS};
use super::sampling::SamplingRate;
use super::slots::Slots;
use crate::sync::{AtomicU64, Mutex, MutexGuard};

/// More drops at once have no further effect: the estimate reaches its minimum long before.
const DROPS_AT_ONCE_MAX: u64 = 1_024;

/// Learns from completed calls, one at a time. No caller waits for it: a sample is lost if another one is being
/// processed, a drop is counted and processed by the next caller.
#[derive(Debug)]
pub(super) struct Tuner {
    state: Mutex<TunerState>,
    /// Drops that were not processed yet.
    drops: AtomicU64,
}

#[derive(Debug)]
struct TunerState {
    own: Own,
    /// The share set from outside.
    share: u32,
    /// The total of which that is a share, if the own limit is an estimate of this total.
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

/// Samples and drops of a tuner so far.
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

    /// Caps the limit, whatever is inferred.
    pub(super) fn cap(&self, share: u32, now: Timestamp, slots: &Slots) {
        let mut state = self.state.lock();
        (state.share, state.whole) = (share, None);
        self.leave(state, now, slots);
    }

    /// Caps the limit to a share of a limit that others use as well. The inferred limit is of the total, and not far
    /// above it.
    #[cfg(feature = "store")]
    pub(super) fn cap_of(&self, share: u32, ceiling: u32, now: Timestamp, slots: &Slots) {
        let mut state = self.state.lock();
        (state.share, state.whole) = (share, Some(ceiling));
        if let Own::Inferred(estimator) = &mut state.own {
            estimator.at_most(ceiling.saturating_add((ceiling / 8).max(2)));
        }
        self.leave(state, now, slots);
    }

    /// Sets a fixed limit.
    pub(super) fn fix(&self, limit: u32, now: Timestamp, slots: &Slots) {
        let mut state = self.state.lock();
        state.own = Own::Fixed(limit.min(LIMIT_MAX));
        slots.timed.store(0, Relaxed);
        self.leave(state, now, slots);
    }

    /// Records a success.
    pub(super) fn success(&self, sample: Sample, now: Timestamp, slots: &Slots) {
        if let Some(mut state) = self.state.try_lock() {
            state.learn(sample, now, slots);
            self.leave(state, now, slots);
        }
    }

    /// Records a drop.
    pub(super) fn dropped(&self, now: Timestamp, slots: &Slots) {
        self.drops.fetch_add(1, AcqRel);
        if let Some(state) = self.state.try_lock() {
            self.leave(state, now, slots);
        }
    }

    /// Returns the samples so far, including the drops until now.
    pub(super) fn learnt(&self, now: Timestamp, slots: &Slots) -> Learnt {
        let mut state = self.state.lock();
        state.take_drops(&self.drops, now, slots);
        let learnt = Learnt { own: state.own.limit(), samples: state.samples, dropped: state.dropped };
        self.leave(state, now, slots);
        learnt
    }

    #[cfg(all(test, loom))]
    pub(super) fn unlearnt(&self) -> u64 {
        self.drops.load(Relaxed)
    }

    /// The only way to unlock the state: processes pending drops, and checks again once it is unlocked.
    ///
    /// A thread that drops counts it first and then finds the state locked, and may return: both access the count of
    /// drops by read-modify-write, so either this check sees the drop or that thread saw the state unlocked.
    fn leave<'a>(&'a self, mut state: MutexGuard<'a, TunerState>, now: Timestamp, slots: &Slots) {
        loop {
            state.take_drops(&self.drops, now, slots);
            Self::apply(state, slots);
            if self.drops.fetch_add(0, AcqRel) == 0 {
                return;
            }
            let Some(again) = self.state.try_lock() else { return };
            state = again;
        }
    }

    /// Applies limits in the order in which they were decided, and hands over free slots without the lock.
    fn apply(state: MutexGuard<'_, TunerState>, slots: &Slots) {
        let limit = state.limit().min(LIMIT_MAX);
        let more = slots.count.seen().limit() != limit && slots.set_limit(limit);
        drop(state);
        if more {
            slots.hand_over();
        }
    }
}

impl TunerState {
    /// Returns the smaller of the own limit and the share. If the own limit is of a larger total, the share is reduced
    /// by the same ratio: a dip that measures latency without a queue is then a dip here as well.
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

    /// Takes all pending drops, and samples them at the same rate as successes.
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

    /// Returns the number of turns to time from now on.
    fn keep_pace(&mut self, endings: u32, now: Timestamp, slots: &Slots) -> u32 {
        let timed = slots.timed.load(Relaxed);
        let next = self.pace.after(endings, timed, now);
        if next != timed {
            slots.timed.store(next, Relaxed);
        }
        next
    }
}

/// Drops as samples: while one success in sixteen is sampled, so is one drop in sixteen; otherwise their ratio would
/// seem sixteen times as large as it is.
#[derive(Debug, Default)]
struct Thinned {
    /// Drops not sampled yet, in sixteenths of a sample.
    owed: u64,
}

impl Thinned {
    /// Returns how many samples `drops` count as, while `timed` turns are timed. The remainder is carried over.
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
