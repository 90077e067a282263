//! Names of limits, as decisions carry them.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use crate::hash::{KeyHash, SecretHash};

/// Name of a limit within its policy, such as `team`: two bytes, so that a denial can carry it.
///
/// Each distinct name is kept for the life of the process, up to [`NAMES_MAX`](Self::NAMES_MAX) of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LimitName(NonZeroU16);

/// The names, by their hash, with gaps. Entries are filled once and never removed.
static NAMES: [OnceLock<Box<str>>; 2 * LimitName::NAMES_MAX] =
    [const { OnceLock::new() }; 2 * LimitName::NAMES_MAX];
/// Number of entries that are filled, or about to be.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// Names may come from other machines.
static HASH: LazyLock<SecretHash> = LazyLock::new(SecretHash::random);

const _: () = assert!(2 * LimitName::NAMES_MAX < u16::MAX as usize);

impl LimitName {
    /// Maximum number of distinct names in a process.
    pub const NAMES_MAX: usize = 4_096;
    /// Maximum length of a name, in bytes.
    pub const BYTES_MAX: usize = 512;

    /// Returns the name. `None` if it is empty or longer than the maximum, and for a new name beyond the maximum number.
    pub fn new(name: &str) -> Option<Self> {
        if name.is_empty() || name.len() > Self::BYTES_MAX {
            return None;
        }
        let mut at = HASH.fingerprint(name.as_bytes()) as usize % NAMES.len();
        // At most half of the entries are used, so a gap is near.
        loop {
            if entry(at, name)? == name {
                return NonZeroU16::new(at as u16 + 1).map(Self);
            }
            at = (at + 1) % NAMES.len();
        }
    }

    /// Returns the text.
    pub fn as_str(self) -> &'static str {
        NAMES[usize::from(self.0.get()) - 1].get().map_or("", |name| name)
    }
}

/// Returns the name at a place, which is this one if there was none. `None` if there was none and no more may be filled.
fn entry(at: usize, name: &str) -> Option<&'static str> {
    if let Some(known) = NAMES[at].get() {
        return Some(known);
    }
    let more = |known| (known < LimitName::NAMES_MAX).then_some(known + 1);
    KNOWN.fetch_update(Relaxed, Relaxed, more).ok()?;
    let mut is_filled = false;
    let known = NAMES[at].get_or_init(|| {
        is_filled = true;
        name.into()
    });
    if !is_filled {
        // Another thread was first.
        KNOWN.fetch_sub(1, Relaxed);
    }
    Some(known)
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_wherever_it_comes_from() {
        let names = || ["team", "organisation", "rate.2"].map(|name| LimitName::new(name).unwrap());
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(names)).collect();
        let first = names();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == first));
        assert_eq!(first.map(LimitName::as_str), ["team", "organisation", "rate.2"]);
        assert!(first[0] != first[1]);
    }

    #[test]
    fn an_empty_name_and_one_that_is_too_long_are_none() {
        assert_eq!(LimitName::new(""), None);
        assert_eq!(LimitName::new(&"x".repeat(LimitName::BYTES_MAX + 1)), None);
        assert!(LimitName::new(&"x".repeat(LimitName::BYTES_MAX)).is_some());
    }
}
