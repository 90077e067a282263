//! A secret as a key, without storing the secret.

use hmac::{Hmac, KeyInit, Mac};
use http::HeaderName;
use http::request::Parts;
use sha2::Sha256;

use super::key::{Key, KeyExtractor, Missing, only_value};

/// A secret header as the key, such as an API key or `Authorization`: counted by its HMAC-SHA256.
///
/// The secret itself never becomes a key, so it cannot leak through a store, a metric or a log; and without the pepper
/// nobody can test guesses against leaked keys. Every node that shares a store needs the same pepper.
///
/// This does not verify the secret. A client that invents API keys gets a new budget with each, so verify first, or
/// choose this key only for accounts that exist.
#[derive(Clone)]
pub struct SecretHeader {
    name: HeaderName,
    keyed: Hmac<Sha256>,
}

impl SecretHeader {
    /// Counts by the HMAC of the header `name` under `pepper`, ideally 32 random bytes.
    pub fn new(name: HeaderName, pepper: &[u8]) -> Self {
        let keyed = Hmac::new_from_slice(pepper).expect("HMAC takes keys of any length");
        Self { name, keyed }
    }
}

impl KeyExtractor for SecretHeader {
    fn identify(&self, request: &Parts) -> Result<Key, Missing> {
        let secret = only_value(request, &self.name)?;
        let tag = self.keyed.clone().chain_update(secret).finalize().into_bytes();
        Ok(Key::tagged("secret", self.name.as_str(), hex(&tag).as_bytes()))
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
        let key =
            SecretHeader::new(AUTHORIZATION, b"Jefe").identify(&request("what do ya want for nothing?"));
        let tag = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(key, Ok(Key::from(format!("secret/authorization:{tag}"))));
    }

    #[test]
    fn neither_the_secret_nor_the_pepper_is_shown() {
        let who = SecretHeader::new(AUTHORIZATION, b"pepper");
        let shown = format!("{who:?} {:?}", who.identify(&request("hunter2")));
        assert!(!shown.contains("hunter2") && !shown.contains("pepper"), "{shown}");
    }
}
