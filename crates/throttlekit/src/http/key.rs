//! Keys under which requests are counted.

use std::fmt;

use http::HeaderName;
use http::request::Parts;

/// Finds the key of a request.
///
/// A closure from the request's head to an `Option<Key>` is one too.
///
/// ```
/// use http::request::Parts;
/// use throttlekit::http::{ClientIp, KeyExtractor, Key, SharedKey};
///
/// let tenant = |request: &Parts| request.uri.path().split('/').nth(1).map(Key::from);
/// let who = tenant.or(ClientIp::peer()).or(SharedKey::new("unknown"));
/// # fn is_identify(_: impl KeyExtractor) {}
/// # is_identify(who);
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key, or the side that left it out.
    fn identify(&self, request: &Parts) -> Result<Key, Missing>;

    /// Falls back to `other` if this finds nothing.
    fn or<I: KeyExtractor>(self, other: I) -> Or<Self, I>
    where
        Self: Sized,
    {
        Or { first: self, second: other }
    }
}

impl<F: Fn(&Parts) -> Option<Key> + Send + Sync + 'static> KeyExtractor for F {
    fn identify(&self, request: &Parts) -> Result<Key, Missing> {
        self(request).ok_or(Missing::ByClient)
    }
}

/// A key that a limit counts by.
///
/// Keys made here start with their kind (`ip:`, `header/x-tenant:`, `secret/x-api-key:`), so that one kind can never be
/// taken for another: a client that sends an address as its tenant does not spend that address's units.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    pub(super) fn tagged(kind: &str, name: &str, value: &[u8]) -> Self {
        Self([kind.as_bytes(), b"/", name.as_bytes(), b":", value].concat().into())
    }

    /// Returns the bytes that a limiter sees.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<T: Into<Vec<u8>>> From<T> for Key {
    fn from(bytes: T) -> Self {
        Self(bytes.into().into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

/// The side that left out the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The client did not send it: 400 if the layer refuses.
    ByClient,
    /// The server did not pass on the peer's address: 500 if the layer refuses, and this error is in the extensions of
    /// the response.
    ByServer,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByClient => "the request lacks what it is counted by",
            Self::ByServer => {
                "no peer address in the request's extensions: under axum enable the feature `axum` and serve with \
                 into_make_service_with_connect_info::<SocketAddr>(), elsewhere use ClientIp::peer_from"
            }
        })
    }
}

impl std::error::Error for Missing {}

/// The first of two that finds a key: see [`KeyExtractor::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn identify(&self, request: &Parts) -> Result<Key, Missing> {
        self.first.identify(request).or_else(|_| self.second.identify(request))
    }
}

/// One key for every request: a limit on the whole service, or on all requests that cannot be distinguished.
#[derive(Clone, Debug)]
pub struct SharedKey(Key);

impl SharedKey {
    /// Counts all requests under `name`.
    pub fn new(name: &str) -> Self {
        Self(Key::tagged("shared", "", name.as_bytes()))
    }
}

impl KeyExtractor for SharedKey {
    fn identify(&self, _: &Parts) -> Result<Key, Missing> {
        Ok(self.0.clone())
    }
}

/// A header's value as the key, such as a tenant set by the gateway in front.
///
/// Only for headers the client cannot choose: a client that picks the value picks a new budget. For an API key or
/// anything secret use [`SecretHeader`](super::SecretHeader).
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

impl Header {
    /// Counts by the value of the header `name`.
    pub const fn new(name: HeaderName) -> Self {
        Self(name)
    }
}

impl KeyExtractor for Header {
    fn identify(&self, request: &Parts) -> Result<Key, Missing> {
        let value = only_value(request, &self.0)?;
        Ok(Key::tagged("header", self.0.as_str(), value))
    }
}

/// Returns the value of a header sent once and not empty.
///
/// If it is sent twice, this layer and the code that checks the header could each read another line.
pub(super) fn only_value<'a>(request: &'a Parts, name: &HeaderName) -> Result<&'a [u8], Missing> {
    let mut values = request.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => Ok(value.as_bytes()),
        _ => Err(Missing::ByClient),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const TENANT: HeaderName = HeaderName::from_static("x-tenant");

    fn with_tenants(values: &[&str]) -> Parts {
        let request = values.iter().fold(Request::builder(), |r, v| r.header(TENANT, *v));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_header_is_a_key_only_when_sent_once_and_not_empty() {
        let key = |values: &[&str]| Header::new(TENANT).identify(&with_tenants(values));
        assert_eq!(key(&["acme"]), Ok(Key::from("header/x-tenant:acme")));
        for values in [&[][..], &[""], &["acme", "other"]] {
            assert_eq!(key(values), Err(Missing::ByClient), "{values:?}");
        }
    }

    #[test]
    fn a_fallback_is_asked_only_when_the_first_finds_nothing() {
        let who = Header::new(TENANT).or(SharedKey::new("rest"));
        assert_eq!(who.identify(&with_tenants(&["a"])), Ok(Key::from("header/x-tenant:a")));
        assert_eq!(who.identify(&with_tenants(&[])), Ok(Key::from("shared/:rest")));
    }
}
