//! The primitives that the lock-free part is built on, so that loom can take their place and run every
//! interleaving.

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic::AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

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
