//! The primitives that everything else is built on: locks without poisoning, and the atomics that loom can replace to run
//! every interleaving.

#[cfg(loom)]
use loom::sync as primitives;
#[cfg(not(loom))]
use std::sync as primitives;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

pub use primitives::MutexGuard;
pub(crate) use primitives::atomic::{AtomicU32, AtomicU64};

/// A mutex that ignores poisoning. Its value is consistent after a panic: rules finish what they begin, and a map
/// changes in one step.
#[derive(Debug, Default)]
pub struct Mutex<T>(primitives::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a mutex around a value.
    pub fn new(value: T) -> Self {
        Self(primitives::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it unless another thread has.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value without a lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader-writer lock that ignores poisoning, for the same reason. Not replaced by loom.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates a lock around a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    /// Waits until no thread writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no thread reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "store")]
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// A [`Word`](throttlekit_core::lease::Word) shared by threads.
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
