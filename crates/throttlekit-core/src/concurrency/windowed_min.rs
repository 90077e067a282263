//! The least of the last few values.

/// The minimum of the last `N` values, in fixed memory and a constant number of steps per value on average.
///
/// Keeps the values that can still become the minimum: each is larger than the one before it and came later. A new
/// value removes all that are no smaller, as it outlives them.
///
/// ```
/// use throttlekit_core::concurrency::WindowedMin;
///
/// let mut least = WindowedMin::<3>::new();
/// for value in [2.0, 5.0, 4.0] {
///     least.push(value);
/// }
/// assert_eq!(least.min(), Some(2.0));
/// least.push(6.0);
/// assert_eq!(least.min(), Some(4.0));
/// ```
#[derive(Clone, Debug)]
pub struct WindowedMin<const N: usize> {
    /// Sequence number and value of each; from the smallest and oldest on.
    ring: [(u64, f64); N],
    head: usize,
    len: usize,
    pushed: u64,
}

impl<const N: usize> WindowedMin<N> {
    const NOT_EMPTY: () = assert!(N > 0);

    /// Without a value yet.
    pub const fn new() -> Self {
        let () = Self::NOT_EMPTY;
        Self { ring: [(0, 0.0); N], head: 0, len: 0, pushed: 0 }
    }

    /// The least of the last `N` values, or `None` before the first.
    pub fn min(&self) -> Option<f64> {
        (self.len > 0).then(|| self.ring[self.head].1)
    }

    /// Adds a value, and forgets the one that came `N` before.
    pub fn push(&mut self, value: f64) {
        if self.len > 0 && self.ring[self.head].0 + N as u64 <= self.pushed {
            self.head = (self.head + 1) % N;
            self.len -= 1;
        }
        while self.len > 0 && self.ring[(self.head + self.len - 1) % N].1 >= value {
            self.len -= 1;
        }
        self.ring[(self.head + self.len) % N] = (self.pushed, value);
        self.len += 1;
        self.pushed += 1;
    }

    /// Forgets every value.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl<const N: usize> Default for WindowedMin<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive<const N: usize>(values: &[u8]) -> Option<f64> {
        values[values.len().saturating_sub(N)..].iter().map(|&value| f64::from(value)).reduce(f64::min)
    }

    fn agrees<const N: usize>(values: &[u8]) -> Result<(), TestCaseError> {
        let mut least = WindowedMin::<N>::new();
        for end in 0..values.len() {
            prop_assert_eq!(least.min(), naive::<N>(&values[..end]));
            least.push(f64::from(values[end]));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn windowed_min_is_the_least_of_the_last_values(values in prop::collection::vec(0..20_u8, 0..200)) {
            agrees::<1>(&values)?;
            agrees::<2>(&values)?;
            agrees::<7>(&values)?;
            agrees::<64>(&values)?;
        }

        #[test]
        fn windowed_min_restarts_when_cleared(
            before in prop::collection::vec(0..20_u8, 0..40),
            after in prop::collection::vec(0..20_u8, 0..40),
        ) {
            let mut least = WindowedMin::<5>::new();
            before.iter().for_each(|&value| least.push(f64::from(value)));
            least.clear();
            after.iter().for_each(|&value| least.push(f64::from(value)));
            prop_assert_eq!(least.min(), naive::<5>(&after));
        }
    }
}
