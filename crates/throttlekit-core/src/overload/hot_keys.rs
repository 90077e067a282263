//! The busiest keys, counted individually.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{CounterSlot, Memory};

/// Keys that may replace each other. Their names fill one cache line.
const WAYS: usize = 8;
/// The name of a slot that was never used.
const NOBODY: u64 = 0;

/// One of the busiest keys, in this window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// Hash that identifies the key.
    pub fingerprint: u64,
    /// Largest number of units it was admitted: those counted individually, and its earlier estimate from the sketch.
    pub admitted: u32,
    /// Number of its requests that were denied while it was counted individually; saturates at 2³²−1. With threads, a
    /// denial while the slot changes owners may count for the next key.
    pub denied: u32,
}

/// A table of fixed size with eight keys in each of its buckets.
#[derive(Debug)]
pub(super) struct HotTable<M: Memory> {
    names: Box<[M::Word]>,
    tallies: Box<[Tally<M>]>,
}

#[derive(Debug)]
struct Tally<M: Memory> {
    /// Units admitted in this window, with the estimate from the sketch.
    used: M::Count,
    denied: M::Count,
}

/// A slot of the table.
pub(super) type SlotAt = usize;

impl<M: Memory> HotTable<M> {
    /// Bytes that a key takes.
    pub(super) const BYTES_PER_KEY: usize = size_of::<M::Word>() + size_of::<Tally<M>>();

    /// Creates a table for at least `keys` keys.
    pub(super) fn new(keys: usize) -> Self {
        let slots = keys.next_multiple_of(WAYS);
        let tally = |_| Tally { used: M::Count::new(0), denied: M::Count::new(0) };
        Self {
            names: (0..slots).map(|_| M::Word::new(NOBODY)).collect(),
            tallies: (0..slots).map(tally).collect(),
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.names.len()
    }

    /// The name under which a key is stored; two of 2⁶⁴ hashes share one.
    #[inline(always)]
    pub(super) fn name(hash: u64) -> u64 {
        hash.max(NOBODY + 1)
    }

    #[inline(always)]
    fn bucket(&self, name: u64) -> core::ops::Range<SlotAt> {
        // The rows of the sketch read the hash from the top; here its lowest bits weigh most.
        let spread = u128::from(name.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * (self.names.len() / WAYS) as u128;
        let first = (spread >> 64) as usize * WAYS;
        first..first + WAYS
    }

    /// Returns the slot in which this key is counted, if it is counted here.
    ///
    /// Reads all eight: the position is not predictable.
    #[inline(always)]
    pub(super) fn find(&self, name: u64) -> Option<SlotAt> {
        let bucket = self.bucket(name);
        let first = bucket.start;
        let names = &self.names[bucket];
        let found = (0..WAYS).fold(WAYS, |found, at| if names[at].get() == name { at } else { found });
        (found < WAYS).then_some(first + found)
    }

    /// Checks whether the slot still belongs to that key.
    #[inline(always)]
    pub(super) fn is(&self, at: SlotAt, name: u64) -> bool {
        self.names[at].get() == name
    }

    #[inline(always)]
    pub(super) fn used(&self, at: SlotAt) -> u32 {
        self.tallies[at].used.get()
    }

    #[inline(always)]
    pub(super) fn set_used(&self, at: SlotAt, used: u32) {
        self.tallies[at].used.set(used);
    }

    pub(super) fn count_denial(&self, at: SlotAt) {
        self.tallies[at].denied.add_one();
    }

    /// The slot in the key's bucket whose key was admitted least.
    pub(super) fn coldest(&self, name: u64) -> SlotAt {
        let bucket = self.bucket(name);
        let first = bucket.start;
        bucket.min_by_key(|at| self.used(*at)).unwrap_or(first)
    }

    /// The key that has this slot, if any.
    pub(super) fn owner(&self, at: SlotAt) -> Option<u64> {
        Some(self.names[at].get()).filter(|name| *name != NOBODY)
    }

    /// Gives a slot to a key, with what it used.
    ///
    /// The name changes first. A reader that looks up the old key and sees the new count sees the new name too; a
    /// reader that looks up the new one may see the old count, which is less, so whatever it denies is denied.
    pub(super) fn hand_over(&self, at: SlotAt, name: u64, used: u32) {
        debug_assert!(used > self.used(at), "only a busier key takes a slot");
        self.names[at].set(name);
        let tally = &self.tallies[at];
        tally.used.set(used);
        tally.denied.set(0);
    }

    /// Resets all use. Names stay: keys that were busy are likely to be busy again.
    pub(super) fn clear(&self) {
        for tally in &self.tallies {
            tally.used.set(0);
            tally.denied.set(0);
        }
    }

    /// Up to `count` keys, the busiest first: by what was admitted and denied together.
    pub(super) fn busiest(&self, count: usize) -> Vec<HotKey> {
        let hot = |at: SlotAt| {
            let Tally { used, denied } = &self.tallies[at];
            self.owner(at).map(|fingerprint| HotKey {
                fingerprint,
                admitted: used.get(),
                denied: denied.get(),
            })
        };
        let mut all: Vec<HotKey> = (0..self.slots()).filter_map(hot).filter(|hot| hot.admitted > 0).collect();
        all.sort_unstable_by_key(|hot| core::cmp::Reverse(u64::from(hot.denied) + u64::from(hot.admitted)));
        all.truncate(count);
        all
    }
}
