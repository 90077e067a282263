//! A request: a key and its cost.

use throttlekit_core::Cost;

/// One request: a key, and its cost.
///
/// A bare key is a request of cost 1.
///
/// ```
/// use throttlekit::Ask;
///
/// let small: Ask = "alice".into();
/// assert_eq!(small, Ask::of("alice").cost(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// The caller's key.
    pub key: &'a [u8],
    /// Number of units that the request takes.
    pub cost: Cost,
}

impl<'a> Ask<'a> {
    /// Creates a request of cost 1 by `key`.
    #[inline]
    pub fn of(key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: key.as_ref(), cost: 1 }
    }

    /// Sets the cost. Default: 1.
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
