//! The most frequent of any number of keys, in fixed memory.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// The busiest of any number of keys, each with a count and its maximum error: Space-Saving.
///
/// Each of `k` slots holds a key. A key without one replaces the least frequent key, and inherits its count. After `n`
/// counted keys, whatever they were:
///
/// * the key of a slot came at most [`Heavy::count`] times, and at least [`Heavy::at_least`]: count − error;
/// * no error is above `n / k`, rounded down;
/// * every key that came more than `n / k` times has a slot.
///
/// A key is identified by its bytes, if they are no more than [`KEY_BYTES`](Self::KEY_BYTES). Of a longer one those
/// first bytes are kept, and it is identified by them, its length and its hash: two that share all of it count as one,
/// and the bounds apply to their sum.
///
/// Counting takes a constant number of steps for any number of slots: the slots are sorted by count, a count grows by
/// one, and so a slot moves only to the front of those with an equal count.
///
/// ```
/// use throttlekit_core::overload::SpaceSaving;
///
/// let mut busiest = SpaceSaving::new(2);
/// for (hash, key) in [(1, "alice"), (2, "bob"), (1, "alice"), (3, "carol")] {
///     busiest.count(hash, key.as_bytes());
/// }
/// let first = busiest.iter().next().expect("someone came");
/// assert_eq!((first.key, first.count, first.error), (&b"alice"[..], 2, 0));
/// ```
#[derive(Clone, Debug)]
pub struct SpaceSaving {
    places: Vec<Place>,
    /// Slots from the greatest count to the least.
    order: Vec<At>,
    /// Runs of slots with one count: the index in the order at which each begins.
    run_starts: Vec<At>,
    runs_free: Vec<At>,
    /// The first slot of each hash chain.
    chains: Box<[At]>,
    places_max: usize,
    total: u64,
}

/// One of the keys that have a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heavy<'a> {
    /// The key, or the first [`SpaceSaving::KEY_BYTES`] of it.
    pub key: &'a [u8],
    /// Length of the key in bytes.
    pub key_len: usize,
    /// Upper bound of its frequency.
    pub count: u64,
    /// Maximum error of the count.
    pub error: u64,
}

impl Heavy<'_> {
    /// Returns the lower bound of its frequency.
    pub fn at_least(&self) -> u64 {
        self.count - self.error
    }
}

/// A slot index. There are few enough slots.
type At = u32;
/// No slot: the end of a chain.
const NONE: At = At::MAX;
const _: () = assert!(SpaceSaving::PLACES_MAX < NONE as usize);

#[derive(Clone, Debug)]
struct Place {
    hash: u64,
    key: [u8; SpaceSaving::KEY_BYTES],
    key_len: usize,
    count: u64,
    error: u64,
    position: At,
    run: At,
    next_in_chain: At,
}

impl SpaceSaving {
    /// Number of bytes of a key that are kept.
    pub const KEY_BYTES: usize = 64;
    /// Largest number of slots.
    pub const PLACES_MAX: usize = 1 << 16;

    /// Creates `places` slots: at least one, at most [`PLACES_MAX`](Self::PLACES_MAX). All memory is allocated here.
    pub fn new(places: usize) -> Self {
        let places = places.clamp(1, Self::PLACES_MAX);
        Self {
            places: Vec::with_capacity(places),
            order: Vec::with_capacity(places),
            run_starts: Vec::with_capacity(places + 1),
            runs_free: Vec::with_capacity(places + 1),
            chains: vec![NONE; (2 * places).next_power_of_two()].into_boxed_slice(),
            places_max: places,
            total: 0,
        }
    }

    /// Counts a key once more. The same key must have the same hash each time; where untrusted clients choose keys, the
    /// hash should have a secret, since keys with colliding hashes are searched one after the other.
    pub fn count(&mut self, hash: u64, key: &[u8]) {
        self.total += 1;
        let at = match self.find(hash, key) {
            Some(at) => at,
            None if self.places.len() < self.places_max => self.append(hash, key),
            None => self.replace_least(hash, key),
        };
        self.advance(at);
    }

    /// Returns the total count of all keys.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of slots, used or not.
    pub fn places(&self) -> usize {
        self.places_max
    }

