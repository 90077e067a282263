//! The random numbers of a run.

/// SplitMix64: small, and each start gives a stream of its own.
pub struct Random(u64);

impl Random {
    /// Returns the stream of one input of a seed.
    pub fn of(seed: u64, number: u64) -> Self {
        let mut first = Self(seed);
        let start = first.next();
        Self(start ^ number.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns an index into something of this length, or 0 if that is 0.
    pub fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns one of these, if there are any.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.place(of.len()))
    }

    /// Returns true once in `n` calls, on average.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number that is likely to be at an edge.
    pub fn edge(&mut self) -> u64 {
        let power = 1_u64.checked_shl(self.below(65) as u32).unwrap_or(0);
        power.wrapping_add(self.below(3)).wrapping_sub(1)
    }
}
