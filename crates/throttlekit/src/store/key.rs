//! Encoding of keys in a store: two different keys never collide, and no caller chooses the cluster slot.
//!
//! ```text
//! tk:{api/acme}g:user/alice      prefix, policy, home, rule, limit, key
//! tk:{api/alice}g:               one limit without a name, where the key is its own home
//! tk:{api/}q:                    the window of which the processes of a policy take quanta
//! tk:{api/}p:                    the pool that the regions of a policy share
//! tk:{api/acme}h:                who holds the slots of a key
//! tk:{api/}r:                    the membership record of a fleet
//! ```
//!
//! The text between the braces, the hash tag, selects the slot of a Redis cluster, so all keys with one routing key
//! share a slot. Every part is escaped: letters, digits and a few other characters are literal, all else becomes `%xx`.
//! So the braces and separators are ours alone, and the parts can be read back. A part beyond [`KEY_PART_MAX`] bytes is
//! replaced by its SHA-256.

use sha2::{Digest, Sha256};
use throttlekit_core::rate::shared::{ScriptEncoding, ScriptRule};

/// Default maximum length of a part of a key that is written out.
pub const KEY_PART_MAX: usize = 200;

/// Names under which the keys of one limit are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySpace {
    /// Up to and including the slash after the policy.
    head: String,
    /// Rule and limit.
    tail: String,
    /// Maximum length of a part that is written out.
    part_max: usize,
}

impl KeySpace {
    /// Creates the names for the keys of `limit` of `policy`. A limit's name separates it from the policy's others.
    pub fn new(prefix: &str, policy: &str, limit: &str, form: &ScriptEncoding) -> Self {
        Self::tagged(prefix, policy, limit, &rule_tag(form))
    }

    /// Returns the name of the pool that the regions of `policy` share.
    pub fn pool(prefix: &str, policy: &str) -> String {
        Self::tagged(prefix, policy, "", "p").key(b"", b"")
    }

    /// Returns the name of the window of which the processes of `policy` take quanta.
    pub fn quanta(prefix: &str, policy: &str) -> String {
        Self::tagged(prefix, policy, "", "q").key(b"", b"")
    }

    /// Creates the names for the slot holders of `policy`. Each key is its own routing key.
    pub fn slots(prefix: &str, policy: &str) -> Self {
        Self::tagged(prefix, policy, "", "h")
    }

    /// Returns the name of the membership record of the shared concurrency limit `name`.
    pub fn membership(prefix: &str, name: &str) -> String {
        Self::tagged(prefix, name, "", "r").key(b"", b"")
    }

    /// Encodes a name for keys and for their values: different from every other, without separators, and never empty.
    pub fn part(name: &[u8]) -> String {
        let mut written = String::new();
        part(name, KEY_PART_MAX, &mut written);
        // No other name is encoded so: elsewhere two digits follow.
        if written.is_empty() { "%".into() } else { written }
    }

    fn tagged(prefix: &str, policy: &str, limit: &str, tag: &str) -> Self {
        let mut head = String::new();
        escape(prefix.as_bytes(), &mut head);
        head.push_str(":{");
        escape(policy.as_bytes(), &mut head);
        head.push('/');
        let mut tail = format!("}}{tag}:");
        escape(limit.as_bytes(), &mut tail);
        Self { head, tail, part_max: KEY_PART_MAX }
    }

    /// Sets the maximum length of a part that is written out. Default: [`KEY_PART_MAX`].
    pub fn part_max(self, part_max: usize) -> Self {
        Self { part_max, ..self }
    }

    /// Returns the name of `key` beside the others with the routing key `home`.
    pub fn key(&self, home: &[u8], key: &[u8]) -> String {
        let mut name = String::with_capacity(self.head.len() + self.tail.len() + home.len() + key.len() + 8);
        self.write_key(home, key, &mut name);
        name
    }

    /// Appends the name of `key` beside the others with the routing key `home`.
    pub(crate) fn write_key(&self, home: &[u8], key: &[u8], name: &mut String) {
        name.push_str(&self.head);
        part(home, self.part_max, name);
        name.push_str(&self.tail);
        if key != home {
            name.push('/');
            part(key, self.part_max, name);
        }
    }
}

/// Returns what all keys of a [`KeySpace`] have in common and those of no other: up to the slash after the policy, and
/// the rule with the limit's name. A key that is not from one has nothing in common with those that are.
pub(super) fn space_of(key: &str) -> (&str, &str) {
    let parts = || {
        let brace = key.find('{')?;
        let home = brace + key[brace..].find('/')? + 1;
        let rule = home + key[home..].find('}')?;
        let end = key[rule..].find('/').map_or(key.len(), |slash| rule + slash);
        Some((&key[..home], &key[rule..end]))
    };
    parts().unwrap_or_default()
}

/// Returns the tag of a rule. States of different rules never share a key: a limit that changes its kind starts over. A
/// budget counts as any window does.
fn rule_tag(form: &ScriptEncoding) -> String {
    match (form.kind(), form.shape()) {
        (ScriptRule::Gcra, _) => "g".into(),
        (kind, _) if kind.is_window() => "w".into(),
        (ScriptRule::Log, _) => "l".into(),
        (ScriptRule::Sliding, Some((length, buckets))) => format!("s{length}.{buckets}"),
        _ => "s".into(),
    }
}

fn part(bytes: &[u8], part_max: usize, name: &mut String) {
    if bytes.len() <= part_max {
        return escape(bytes, name);
    }
    name.push('#');
    for byte in Sha256::digest(bytes) {
        push_hex(byte, name);
    }
}