    /// Returns the bound of all errors. Every key that came more often has a slot.
    pub fn error_max(&self) -> u64 {
        self.total / self.places_max as u64
    }

    /// Iterates over the keys that have a slot, the greatest count first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Heavy<'_>> {
        self.order.iter().map(|at| self.places[*at as usize].heavy())
    }

    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.places.clear();
        self.order.clear();
        self.run_starts.clear();
        self.runs_free.clear();
        self.chains.fill(NONE);
        self.total = 0;
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<At> {
        let mut at = self.chains[self.chain(hash)];
        while at != NONE && !self.places[at as usize].is(hash, key) {
            at = self.places[at as usize].next_in_chain;
        }
        (at != NONE).then_some(at)
    }

    /// Adds a slot for a new key, with nothing counted, at the end of the order.
    fn append(&mut self, hash: u64, key: &[u8]) -> At {
        let at = self.places.len() as At;
        let last = self.order.last().map(|last| &self.places[*last as usize]);
        // Counts below one are this slot's alone, so it has its own run.
        debug_assert!(last.is_none_or(|last| last.count > 0));
        let run = self.open_run(at);
        self.places.push(Place::of(hash, key, at, run));
        self.order.push(at);
        self.link(at);
        at
    }

    /// Reuses the slot of the least frequent key, with its count: that is the maximum error of the new key's count.
    fn replace_least(&mut self, hash: u64, key: &[u8]) -> At {
        let at = self.order[self.order.len() - 1];
        self.unlink(at);
        let place = &mut self.places[at as usize];
        place.name(hash, key);
        place.error = place.count;
        self.link(at);
        at
    }

    /// Counts one more in this slot: it goes to the front of its run, and from there to the run before or a new one.
    fn advance(&mut self, at: At) {
        let Place { run, position, count, .. } = self.places[at as usize];
        let front = self.run_starts[run as usize];
        self.swap(position, front);

        // The run loses its front, and ends if that was all of it.
        let next = self.order.get(front as usize + 1).map(|next| self.places[*next as usize].run);
        if next == Some(run) {
            self.run_starts[run as usize] = front + 1;
        } else {
            self.runs_free.push(run);
        }

        let before = front.checked_sub(1).map(|before| &self.places[self.order[before as usize] as usize]);
        let joins = before.filter(|before| before.count == count + 1).map(|before| before.run);
        let run = joins.unwrap_or_else(|| self.open_run(front));
        let place = &mut self.places[at as usize];
        place.count = count + 1;
        place.run = run;
    }

    fn open_run(&mut self, start: At) -> At {
        match self.runs_free.pop() {
            Some(run) => {
                self.run_starts[run as usize] = start;
                run
            }
            None => {
                self.run_starts.push(start);
                (self.run_starts.len() - 1) as At
            }
        }
    }

    fn swap(&mut self, a: At, b: At) {
        self.order.swap(a as usize, b as usize);
        for position in [a, b] {
            self.places[self.order[position as usize] as usize].position = position;
        }
    }

    fn chain(&self, hash: u64) -> usize {
        // A power of two of them.
        hash as usize & (self.chains.len() - 1)
    }

    fn link(&mut self, at: At) {
        let chain = self.chain(self.places[at as usize].hash);
        self.places[at as usize].next_in_chain = self.chains[chain];
        self.chains[chain] = at;
    }

    fn unlink(&mut self, at: At) {
        let Place { hash, next_in_chain, .. } = self.places[at as usize];
        let chain = self.chain(hash);
        if self.chains[chain] == at {
            self.chains[chain] = next_in_chain;
            return;
        }
        let mut before = self.chains[chain];
        while self.places[before as usize].next_in_chain != at {
            before = self.places[before as usize].next_in_chain;
        }
        self.places[before as usize].next_in_chain = next_in_chain;
    }
}

impl Place {
    fn of(hash: u64, key: &[u8], position: At, run: At) -> Self {
        let mut place = Self {
            hash,
            key: [0; SpaceSaving::KEY_BYTES],
            key_len: 0,
            count: 0,
            error: 0,
            position,
            run,
            next_in_chain: NONE,
        };
        place.name(hash, key);
        place
    }

