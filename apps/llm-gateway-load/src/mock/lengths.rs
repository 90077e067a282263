//! Lengths of completions: most are short, a few are very long.

use std::f64::consts::TAU;

/// Lengths by a lognormal law, the same ones again for the same seed.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Half of them are shorter.
    pub median: f64,
    /// Weight of the tail: 0 for none, 1 for one in a hundred above ten times the median.
    pub sigma: f64,
    /// Where the dice begin.
    pub seed: u64,
}

impl Lengths {
    /// Returns the length of the `nth` completion in tokens, if it is not stopped.
    pub fn of(&self, nth: u64) -> u64 {
        let [u, v] = [0, 1].map(|half| unit(mixed(self.seed ^ mixed(2 * nth + half))));
        let normal = (-2.0 * u.ln()).sqrt() * (TAU * v).cos();
        ((self.median * (self.sigma * normal).exp()) as u64).max(1)
    }
}

/// Above 0, at most 1.
fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// SplitMix64.
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_heavy_tailed_and_replayed_by_their_seed() {
        let lengths = Lengths { median: 120.0, sigma: 1.0, seed: 7 };
        let mut drawn: Vec<u64> = (0..10_000).map(|nth| lengths.of(nth)).collect();
        assert_eq!(drawn, (0..10_000).map(|nth| lengths.of(nth)).collect::<Vec<_>>());
        drawn.sort_unstable();
        assert!((110..130).contains(&drawn[5_000]), "{}", drawn[5_000]);
        assert!(drawn[9_900] > 1_000, "one in a hundred is long: {}", drawn[9_900]);
    }
}
