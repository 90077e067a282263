//! The guarantee of a tenant, relative to the others.

use core::fmt;
use core::num::NonZeroU64;

/// The greatest weight: leaves capacity for sums of very many weights, as the inner nodes of a tree have.
pub const WEIGHT_MAX: u64 = 1 << 34;
/// The greatest weight that counts in a roster, where weights may be multiples.
pub(super) const ROSTER_WEIGHT_MAX: u64 = 1 << 40;

/// Weight of a member's guarantee in a budget, relative to the weights of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(NonZeroU64);

impl Weight {
    /// The weight of every member where all are equal.
    pub const ONE: Self = Self(NonZeroU64::MIN);
    /// The greatest.
    pub const MAX: Self = Self(NonZeroU64::new(WEIGHT_MAX).expect("not zero"));

    /// A weight from 1 to [`WEIGHT_MAX`].
    pub const fn new(weight: u64) -> Result<Self, WeightError> {
        match NonZeroU64::new(weight) {
            Some(positive) if weight <= WEIGHT_MAX => Ok(Self(positive)),
            _ => Err(WeightError(weight)),
        }
    }

    /// Returns the nearest weight: 1 for zero, the greatest for more than that.
    pub const fn clamped(weight: u64) -> Self {
        match Self::new(weight) {
            Ok(weight) => weight,
            Err(WeightError(0)) => Self::ONE,
            Err(_) => Self::MAX,
        }
    }

    /// A multiple, for a roster in which weights are multiples.
    pub(super) fn times(self, factor: u64) -> Self {
        let multiple = self.get().saturating_mul(factor).min(ROSTER_WEIGHT_MAX);
        NonZeroU64::new(multiple).map_or(self, Self)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

/// A number that cannot be a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightError(pub u64);

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid weight {}: expected 1 to {WEIGHT_MAX}", self.0)
    }
}

impl core::error::Error for WeightError {}

/// Returns a member's guarantee in a limit: `⌊weight·limit/weights⌋`, where `weights` is the sum of all, its own
/// included. Multiplied first: dividing first loses units, since 6/11 has no exact machine representation.
///
/// ```
/// use throttlekit_core::fair::{Weight, guarantee};
///
/// assert_eq!(guarantee(Weight::new(6)?, 11, 99), 54);
/// # Ok::<(), throttlekit_core::fair::WeightError>(())
/// ```
#[inline]
pub fn guarantee(weight: Weight, weights: u64, limit: u64) -> u64 {
    let weights = weights.max(weight.get());
    match weight.get().checked_mul(limit) {
        Some(product) => product / weights,
        None => (u128::from(weight.get()) * u128::from(limit) / u128::from(weights)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_positive_and_bounded() {
        assert_eq!(Weight::new(0), Err(WeightError(0)));
        assert_eq!(Weight::new(WEIGHT_MAX + 1), Err(WeightError(WEIGHT_MAX + 1)));
        assert_eq!(Weight::new(1), Ok(Weight::ONE));
        assert_eq!([0, 1, u64::MAX].map(Weight::clamped), [Weight::ONE, Weight::ONE, Weight::MAX]);
    }

    #[test]
    fn a_guarantee_is_exact_at_the_ends_of_its_range() {
        let most = Weight::new(WEIGHT_MAX).unwrap();
        assert_eq!(guarantee(most, WEIGHT_MAX, u64::MAX), u64::MAX);
        assert_eq!(guarantee(most, WEIGHT_MAX + 1, 1), 0);
        assert_eq!(guarantee(Weight::ONE, 3, 2), 0);
    }
}
