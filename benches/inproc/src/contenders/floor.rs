//! The minimum cost of a check: clock, hash, one cache line, one compare-and-swap. No growth, no expiry, no
//! policy; a full limiter costs more, and these rows show how much.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;
use throttlekit::clock::{Clock, CoarseClock};

use super::{Check, consumed};
use crate::os;
use crate::workloads::Stream;

const SLOTS: usize = 1 << 21;
const UNIT: u64 = 10_000_000_000;
const DEPTH: u64 = 4_000_000_000_000_000_000;

/// A clock without a unit.
pub trait Now: Sync {
    /// Returns the time.
    fn now(&self) -> u64;
}

/// The processor's counter, unscaled.
pub struct Ticks;

impl Now for Ticks {
    #[inline(always)]
    fn now(&self) -> u64 {
        os::ticks()
    }
}

impl Now for CoarseClock {
    #[inline(always)]
    fn now(&self) -> u64 {
        Clock::now(self).as_nanos()
    }
}

/// The decision of a floor: allowed or not, and the units left.
type Answer = (bool, u64);

/// One word and a clock.
pub struct Word<N> {
    tat: AtomicU64,
    clock: N,
}

impl<N> Word<N> {
    /// Creates an unused word.
    pub fn new(clock: N) -> Self {
        Self { tat: AtomicU64::new(0), clock }
    }
}

impl<N: Now> Check for Word<N> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        usize::from(consumed(charge(&self.tat, self.clock.now())).0)
    }
}

/// One atomic subtraction: the minimum for threads that share units.
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter of more units than any run subtracts.
    pub fn new() -> Self {
        Self(AtomicU64::new(1 << 40))
    }
}

impl Check for Counter {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.fetch_sub(1, Relaxed)) > 0)
    }
}

#[inline(always)]
fn charge(tat: &AtomicU64, now: u64) -> Answer {
    let mut seen = tat.load(Relaxed);
    loop {
        let next = seen.max(now) + UNIT;
        let Some(left) = (now + DEPTH).checked_sub(next) else { return (false, 0) };
        match tat.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
            Ok(_) => return (true, left),
            Err(other) => seen = other,
        }
    }
}

/// Fingerprints beside words, open addressing, no removal.
pub struct Table<N> {
    slots: Box<[Slot]>,
    hash: RandomState,
    clock: N,
}

#[derive(Default)]
#[repr(align(16))]
struct Slot {
    fingerprint: AtomicU64,
    tat: AtomicU64,
}

impl<N: Now> Table<N> {
    /// Creates an empty table.
    pub fn new(clock: N) -> Self {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Self { slots, hash: RandomState::default(), clock }
    }

    #[inline(always)]
    fn fingerprint(&self, key: &str) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish() | 1
    }

    #[inline(always)]
    fn slot(&self, fingerprint: u64) -> &Slot {
        let mut index = (fingerprint >> 32) as usize;
        loop {
            let slot = &self.slots[index & (SLOTS - 1)];
            let held = slot.fingerprint.load(Relaxed);
            if held == fingerprint || (held == 0 && slot.claim(fingerprint)) {
                return slot;
            }
            index += 1;
        }
    }

    #[inline(always)]
    fn ask(&self, key: &str) -> Answer {
        let slot = self.slot(self.fingerprint(key));
        charge(&slot.tat, self.clock.now())
    }
}

impl Slot {
    #[cold]
    fn claim(&self, fingerprint: u64) -> bool {
        match self.fingerprint.compare_exchange(0, fingerprint, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(other) => other == fingerprint,
        }
    }
}

impl<N: Now> Check for Table<N> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.ask(stream.string(at))).0)
    }

    fn seed(&self, key: &str) {
        self.ask(key);
    }
}

/// Sixteen keys: hash and prefetch all, read the clock once, then charge.
pub struct By16<N>(pub Table<N>);

impl<N: Now> Check for By16<N> {
    const KEYS: usize = 16;
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let fingerprints: [u64; 16] = std::array::from_fn(|i| self.0.fingerprint(stream.string(at + i)));
        for fingerprint in fingerprints {
            os::prefetch(&self.0.slots[(fingerprint >> 32) as usize & (SLOTS - 1)]);
        }
        let now = self.0.clock.now();
        let answer = |fingerprint| consumed(charge(&self.0.slot(fingerprint).tat, now)).0;
        fingerprints.into_iter().map(|fingerprint| usize::from(answer(fingerprint))).sum()
    }

    fn seed(&self, key: &str) {
        self.0.ask(key);
    }
}
