//! The key of a descriptor: its values, joined so that different lists of values give different keys.
//!
//! A single value is used as it is, so that a policy's overrides can name it; several are joined by `|`. `\` and `|`
//! inside a value are escaped by `\`, an empty value is `\e`, and no value at all is the empty key. A key that is too
//! long is counted under `\#` and its SHA-256.
//!
//! Clients of the proxy choose the values, so any bytes of any length are a key.

use std::borrow::Cow;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::engine::KEY_BYTES_MAX;

/// Returns the key for these values, of any length.
pub fn joined<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Vec<u8> {
    let mut key = Vec::new();
    for (place, value) in values.into_iter().enumerate() {
        if place > 0 {
            key.push(b'|');
        }
        push_escaped(&mut key, value.as_ref());
    }
    key
}

fn push_escaped(key: &mut Vec<u8>, value: &[u8]) {
    if value.is_empty() {
        key.extend(b"\\e");
    }
    for byte in value {
        if matches!(byte, b'\\' | b'|') {
            key.push(b'\\');
        }
        key.push(*byte);
    }
}

/// Returns the key if it is short enough for the engine, its hash otherwise.
pub(super) fn fitted(key: &[u8]) -> Cow<'_, [u8]> {
    if key.len() <= KEY_BYTES_MAX {
        return Cow::Borrowed(key);
    }
    let mut hash = String::from("\\#");
    for byte in Sha256::digest(key) {
        let _ = write!(hash, "{byte:02x}");
    }
    Cow::Owned(hash.into_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Splits a key into its values.
    fn split(key: &[u8]) -> Vec<Vec<u8>> {
        if key.is_empty() {
            return Vec::new();
        }
        let (mut values, mut bytes) = (vec![Vec::new()], key.iter());
        while let Some(byte) = bytes.next() {
            let value = values.last_mut().unwrap();
            match byte {
                b'|' => values.push(Vec::new()),
                b'\\' => value.extend(bytes.next().filter(|byte| **byte != b'e')),
                byte => value.push(*byte),
            }
        }
        values
    }

    #[test]
    fn one_plain_value_is_its_own_key() {
        assert_eq!(joined(["alice"]), b"alice");
        assert_eq!(joined(["alice", "GET"]), b"alice|GET");
        assert_eq!(joined(["a|b"]), b"a\\|b");
        assert_eq!(joined::<&str>([]), b"");
        assert_eq!(joined([""]), b"\\e");
    }

    #[test]
    fn the_longest_key_stands_and_one_byte_more_is_hashed() {
        let most = vec![b'x'; KEY_BYTES_MAX];
        assert_eq!(*fitted(&most), most);
        let over = fitted(&[&most[..], b"x"].concat()).into_owned();
        assert_eq!((over.len(), &over[..2]), (66, &b"\\#"[..]));
        assert_ne!(over, *fitted(&[&most[..], b"y"].concat()));
    }

    proptest! {
        #[test]
        fn values_can_be_read_back_from_their_key(
            values in prop::collection::vec(prop::collection::vec(prop::sample::select(&b"ae|\\#*\xC3\xFF\0"[..]), 0..6), 0..5),
        ) {
            prop_assert_eq!(split(&joined(&values)), values);
        }
    }
}
