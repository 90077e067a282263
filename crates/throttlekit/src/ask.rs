//! Who wants in, and at what cost.

use throttlekit_core::Cost;

/// One ask: a key, and what it costs.
///
/// A bare key is an ask of cost 1.
///
/// ```
/// use throttlekit::Ask;
///
/// let small: Ask = "alice".into();
/// assert_eq!(small, Ask::of("alice").cost(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// Who asks.
    pub key: &'a [u8],
    /// How many units the ask takes.
    pub cost: Cost,
}

impl<'a> Ask<'a> {
    /// An ask of cost 1 by `key`.
    #[inline]
    pub fn of(key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: key.as_ref(), cost: 1 }
    }

    /// The same ask at this cost.
    #[inline]
    pub fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }
}

impl<'a, K: AsRef<[u8]> + ?Sized> From<&'a K> for Ask<'a> {
    #[inline]
    fn from(key: &'a K) -> Self {
        Self::of(key)
    }
}