    fn name(&mut self, hash: u64, key: &[u8]) {
        let kept = kept(key);
        self.hash = hash;
        self.key[..kept.len()].copy_from_slice(kept);
        self.key_len = key.len();
    }

    fn is(&self, hash: u64, key: &[u8]) -> bool {
        self.hash == hash && self.key_len == key.len() && self.kept() == kept(key)
    }

    fn kept(&self) -> &[u8] {
        &self.key[..self.key_len.min(SpaceSaving::KEY_BYTES)]
    }

    fn heavy(&self) -> Heavy<'_> {
        Heavy { key: self.kept(), key_len: self.key_len, count: self.count, error: self.error }
    }
}

fn kept(key: &[u8]) -> &[u8] {
    &key[..key.len().min(SpaceSaving::KEY_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(busiest: &SpaceSaving) -> Vec<(&str, u64, u64)> {
        busiest
            .iter()
            .map(|heavy| (core::str::from_utf8(heavy.key).unwrap(), heavy.count, heavy.error))
            .collect()
    }

    fn of(places: usize, keys: &str) -> SpaceSaving {
        let mut busiest = SpaceSaving::new(places);
        for key in keys.as_bytes() {
            busiest.count(u64::from(*key), &[*key]);
        }
        busiest
    }

    #[test]
    fn counts_are_exact_while_there_is_room() {
        assert_eq!(seen(&of(3, "abacab")), [("a", 3, 0), ("b", 2, 0), ("c", 1, 0)]);
    }

    #[test]
    fn a_newcomer_takes_the_least_count_and_is_wrong_by_it() {
        let busiest = of(2, "aaabbc");
        assert_eq!(seen(&busiest), [("a", 3, 0), ("c", 3, 2)]);
        assert_eq!(busiest.iter().nth(1).unwrap().at_least(), 1);
    }

    #[test]
    fn keys_above_the_nth_part_are_tracked_and_keys_at_it_may_not_be() {
        let more = of(2, "abcaa");
        assert_eq!((more.error_max(), seen(&more)[0]), (2, ("a", 3, 0)));
        // Both came twice of five times; the last key replaced one of them.
        let level = of(2, "aabbc");
        assert_eq!(level.error_max(), 2);
        assert_eq!(seen(&level).iter().filter(|(key, ..)| *key != "c").count(), 1);
    }

    #[test]
    fn long_keys_are_distinguished_by_their_length_and_hash() {
        let mut busiest = SpaceSaving::new(4);
        let long = [7_u8; SpaceSaving::KEY_BYTES + 2];
        busiest.count(1, &long);
        busiest.count(1, &long);
        busiest.count(2, &long);
        busiest.count(1, &long[1..]);
        busiest.count(1, &long[2..]);
        let seen: Vec<_> =
            busiest.iter().map(|heavy| (heavy.key.len(), heavy.key_len, heavy.count)).collect();
        assert_eq!(seen, [(64, 66, 2), (64, 66, 1), (64, 65, 1), (64, 64, 1)]);
    }

    #[test]
    fn keys_of_one_hash_are_still_counted_apart() {
        let mut busiest = SpaceSaving::new(3);
        for key in ["x", "y", "x", "z", "w", "w", "x"] {
            busiest.count(9, key.as_bytes());
        }
        assert_eq!(busiest.iter().map(|heavy| heavy.count).sum::<u64>(), 7);
        assert!([("x", 3, 0), ("w", 3, 1)].iter().all(|heavy| seen(&busiest).contains(heavy)));
    }

    #[test]
    fn no_memory_is_taken_after_the_start() {
        let mut busiest = SpaceSaving::new(64);
        let room = |busiest: &SpaceSaving| {
            [
                busiest.places.capacity(),
                busiest.order.capacity(),
                busiest.run_starts.capacity(),
                busiest.runs_free.capacity(),
            ]
        };
        let before = room(&busiest);
        for n in 0..100_000_u64 {
            let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (n % 60);
            busiest.count(key, &key.to_le_bytes());
        }
        assert_eq!((room(&busiest), busiest.places.len()), (before, 64));
        assert!(busiest.iter().is_sorted_by_key(|heavy| core::cmp::Reverse(heavy.count)));
        busiest.clear();
        assert_eq!((busiest.iter().len(), busiest.total()), (0, 0));
    }
}
