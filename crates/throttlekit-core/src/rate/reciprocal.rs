//! Division by a number fixed in advance, as one multiplication.

/// `1/divisor`, exact for every dividend below 2⁶³.
///
/// The usual round-up method: with `bits = ⌈log₂ divisor⌉` and `factor = ⌊2^(63+bits)/divisor⌋ + 1` the product's
/// high bits are the quotient for all dividends of 63 bits. `factor` then fits 64 bits, and from a divisor of two
/// on the shift is one of whole words and a bit more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reciprocal {
    factor: u64,
    shift: u32,
}

impl Reciprocal {
    /// Placeholder where nothing is divided.
    pub(super) const NONE: Self = Self { factor: 0, shift: 0 };

    /// `divisor` is between 2 and 2⁶³.
    pub(super) fn of(divisor: u64) -> Self {
        debug_assert!((2..=1 << 63).contains(&divisor));
        let bits = divisor.next_power_of_two().trailing_zeros();
        let factor = ((1_u128 << (63 + bits)) / u128::from(divisor) + 1) as u64;
        Self { factor, shift: bits - 1 }
    }

    /// `⌊dividend / divisor⌋` for `dividend < 2⁶³`.
    #[inline(always)]
    pub(super) fn divide(self, dividend: u64) -> u64 {
        debug_assert!(dividend < 1 << 63);
        let high = (u128::from(dividend) * u128::from(self.factor)) >> 64;
        (high as u64) >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges() {
        for divisor in [2, 3, 7, 10, (1 << 32) - 1, 1 << 32, (1 << 62) + 1, (1 << 63) - 1, 1 << 63] {
            let reciprocal = Reciprocal::of(divisor);
            for near in [0, 1, divisor - 1, divisor, divisor + 1, (1 << 63) - 1] {
                let dividend = near.min((1 << 63) - 1);
                assert_eq!(reciprocal.divide(dividend), dividend / divisor, "{dividend} / {divisor}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn equals_division(bits in 0_u32..64, raw: u64, dividend in 0_u64..1 << 63, multiple: u32) {
            let divisor = (raw >> bits).clamp(2, 1 << 63);
            let edge = divisor.wrapping_mul(u64::from(multiple)) >> 1;
            for x in [dividend, edge, edge.saturating_sub(1)] {
                prop_assert_eq!(Reciprocal::of(divisor).divide(x), x / divisor);
            }
        }
    }
}
