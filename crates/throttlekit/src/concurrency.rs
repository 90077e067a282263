//! Concurrency limits, as users write them.

use std::ops::RangeInclusive;

use throttlekit_core::concurrency::Ceiling;

use crate::BuildError;

/// At most `n` at a time: fixed or adaptive, in total or per key.
///
/// A number converts into a fixed limit in total.
///
/// ```
/// use throttlekit::Concurrency;
///
/// let backend = Concurrency::adaptive(4..=200);
/// let tenants = Concurrency::per_key(8).total(64);
/// # let _ = (backend, tenants);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Concurrency {
    each: Result<OneLimit, Invalid>,
    per_key: bool,
    total: Option<Result<OneLimit, Invalid>>,
}

/// One limit: a number, or bounds within which it is inferred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OneLimit {
    Fixed(u32),
    Adaptive(Ceiling),
}

impl OneLimit {
    /// Returns the limit to begin with.
    pub(crate) fn initial(self) -> u32 {
        match self {
            Self::Fixed(limit) => limit,
            Self::Adaptive(ceiling) => ceiling.initial(),
        }
    }

    /// Returns the highest value that it can have.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::Fixed(limit) => limit,
            Self::Adaptive(ceiling) => ceiling.most(),
        }
    }
}

/// Bounds that exclude each other or are zero, or a total where nothing is per key.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Invalid;

impl Concurrency {
    /// A fixed number. Zero denies every call.
    pub const fn fixed(n: u32) -> Self {
        Self { each: Ok(OneLimit::Fixed(n)), per_key: false, total: None }
    }

    /// A number inferred from latency, within these bounds. [`Ceiling`](crate::guard::Ceiling) has all settings.
    pub fn adaptive(bounds: RangeInclusive<u32>) -> Self {
        let (low, high) = bounds.into_inner();
        let valid = 0 < low && low <= high;
        let each = valid.then(|| OneLimit::Adaptive(Ceiling::between(low, high))).ok_or(Invalid);
        Self { each, per_key: false, total: None }
    }

    /// The same limit for each key: a number or another `Concurrency`.
    pub fn per_key(each: impl Into<Self>) -> Self {
        Self { per_key: true, ..each.into() }
    }

    /// Adds a limit over all keys. Only with [`per_key`](Self::per_key).
    pub fn total(self, total: impl Into<Self>) -> Self {
        let total = if self.per_key { total.into().each } else { Err(Invalid) };
        Self { total: Some(total), ..self }
    }

    /// Returns the limit, of each key if [`is_per_key`](Self::is_per_key).
    pub(crate) fn limit(&self) -> Result<OneLimit, BuildError> {
        self.each.map_err(|Invalid| BuildError::InvalidConcurrency)
    }

    /// Returns the limit over all keys, if there is one beside that of each key.
    pub(crate) fn limit_of_all(&self) -> Result<Option<OneLimit>, BuildError> {
        self.total.transpose().map_err(|Invalid| BuildError::InvalidConcurrency)
    }

    /// Returns whether the limit is inferred, in total or of each key.
    #[cfg(all(feature = "outbound", feature = "store"))]
    pub(crate) fn is_adaptive(&self) -> bool {
        [Some(self.each), self.total]
            .into_iter()
            .flatten()
            .any(|limit| matches!(limit, Ok(OneLimit::Adaptive(_))))
    }

    pub(crate) fn is_per_key(&self) -> bool {
        self.per_key
    }
}

impl From<u32> for Concurrency {
    fn from(n: u32) -> Self {
        Self::fixed(n)
    }
}

/// An adaptive limit with all its settings.
impl From<Ceiling> for Concurrency {
    fn from(ceiling: Ceiling) -> Self {
        Self { each: Ok(OneLimit::Adaptive(ceiling)), per_key: false, total: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_exclude_each_other_are_invalid() {
        let (low, high) = (5, 4);
        for invalid in [
            Concurrency::adaptive(low..=high),
            Concurrency::adaptive(0..=4),
            Concurrency::per_key(Concurrency::adaptive(low..=high)),
        ] {
            assert_eq!(invalid.limit(), Err(BuildError::InvalidConcurrency));
        }
        assert_eq!(Concurrency::fixed(4).total(8).limit_of_all(), Err(BuildError::InvalidConcurrency));
        assert_eq!(Concurrency::per_key(4).total(8).limit_of_all(), Ok(Some(OneLimit::Fixed(8))));
    }
}
