//! Reading the keys of the library's key space back.

use throttlekit::StoreError;

/// A key as the library names it for one limit of a policy, with escapes: `prefix:{policy/key}rule:`, or
/// `prefix:{policy/home}rule:/key` if another key selects the cluster slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreKey {
    /// The name of the policy.
    pub(crate) policy: String,
    /// The key of the caller.
    pub(crate) key: String,
}

impl StoreKey {
    pub(crate) fn parse(name: &str) -> Result<Self, StoreError> {
        let parsed = || {
            let (_, tagged) = name.split_once(":{")?;
            let (tag, rule) = tagged.split_once('}')?;
            let (policy, home) = tag.split_once('/')?;
            let key = rule.split_once('/').map_or(home, |(_, key)| key);
            Some(Self { policy: unescaped(policy)?, key: unescaped(key)? })
        };
        parsed().ok_or_else(|| {
            StoreError::rejected(format_args!("{name}: a server accepts only text keys of one limit"))
        })
    }
}

fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [byte, more @ ..] = rest {
        rest = more;
        match byte {
            b'%' => {
                let (hex, more) = rest.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok()?);
                rest = more;
            }
            // A hash, which cannot be read back.
            b'#' => return None,
            plain => bytes.push(*plain),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use throttlekit::rate::shared::ScriptEncoding;
    use throttlekit::store::KeySpace;
    use throttlekit::{Limit, Rate};

    use super::*;

    fn space(policy: &str) -> KeySpace {
        let form = ScriptEncoding::of(&Limit::gcra(Rate::per_second(1)).unwrap()).unwrap();
        KeySpace::new("tk", policy, "", &form)
    }

    fn parsed(space: &KeySpace, key: &[u8]) -> Result<StoreKey, StoreError> {
        StoreKey::parse(&space.key(key, key))
    }

    #[test]
    fn policy_and_key_are_read_back_as_they_were_given() {
        let whole = space("a/pi {}").part_max(usize::MAX);
        for key in ["alice", "", "{x}/y:%#z", "ключ", &"k".repeat(201)] {
            let expected = StoreKey { policy: "a/pi {}".into(), key: key.into() };
            assert_eq!(parsed(&whole, key.as_bytes()), Ok(expected));
            assert_eq!(StoreKey::parse(&whole.key(b"home", key.as_bytes())).unwrap().key, key);
        }
    }

    #[test]
    fn hashes_and_bytes_cannot_be_read_back() {
        assert!(parsed(&space("api"), "k".repeat(201).as_bytes()).is_err(), "replaced by a hash");
        assert!(parsed(&space("api"), &[0xff]).is_err(), "the wire carries text");
    }
}
