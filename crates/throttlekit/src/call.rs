//! One request.

use throttlekit_core::fair::Weight;
use throttlekit_core::price::Bid;

use crate::priority::Priority;

/// One request: who calls, and the cost.
///
/// Borrows its keys and is `Copy`. A key alone is a call with cost 1; a pair is a key and its cost; `()` has no
/// key.
///
/// ```
/// use throttlekit::Call;
///
/// let small: Call = "acme".into();
/// assert_eq!(small, Call::by("acme").cost(1).value(1.0));
/// let large: Call = ("acme", 1_500).into();
/// assert_eq!(large, Call::by("acme").cost(1_500));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    key: &'a [u8],
    others: OtherKeys<'a>,
    cost: u64,
    /// The cost on each limit; on those beyond it is `cost`.
    costs: &'a [u64],
    value: f64,
    hold: Option<f64>,
    weight: Option<Weight>,
    priority: Priority,
}

/// The keys of a call after its first. Made by conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum OtherKeys<'a> {
    Bytes(&'a [&'a [u8]]),
    Strs(&'a [&'a str]),
}

impl<'a> Call<'a> {
    /// Creates a call by `key`.
    #[inline]
    pub fn by(key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let others = OtherKeys::Bytes(&[]);
        let (hold, weight, priority) = (None, None, Priority::HIGHEST);
        Self { key: key.as_ref(), others, cost: 1, costs: &[], value: 1.0, hold, weight, priority }
    }

    /// Adds further keys, such as the organization or the model: `Call::by("alice").and(&["acme"])`. Each limit selects
    /// one of them ([`Axis::by`](crate::Axis::by)); the key of [`by`](Self::by) has index 0, these follow. A missing key
    /// counts as empty, and all such calls share it.
    #[inline]
    pub fn and(self, others: impl Into<OtherKeys<'a>>) -> Self {
        Self { others: others.into(), ..self }
    }

    /// Sets the cost. A policy reserves all of it on the cost axis and for the fair share, or denies the call; the permit
    /// settles the actual cost. Default: 1.
    #[inline]
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Sets another cost for each limit of a limiter with several, in their order: `costs(&[1, 1_500])` counts one
    /// request on the first and 1,500 tokens on the second. On limits beyond these the cost is that of
    /// [`cost`](Self::cost). Used only by limiters with several limits.
    #[inline]
    pub fn costs(self, costs: &'a [u64]) -> Self {
        Self { costs, ..self }
    }

    /// Sets the value of admitting the call, in the unit of the prices. Used only by pricing. Default: 1.
    #[inline]
    pub fn value(self, value: f64) -> Self {
        Self { value, ..self }
    }

    /// Sets the expected number of seconds that the call holds its slot. Used only by pricing.
    #[inline]
    pub fn hold(self, seconds: f64) -> Self {
        Self { hold: Some(seconds), ..self }
    }

    /// Overrides the tenant's weight, from 1 to 2³⁴, until another call of the tenant sets another. Used only by fair
    /// limiters without [`tree`](crate::fair::FairLimiterBuilder::tree). Default: the weight that the limiter was built
    /// with.
    #[inline]
    pub fn weight(self, weight: u64) -> Self {
        self.weighing(Some(Weight::clamped(weight)))
    }

    #[inline]
    pub(crate) fn weighing(self, weight: Option<Weight>) -> Self {
        Self { weight, ..self }
    }

    /// Sets the priority. Used by the concurrency axis and by queues (`wait::Queue`). Default: the highest.
    #[inline]
    pub fn priority(self, priority: impl Into<Priority>) -> Self {
        Self { priority: priority.into(), ..self }
    }

    /// Returns the first key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Returns the key at this index; empty if there is none.
    #[inline(always)]
    pub fn key_at(&self, index: usize) -> &'a [u8] {
        if index == 0 { self.key } else { self.other_key(index - 1) }
    }

    #[inline(never)]
    fn other_key(&self, other: usize) -> &'a [u8] {
        match self.others {
            OtherKeys::Bytes(keys) => keys.get(other).copied().unwrap_or_default(),
            OtherKeys::Strs(keys) => keys.get(other).map(|key| key.as_bytes()).unwrap_or_default(),
        }
    }

    /// Returns the number of keys.
    pub fn key_count(&self) -> usize {
        1 + match self.others {
            OtherKeys::Bytes(keys) => keys.len(),
            OtherKeys::Strs(keys) => keys.len(),
        }
    }

    /// Returns the cost.
    #[inline]
    pub fn units(&self) -> u64 {
        self.cost
    }

    /// Returns the cost on the limit at this index.
    #[inline]
    pub fn units_at(&self, limit: usize) -> u64 {
        self.costs.get(limit).copied().unwrap_or(self.cost)
    }

    #[inline]
    pub(crate) fn of_weight(&self) -> Option<Weight> {
        self.weight
    }

    /// Returns the priority.
    #[inline]
    pub fn of_priority(&self) -> Priority {
        self.priority
    }

    /// Returns the value, the cost and the expected hold time, as pricing uses them.
    pub fn bid(&self) -> Bid {
        Bid { value: self.value, cost: self.cost, hold: self.hold }
    }
}

/// The part of a call that one limit counts.
#[derive(Clone, Copy, Debug)]
#[cfg(feature = "store")]
pub(crate) struct Part<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) cost: u64,
}