fn escape(bytes: &[u8], name: &mut String) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    if bytes.iter().all(|&byte| plain(byte))
        && let Ok(text) = str::from_utf8(bytes)
    {
        return name.push_str(text);
    }
    for &byte in bytes {
        if plain(byte) {
            name.push(byte.into());
        } else {
            name.push('%');
            push_hex(byte, name);
        }
    }
}

fn push_hex(byte: u8, name: &mut String) {
    let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0');
    name.push(digit(byte >> 4));
    name.push(digit(byte & 15));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;
    use throttlekit_core::rate::{Limit, Rate};

    use super::*;

    fn space(policy: &str, limit: &str) -> KeySpace {
        let form = ScriptEncoding::of(&Limit::gcra(Rate::per_second(1)).unwrap()).unwrap();
        KeySpace::new("tk", policy, limit, &form)
    }

    /// Returns what Redis hashes: the text between the first `{` and the next `}`.
    fn hash_tag(name: &str) -> &str {
        let begin = name.find('{').unwrap() + 1;
        &name[begin..begin + name[begin..].find('}').unwrap()]
    }

    #[test]
    fn keys_can_be_read() {
        assert_eq!(space("api", "user").key(b"acme", b"alice"), "tk:{api/acme}g:user/alice");
        assert_eq!(space("api", "").key(b"al:ice", b"al:ice"), "tk:{api/al%3aice}g:");
        assert_eq!(KeySpace::pool("tk", "api"), "tk:{api/}p:");
        assert_eq!(KeySpace::slots("tk", "api").key(b"acme", b"acme"), "tk:{api/acme}h:");
        assert_eq!(KeySpace::membership("tk", "api"), "tk:{api/}r:");
        assert_eq!(space_of("tk:{api/acme}g:user/alice"), ("tk:{api/", "}g:user"));
        assert_eq!(["acme", "{a", "{a/", "a/b}c"].map(space_of), [("", ""); 4]);
        assert_eq!([&b"eu west"[..], b"%", b""].map(KeySpace::part), ["eu%20west", "%25", "%"]);
    }

    #[test]
    fn long_keys_stay_short_and_apart() {
        let (long, longer) = ([b'a'; 10_000], [b'a'; 10_001]);
        let names = [&long[..], &longer[..]].map(|key| space("api", "").key(key, key));
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() < 100));
        let digest = names[0].split(['/', '}']).nth(1).unwrap();
        assert_ne!(
            space("api", "").key(digest.as_bytes(), digest.as_bytes()),
            names[0],
            "a digest is no key"
        );
        let whole = space("api", "").part_max(usize::MAX).key(&long, &long);
        assert_eq!(whole.len(), "tk:{api/}g:".len() + long.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        /// `a:b` + `c` and `a` + `b:c` never share state, whatever the parts hold.
        #[test]
        fn different_keys_never_look_alike(
            a in "[ab:/{}%#]{0,4}", b in "[ab:/{}%#]{0,4}", limit in "[ab:/]{0,3}",
            home in proptest::collection::vec(prop::sample::select(b"ab:/{}%#\0\xff".to_vec()), 0..5),
            other in proptest::collection::vec(prop::sample::select(b"ab:/{}%#\0\xff".to_vec()), 0..5),
            key in proptest::collection::vec(prop::sample::select(b"ab:/{}%#\0\xff".to_vec()), 0..5),
        ) {
            let all = [
                (&a, &limit, &home, &key), (&b, &limit, &home, &key), (&a, &b, &home, &key),
                (&a, &limit, &other, &key), (&a, &limit, &home, &other), (&a, &limit, &key, &key),
            ];
            for x in &all {
                for y in &all {
                    let name = |(policy, limit, home, key): &(&String, &String, &Vec<u8>, &Vec<u8>)| {
                        space(policy, limit).key(home, key)
                    };
                    prop_assert_eq!(name(x) == name(y), x == y, "{:?} {:?}", x, y);
                }
            }
        }

        /// A key is among those of its policy and its limit, whatever its routing key.
        #[test]
        fn a_key_identifies_its_space(
            a in "[ab:/{}%#]{0,3}", b in "[ab:/{}%#]{0,3}", limit in "[ab:/{}]{0,3}", other in "[ab:/{}]{0,3}",
            home in "[ab:/{}%#]{0,4}", key in "[ab:/{}%#]{0,4}",
        ) {
            let name = |policy: &str, limit: &str, home: &str, key: &str| {
                space(policy, limit).key(home.as_bytes(), key.as_bytes())
            };
            let here = name(&a, &limit, &home, &key);
            let beside = [name(&a, &limit, &key, &home), name(&a, &limit, &home, &home), name(&a, &limit, "", "")];
            for beside in &beside {
                prop_assert_eq!(space_of(&here), space_of(beside));
            }
            let elsewhere = [(name(&b, &limit, &home, &key), a == b), (name(&a, &other, &home, &key), limit == other)];
            for (elsewhere, same) in &elsewhere {
                prop_assert_eq!(space_of(&here) == space_of(elsewhere), *same);
            }
            prop_assert_eq!(space_of(&key).0.is_empty(), space_of(&key).1.is_empty());
        }

        /// A key with `{}` cannot choose its slot: the tag is the policy and the routing key, escaped.
        #[test]
        fn braces_in_a_key_do_not_choose_the_slot(home in "[ab{}]{0,6}", key in "[ab{}]{0,6}", policy in "[a{}]{1,4}") {
            let name = space(&policy, "l").key(home.as_bytes(), key.as_bytes());
            prop_assert_eq!(name.matches('{').count(), 1);
            prop_assert_eq!(name.matches('}').count(), 1);
            let beside = space(&policy, "m").key(home.as_bytes(), b"another");
            prop_assert_eq!(hash_tag(&name), hash_tag(&beside));
            prop_assert!(hash_tag(&name).len() > 1, "an empty tag would hash the whole key");
        }
    }
}
