//! Keys under which requests are counted.

use std::fmt;

use http::HeaderName;
use http::request::Parts;

use crate::BuildError;

/// Extracts the key of a request.
///
/// A closure from the request's head to an `Option<Key>` is one too.
///
/// ```
/// use http::request::Parts;
/// use throttlekit::http::{Key, KeyExtractor, client_ip, fixed};
///
/// let tenant = |request: &Parts| request.uri.path().split('/').nth(1).map(Key::from);
/// let key = tenant.or(client_ip()).or(fixed("unknown"));
/// # fn is_extractor(_: impl KeyExtractor) {}
/// # is_extractor(key);
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key, or the side that left it out.
    fn extract(&self, request: &Parts) -> Result<Key, MissingKey>;

    /// Checks the settings. Called when the layer is built. Default: they are valid.
    fn validate(&self) -> Result<(), BuildError> {
        Ok(())
    }

    /// Falls back to `other` if this finds nothing.
    fn or<K: KeyExtractor>(self, other: K) -> Or<Self, K>
    where
        Self: Sized,
    {
        Or { first: self, second: other }
    }
}

impl<F: Fn(&Parts) -> Option<Key> + Send + Sync + 'static> KeyExtractor for F {
    fn extract(&self, request: &Parts) -> Result<Key, MissingKey> {
        self(request).ok_or(MissingKey::Client)
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
#[non_exhaustive]
pub enum MissingKey {
    /// The client did not send it: 400 if the layer rejects.
    Client,
    /// The server did not pass on the peer's address, or the name of a header is invalid: 500 if the layer rejects, and
    /// this error is in the extensions of the response.
    Server,
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "the request has no key: the header or value to count by is missing",
            Self::Server => {
                "no peer address in the request's extensions: under axum enable the feature `axum` and serve with \
                 into_make_service_with_connect_info::<SocketAddr>(), elsewhere use ClientIp::peer_from"
            }
        })
    }
}

impl std::error::Error for MissingKey {}

/// The first of two that finds a key: see [`KeyExtractor::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, request: &Parts) -> Result<Key, MissingKey> {
        self.first.extract(request).or_else(|_| self.second.extract(request))
    }

    fn validate(&self) -> Result<(), BuildError> {
        self.first.validate()?;
        self.second.validate()
    }
}

/// One key for all requests. See [`fixed`].
#[derive(Clone, Debug)]
pub struct Fixed(Key);

/// Counts all requests under one key: a limit on the whole service, or on all requests that cannot be distinguished.
pub fn fixed(key: &str) -> Fixed {
    Fixed(Key::tagged("shared", "", key.as_bytes()))
}

impl KeyExtractor for Fixed {
    fn extract(&self, _: &Parts) -> Result<Key, MissingKey> {
        Ok(self.0.clone())
    }
}

/// The value of a header as the key. See [`header`].
#[derive(Clone, Debug)]
pub struct Header(Named);

/// Counts by the value of a header, such as a tenant set by the gateway in front. [`build`] checks the name.
///
/// Only for headers the client cannot choose: a client that picks the value picks a new budget. For an API key or
/// anything secret use [`secret_header`](super::secret_header).
///
/// [`build`]: super::AdmissionLayerBuilder::build
pub fn header(name: &str) -> Header {
    Header(Named::new(name))
}

impl KeyExtractor for Header {
    fn extract(&self, request: &Parts) -> Result<Key, MissingKey> {
        let (name, value) = self.0.only_value(request)?;
        Ok(Key::tagged("header", name.as_str(), value))
    }

    fn validate(&self) -> Result<(), BuildError> {
        self.0.validate()
    }
}

/// The name of a header, or what is none.
#[derive(Clone, Debug)]
pub(super) struct Named(Result<HeaderName, Box<str>>);

impl Named {
    pub(super) fn new(name: &str) -> Self {
        Self(name.parse().map_err(|_| name.into()))
    }

    pub(super) fn get(&self) -> Result<&HeaderName, MissingKey> {
        self.0.as_ref().map_err(|_| MissingKey::Server)
    }

    pub(super) fn validate(&self) -> Result<(), BuildError> {
        self.0.as_ref().map(drop).map_err(|name| BuildError::InvalidName(name.clone()))
    }

    /// Returns the value of a header sent once and not empty.
    ///
    /// If it is sent twice, this layer and the code that checks the header could each read another line.
    pub(super) fn only_value<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Result<(&'a HeaderName, &'a [u8]), MissingKey> {
        let name = self.get()?;
        let mut values = request.headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) if !value.is_empty() => Ok((name, value.as_bytes())),
            _ => Err(MissingKey::Client),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn with_tenants(values: &[&str]) -> Parts {
        let request = values.iter().fold(Request::builder(), |r, v| r.header("x-tenant", *v));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_header_is_a_key_only_when_sent_once_and_not_empty() {
        let key = |values: &[&str]| header("X-Tenant").extract(&with_tenants(values));
        assert_eq!(key(&["acme"]), Ok(Key::from("header/x-tenant:acme")));
        for values in [&[][..], &[""], &["acme", "other"]] {
            assert_eq!(key(values), Err(MissingKey::Client), "{values:?}");
        }
    }

    #[test]
    fn a_fallback_is_used_only_when_the_first_finds_nothing() {
        let key = header("x-tenant").or(fixed("rest"));
        assert_eq!(key.extract(&with_tenants(&["a"])), Ok(Key::from("header/x-tenant:a")));
        assert_eq!(key.extract(&with_tenants(&[])), Ok(Key::from("shared/:rest")));
    }

    #[test]
    fn an_invalid_header_name_is_reported() {
        let wrong = header("x tenant");
        assert_eq!(wrong.extract(&with_tenants(&["a"])), Err(MissingKey::Server));
        let error = fixed("all").or(wrong).validate().unwrap_err();
        assert_eq!(error, BuildError::InvalidName("x tenant".into()));
    }
}
