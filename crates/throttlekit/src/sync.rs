//! The primitives that the lock-free part is built on, so that loom can take their place and run every
//! interleaving.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64},
};

#[cfg(feature = "store")]
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// A [`Word`](throttlekit_core::lease::Word) that threads share.
#[cfg(feature = "store")]
pub(crate) struct SharedWord(AtomicU64);

#[cfg(feature = "store")]
impl throttlekit_core::lease::Word for SharedWord {
    #[inline(always)]
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    #[inline(always)]
    fn load(&self) -> u64 {
        self.0.load(Acquire)
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.0.store(value, Release);
    }

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, AcqRel)
    }

    #[inline(always)]
    fn take(&self, value: u64) -> u64 {
        self.0.fetch_sub(value, AcqRel)
    }

    #[inline(always)]
    fn replace(&self, current: u64, new: u64) -> Result<(), u64> {
        self.0.compare_exchange(current, new, AcqRel, Acquire).map(drop)
    }
}

/// Waits for another thread to finish a handful of instructions.
#[cfg(not(loom))]
pub(crate) fn pause(spins: &mut u32) {
    const SPINS_BEFORE_YIELD: u32 = 64;
    *spins = spins.saturating_add(1);
    if *spins < SPINS_BEFORE_YIELD {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
pub(crate) fn pause(_spins: &mut u32) {
    loom::thread::yield_now();
}
