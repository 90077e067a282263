//! The requested keys in their order. All generated beforehand: no sampler runs while a clock does.

use std::hint::black_box;

/// Length of every key.
pub const KEY_BYTES: usize = 16;
/// The number of keys of "many".
pub const MANY: usize = 1_000_000;
/// Exponent of the Zipf law.
const SKEW: f64 = 0.99;

/// Requests in order, in the format of every contender. The length is a power of two.
pub struct Stream {
    strings: Vec<String>,
    arrays: Vec<[u8; KEY_BYTES]>,
}

impl Stream {
    /// One key, repeatedly.
    pub fn hot() -> Self {
        Self::of(std::iter::repeat_n(7, 64))
    }

    /// Ten thousand keys, uniformly.
    pub fn even_10k() -> Self {
        let mut random = Random(1);
        Self::of((0..1 << 14).map(|_| random.below(10_000)))
    }

    /// A million keys, skewed. The rank is independent of the order of insertion.
    pub fn zipf_1m() -> Self {
        Self::of(zipf(MANY).take(1 << 20))
    }

    fn of(numbers: impl Iterator<Item = usize>) -> Self {
        let arrays: Vec<_> = numbers.map(|number| key(number as u64)).collect();
        assert!(arrays.len().is_power_of_two(), "positions wrap by a mask");
        let strings = arrays.iter().map(|bytes| text(bytes).to_owned()).collect();
        Self { strings, arrays }
    }

    /// Returns the key at a position, as the owned string that governor borrows.
    #[inline(always)]
    pub fn string(&self, at: usize) -> &String {
        &self.strings[at & (self.strings.len() - 1)]
    }

    /// Returns the same key as an array.
    #[inline(always)]
    pub fn array(&self, at: usize) -> &[u8; KEY_BYTES] {
        &self.arrays[at & (self.arrays.len() - 1)]
    }

    /// Brings keys into the cache, where a request's key is when a server has just read it. The remaining
    /// cache misses of a check are the limiter's own.
    pub fn touch(&self, from: usize, count: usize) {
        for at in (from..from + count).take(self.len()) {
            black_box((self.string(at).as_bytes()[0], self.array(at)[0]));
        }
    }

    /// Returns the number of requests until it repeats.
    pub fn len(&self) -> usize {
        self.arrays.len()
    }
}

/// Returns the key with this number: 16 ASCII bytes.
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = *b"key:000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = DIGITS[(rest & 15) as usize];
        rest >>= 4;
    }
    key
}

/// Returns a key as text.
pub fn text(key: &[u8; KEY_BYTES]) -> &str {
    std::str::from_utf8(key).expect("keys are ASCII")
}

/// Splitmix64: the same stream in every run.
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns an endless sequence of skewed numbers below `count`. The rank is independent of the number.
pub fn zipf(count: usize) -> impl Iterator<Item = usize> {
    let (number_of_rank, cumulative) = (shuffled(count), cumulative_zipf(count));
    let mut random = Random(2);
    std::iter::repeat_with(move || {
        let point = random.unit();
        number_of_rank[cumulative.partition_point(|&sum| sum < point).min(count - 1)]
    })
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut random = Random(3);
    let mut numbers: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        numbers.swap(last, random.below(last + 1));
    }
    numbers
}

fn cumulative_zipf(count: usize) -> Vec<f64> {
    let weights = (1..=count).map(|rank| (rank as f64).powf(-SKEW));
    let mut sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let total = sums[count - 1];
    sums.iter_mut().for_each(|sum| *sum /= total);
    sums
}
