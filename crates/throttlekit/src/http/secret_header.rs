//! A secret as a key, without storing the secret.

use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use sha2::Sha256;

use super::key::{Key, KeyExtractor, MissingKey, Named};
use crate::BuildError;

/// A secret header as the key. See [`secret_header`].
#[derive(Clone)]
pub struct SecretHeader {
    name: Named,
    keyed: Hmac<Sha256>,
}

/// Counts by the HMAC-SHA256 of a secret header, such as an API key or `Authorization`. [`build`] checks the name.
///
/// The secret itself never becomes a key, so it cannot leak through a store, a metric or a log. Set a
/// [`pepper`](SecretHeader::pepper) if secrets may be guessed: without one, anyone who sees the keys of a store can test
/// guesses against them.
///
/// This does not verify the secret. A client that invents API keys gets a new budget with each, so verify first, or
/// choose this key only for accounts that exist.
///
/// [`build`]: super::AdmissionLayerBuilder::build
pub fn secret_header(name: &str) -> SecretHeader {
    SecretHeader { name: Named::new(name), keyed: keyed(&[]) }
}

impl SecretHeader {
    /// Sets the key of the HMAC, ideally 32 random bytes. Every node that shares a store needs the same. Default: empty.
    pub fn pepper(self, pepper: &[u8]) -> Self {
        Self { keyed: keyed(pepper), ..self }
    }
}

fn keyed(pepper: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(pepper).expect("HMAC takes keys of any length")
}

impl KeyExtractor for SecretHeader {
    fn extract(&self, request: &Parts) -> Result<Key, MissingKey> {
        let (name, secret) = self.name.only_value(request)?;
        let tag = self.keyed.clone().chain_update(secret).finalize().into_bytes();
        Ok(Key::tagged("secret", name.as_str(), hex(&tag).as_bytes()))
    }

    fn validate(&self) -> Result<(), BuildError> {
        self.name.validate()
    }
}

// Shows the header, hides the pepper.
debug_fields!([] SecretHeader, |it| name = it.name);

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use http::{Request, header::AUTHORIZATION};

    use super::*;

    fn request(secret: &str) -> Parts {
        Request::builder().header(AUTHORIZATION, secret).body(()).unwrap().into_parts().0
    }

    /// RFC 4231, test case 2.
    #[test]
    fn the_key_is_hmac_sha256() {
        let key = secret_header("authorization").pepper(b"Jefe");
        let key = key.extract(&request("what do ya want for nothing?"));
        let tag = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(key, Ok(Key::from(format!("secret/authorization:{tag}"))));
    }

    #[test]
    fn neither_the_secret_nor_the_pepper_is_shown() {
        let key = secret_header("authorization").pepper(b"pepper");
        let shown = format!("{key:?} {:?}", key.extract(&request("hunter2")));
        assert!(!shown.contains("hunter2") && !shown.contains("pepper"), "{shown}");
    }
}
