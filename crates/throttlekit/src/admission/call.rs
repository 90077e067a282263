//! What one request asks of all axes.

use throttlekit_core::Cost;
use throttlekit_core::price::Bid;

use crate::guard::Class;

/// One request, as a policy sees it: who asks, and what it is expected to take.
///
/// A bare key is a call of cost 1 that is worth 1.
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
    /// A call by `key`.
    #[inline]
    pub fn by(key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: key.as_ref(), others: &[], cost: 1, value: 1.0, hold: None, class: Class::FIRST }
    }

    /// The same call under further keys: the user's organisation, the model. A limit says which of them it goes by
    /// ([`Axis::of`](super::Axis::of)); the key of [`by`](Self::by) is number 0, these follow. A key that is missing counts
    /// as empty, which all such calls share.
    #[inline]
    pub fn and(self, others: &'a [&'a [u8]]) -> Self {
        Self { others, ..self }
    }

    /// How much it is expected to cost, on every limit of the cost axis and its fair share: all of it is set aside, or the
    /// call is denied. What it does cost is settled by the permit.
    #[inline]
    pub fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// What admitting it is worth, in the unit of the prices.
    #[inline]
    pub fn value(self, value: f64) -> Self {
        Self { value, ..self }
    }

    /// For how many seconds it is expected to hold its slot. Only prices look at it.
    #[inline]
    pub fn hold(self, seconds: f64) -> Self {
        Self { hold: Some(seconds), ..self }
    }

    /// Which class of work it is. Only the concurrency axis looks at it.
    #[inline]
    pub fn class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Who asks.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The key at this place.
    #[inline]
    pub(crate) fn key_at(&self, place: usize) -> &'a [u8] {
        if place == 0 { self.key } else { self.others.get(place - 1).copied().unwrap_or_default() }
    }

    /// How many keys it has.
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
