//! The generator of the published experiments.

/// Mulberry32, as JavaScript computes it: 32-bit integers that wrap.
#[derive(Clone, Debug)]
pub struct Mulberry(u32);

impl Mulberry {
    /// Creates the generator of this seed.
    pub fn new(seed: u32) -> Self {
        Self(seed)
    }

    /// Returns the generator that the published table uses for a correlation and a number: exclusive or of a
    /// constant, the correlation in thousandths as a signed integer, and the number times 2654435761.
    pub fn published(correlation: f64, number: u32) -> Self {
        let thousandths = (correlation * 1_000.0).round() as i32;
        Self(0xDEAD_BEEF ^ thousandths as u32 ^ number.wrapping_mul(2_654_435_761))
    }

    /// Returns a number from 0 to 1, one of 2³² steps.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x6D2B_79F5);
        let mut t = (self.0 ^ (self.0 >> 15)).wrapping_mul(self.0 | 1);
        t ^= t.wrapping_add((t ^ (t >> 7)).wrapping_mul(t | 61));
        f64::from(t ^ (t >> 14)) / 4_294_967_296.0
    }
}
