//! One request over all axes.

use throttlekit_core::Cost;
use throttlekit_core::price::Bid;

use crate::guard::Class;

/// One request to a policy: the caller's key, and the expected cost.
///
/// A bare key is a call with cost 1 and value 1.
///
/// ```
/// use throttlekit::admission::Call;
///
/// let small: Call = "acme".into();
/// assert_eq!(small, Call::by("acme").cost(1).value(1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    key: &'a [u8],
    others: &'a [&'a [u8]],
    cost: Cost,
    value: f64,
    hold: Option<f64>,
    class: Class,
}

impl<'a> Call<'a> {
    /// Creates a call by `key`.
    #[inline]
    pub fn by(key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: key.as_ref(), others: &[], cost: 1, value: 1.0, hold: None, class: Class::FIRST }
    }

    /// Adds further keys to the call: the user's organization, the model. Each limit selects one of them
    /// ([`Axis::of`](super::Axis::of)); the key of [`by`](Self::by) has index 0, these follow. A missing key counts as
    /// empty, and all such calls share it.
    #[inline]
    pub fn and(self, others: &'a [&'a [u8]]) -> Self {
        Self { others, ..self }
    }

    /// Sets the expected cost, for every limit of the cost axis and for the fair share. All of it is reserved, or the
    /// call is denied. The permit settles the actual cost. Default: 1.
    #[inline]
    pub fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// Sets the value of admitting the call, in the unit of the prices. Default: 1.
    #[inline]
    pub fn value(self, value: f64) -> Self {
        Self { value, ..self }
    }

    /// Sets the expected number of seconds that the call holds its slot. Used only by prices.
    #[inline]
    pub fn hold(self, seconds: f64) -> Self {
        Self { hold: Some(seconds), ..self }
    }

    /// Sets the class of work. Used only by the concurrency axis.
    #[inline]
    pub fn class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Returns the caller's key.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Returns the key at this index.
    #[inline]
    pub(crate) fn key_at(&self, place: usize) -> &'a [u8] {
        if place == 0 { self.key } else { self.others.get(place - 1).copied().unwrap_or_default() }
    }

    /// Returns the number of keys.
    #[cfg(feature = "store")]
    pub(crate) fn keys(&self) -> usize {
        1 + self.others.len()
    }

    #[inline]
    pub(crate) fn estimate(&self) -> Cost {
        self.cost
    }

    #[inline]
    pub(crate) fn of_class(&self) -> Class {
        self.class
    }

    pub(crate) fn bid(&self) -> Bid {
        Bid { value: self.value, cost: self.cost, hold: self.hold }
    }
}

impl<'a, K: AsRef<[u8]> + ?Sized> From<&'a K> for Call<'a> {
    #[inline]
    fn from(key: &'a K) -> Self {
        Self::by(key)
    }
}