impl<'a, K: AsRef<[u8]> + ?Sized> From<&'a K> for Call<'a> {
    #[inline]
    fn from(key: &'a K) -> Self {
        Self::by(key)
    }
}

impl<'a, K: AsRef<[u8]> + ?Sized> From<(&'a K, u64)> for Call<'a> {
    #[inline]
    fn from((key, cost): (&'a K, u64)) -> Self {
        Self::by(key).cost(cost)
    }
}

impl From<()> for Call<'_> {
    #[inline]
    fn from((): ()) -> Self {
        Self::by(b"")
    }
}

impl From<((), u64)> for Call<'_> {
    #[inline]
    fn from(((), cost): ((), u64)) -> Self {
        Self::by(b"").cost(cost)
    }
}

impl<'a> From<&'a [&'a [u8]]> for OtherKeys<'a> {
    #[inline]
    fn from(keys: &'a [&'a [u8]]) -> Self {
        Self::Bytes(keys)
    }
}

impl<'a, const N: usize> From<&'a [&'a [u8]; N]> for OtherKeys<'a> {
    #[inline]
    fn from(keys: &'a [&'a [u8]; N]) -> Self {
        Self::Bytes(keys)
    }
}

impl<'a> From<&'a [&'a str]> for OtherKeys<'a> {
    #[inline]
    fn from(keys: &'a [&'a str]) -> Self {
        Self::Strs(keys)
    }
}

impl<'a, const N: usize> From<&'a [&'a str; N]> for OtherKeys<'a> {
    #[inline]
    fn from(keys: &'a [&'a str; N]) -> Self {
        Self::Strs(keys)
    }
}

/// An owned copy of a call. One with a single short key is copied without an allocation.
#[cfg(feature = "wait")]
#[derive(Debug)]
pub(crate) struct OwnedCall {
    first: OwnedKey,
    others: Box<[Box<[u8]>]>,
    costs: Box<[u64]>,
    #[cfg(feature = "store")]
    pub(crate) estimate: u64,
    /// The call without its keys and the cost on each limit.
    rest: Call<'static>,
}

#[cfg(feature = "wait")]
impl OwnedCall {
    pub(crate) fn of(call: &Call<'_>) -> Self {
        let others = (1..call.key_count()).map(|place| call.key_at(place).into()).collect();
        let Call { cost, value, hold, weight, priority, .. } = *call;
        let (key, no_others) = (&[], OtherKeys::Bytes(&[]));
        let rest = Call { key, others: no_others, cost, costs: &[], value, hold, weight, priority };
        Self {
            first: OwnedKey::of(call.key),
            others,
            costs: call.costs.into(),
            #[cfg(feature = "store")]
            estimate: cost,
            rest,
        }
    }

    #[cfg(feature = "store")]
    pub(crate) fn weight(&self) -> Option<Weight> {
        self.rest.weight
    }

    pub(crate) fn key_at(&self, place: usize) -> &[u8] {
        match place.checked_sub(1) {
            None => self.first.bytes(),
            Some(other) => self.others.get(other).map_or(&[], |key| key),
        }
    }

    /// Returns the keys after the first.
    pub(crate) fn others(&self) -> Vec<&[u8]> {
        self.others.iter().map(|key| &**key).collect()
    }

    /// Borrows the call; `others` are its [others](Self::others).
    pub(crate) fn borrowed<'a>(&'a self, others: &'a [&'a [u8]]) -> Call<'a> {
        self.borrowed_from(0, others)
    }

    /// Borrows the call without its keys before `place`; `others` are its [others](Self::others).
    pub(crate) fn borrowed_from<'a>(&'a self, place: usize, others: &'a [&'a [u8]]) -> Call<'a> {
        let others = OtherKeys::Bytes(others.get(place..).unwrap_or_default());
        Call { key: self.key_at(place), others, costs: &self.costs, ..self.rest }
    }
}

/// Keys up to this length are copied in place: tenants, user IDs, addresses, UUIDs.
#[cfg(feature = "wait")]
const KEY_IN_PLACE_MAX: usize = 40;

#[cfg(feature = "wait")]
#[derive(Debug)]
enum OwnedKey {
    InPlace(u8, [u8; KEY_IN_PLACE_MAX]),
    Boxed(Box<[u8]>),
}

#[cfg(feature = "wait")]
impl OwnedKey {
    fn of(key: &[u8]) -> Self {
        let mut bytes = [0; KEY_IN_PLACE_MAX];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(key);
                Self::InPlace(length, bytes)
            }
            _ => Self::Boxed(key.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::InPlace(length, bytes) => &bytes[..usize::from(*length)],
            Self::Boxed(bytes) => bytes,
        }
    }
}

#[cfg(all(test, feature = "wait"))]
mod tests {
    use super::*;

    #[test]
    fn an_owned_call_borrows_as_the_call_it_was_made_of() {
        for length in [0, 1, KEY_IN_PLACE_MAX, KEY_IN_PLACE_MAX + 1, 300] {
            let key = vec![b'k'; length];
            let call = Call::by(&key).and(&["org", "model"]).cost(7).costs(&[1, 2]).value(3.0).weight(9);
            let owned = OwnedCall::of(&call);
            let others = owned.others();
            let borrowed = owned.borrowed(&others);
            assert_eq!(borrowed, call.and(&[b"org".as_slice(), b"model"]), "{length} bytes");
            assert_eq!(owned.borrowed_from(1, &others).key(), b"org");
        }
    }
}
