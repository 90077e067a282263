//! Memory that threads share.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use throttlekit_core::overload::{CounterSlot, Memory, SharedCounter, SketchLimit};

use super::latch::rest;
use crate::sync::{AtomicU32, AtomicU64};

/// Words shared by threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared;

#[derive(Debug)]
pub(super) struct SharedCount(AtomicU32);
#[derive(Debug)]
pub(super) struct SharedWord(AtomicU64);

impl Memory for Shared {
    type Count = SharedCount;
    type Word = SharedWord;
}

/// A reader of a number also sees everything that was written before it: above all, its window.
/// Bit of a counter that a thread has claimed. Counts end below it.
const CLAIMED: u32 = SketchLimit::UNITS_MAX + 1;

impl CounterSlot<u32> for SharedCount {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    #[inline(always)]
    fn get(&self) -> u32 {
        self.0.load(Acquire) & !CLAIMED
    }
    #[inline(always)]
    fn set(&self, value: u32) {
        self.0.store(value, Release);
    }
    #[inline(always)]
    fn add_one(&self) {
        _ = self
            .0
            .fetch_update(Relaxed, Relaxed, |count| (count < SketchLimit::UNITS_MAX).then(|| count + 1));
    }
}

impl SharedCounter for SharedCount {
    #[inline(always)]
    fn claim(&self) -> u32 {
        self.try_claim().unwrap_or_else(|| self.claim_later())
    }
    #[inline(always)]
    fn release(&self, value: u32) {
        self.0.store(value, Release);
    }
    #[inline(always)]
    fn raise(&self, value: u32) {
        self.0.fetch_max(value, Release);
    }
}

impl SharedCount {
    #[inline(always)]
    fn try_claim(&self) -> Option<u32> {
        let count = self.0.load(Relaxed);
        let is_free = count & CLAIMED == 0;
        (is_free && self.0.compare_exchange(count, count | CLAIMED, Acquire, Relaxed).is_ok())
            .then_some(count)
    }

    #[cold]
    #[inline(never)]
    fn claim_later(&self) -> u32 {
        let mut rests = 0;
        loop {
            rest(&mut rests);
            if let Some(count) = self.try_claim() {
                return count;
            }
        }
    }
}

impl CounterSlot<u64> for SharedWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    #[inline(always)]
    fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
    #[inline(always)]
    fn set(&self, value: u64) {
        self.0.store(value, Release);
    }
    #[inline(always)]
    fn add_one(&self) {
        _ = self.0.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
    }
}
