//! What a descriptor is counted under: its values, joined so that no two lists of values read the same.
//!
//! One value stands as it is, so that a policy's overrides can name it; several are joined by `|`. `\` and `|` inside a
//! value are escaped by `\`, a value that is empty is `\e`, no value at all is nothing. What is too long to be a key
//! is `\#` and its SHA-256.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::engine::KEY_BYTES_MAX;

/// The key for these values.
pub fn joined<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut key = String::new();
    for (place, value) in values.into_iter().enumerate() {
        if place > 0 {
            key.push('|');
        }
        push_escaped(&mut key, value);
    }
    if key.len() > KEY_BYTES_MAX { hashed(&key) } else { key }
}

fn push_escaped(key: &mut String, value: &str) {
    if value.is_empty() {
        key.push_str("\\e");
    }
    for letter in value.chars() {
        if matches!(letter, '\\' | '|') {
            key.push('\\');
        }
        key.push(letter);
    }
}

fn hashed(key: &str) -> String {
    let mut hash = String::from("\\#");
    for byte in Sha256::digest(key.as_bytes()) {
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a key back into its values.
    fn split(key: &str) -> Vec<String> {
        if key.is_empty() {
            return Vec::new();
        }
        let (mut values, mut letters) = (vec![String::new()], key.chars());
        while let Some(letter) = letters.next() {
            let value = values.last_mut().unwrap();
            match letter {
                '|' => values.push(String::new()),
                '\\' => value.extend(letters.next().filter(|letter| *letter != 'e')),
                letter => value.push(letter),
            }
        }
        values
    }

    #[test]
    fn one_plain_value_is_its_own_key() {
        assert_eq!(joined(["alice"]), "alice");
        assert_eq!(joined(["alice", "GET"]), "alice|GET");
        assert_eq!(joined(["a|b"]), "a\\|b");
        assert_eq!(joined([]), "");
        assert_eq!(joined([""]), "\\e");
    }

    #[test]
    fn the_longest_key_stands_and_one_byte_more_is_hashed() {
        let most = "x".repeat(KEY_BYTES_MAX);
        assert_eq!(joined([most.as_str()]), most);
        let over = joined([format!("{most}x").as_str()]);
        assert_eq!((over.len(), &over[..2]), (66, "\\#"));
        assert_ne!(over, joined([format!("{most}y").as_str()]));
    }

    proptest! {
        #[test]
        fn values_can_be_read_back_from_their_key(values in prop::collection::vec("[a-e|\\\\#*é]{0,6}", 0..5)) {
            let key = joined(values.iter().map(String::as_str));
            prop_assert_eq!(split(&key), values);
        }
    }
}
