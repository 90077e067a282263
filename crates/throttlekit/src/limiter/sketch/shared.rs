//! Memory that threads share: one may write at a time, all may read.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use throttlekit_core::overload::{CounterSlot, Memory};

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
macro_rules! shared_slot {
    ($slot:ty, $atomic:ty, $number:ty) => {
        impl CounterSlot<$number> for $slot {
            fn new(value: $number) -> Self {
                Self(<$atomic>::new(value))
            }
            #[inline(always)]
            fn get(&self) -> $number {
                self.0.load(Acquire)
            }
            #[inline(always)]
            fn set(&self, value: $number) {
                self.0.store(value, Release);
            }
            #[inline(always)]
            fn add_one(&self) {
                _ = self.0.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
            }
        }
    };
}
shared_slot!(SharedCount, AtomicU32, u32);
shared_slot!(SharedWord, AtomicU64, u64);
