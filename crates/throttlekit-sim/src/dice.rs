//! Deterministic random numbers.

/// A pseudorandom number generator: xoshiro256++, seeded by splitmix64.
#[derive(Clone, Debug)]
pub struct Dice([u64; 4]);

impl Dice {
    /// Creates the generator of this seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(core::array::from_fn(|_| splitmix(&mut state)))
    }

    /// Returns any number.
    pub fn roll(&mut self) -> u64 {
        let s = &mut self.0;
        let rolled = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        rolled
    }

    /// Returns a number below `end`, or zero if `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// Returns `true` with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one element of the slice.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns a number that is mostly near `mean` or below and sometimes many times as large, like a wait.
    pub fn long_tailed(&mut self, mean: u64) -> u64 {
        // Each doubling is half as likely: the mean of an exponential distribution, without logarithms.
        let doublings = self.roll().trailing_ones().min(8);
        self.below((mean << doublings).max(1) / 2 + 1)
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the published splitmix64 from seed 1234567.
    #[test]
    fn splitmix_is_the_published_one() {
        let mut state = 1_234_567;
        let first: [u64; 3] = core::array::from_fn(|_| splitmix(&mut state));
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut dice = Dice::new(7);
        for _ in 0..10_000 {
            assert!(dice.below(3) < 3 && (5..=6).contains(&dice.within(5, 6)));
        }
        assert_eq!(dice.below(0), 0);
    }
}
