//! A cache of the secrets that are kept outside the policy file.

use std::collections::BTreeMap;
use std::time::Duration;

use throttlekit::rate::Timestamp;

use super::Secret;
use super::secret::Source;

/// Time for which a secret stays valid that can no longer be read.
///
/// Programs that replace a file by deleting and writing it leave a moment without a file, or with an empty one: callers
/// must not be refused for that. Half a second is long for the replacement of a file, and together with the default
/// reload interval of a second a deleted token is refused within two.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// Secrets by source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretCache(BTreeMap<Source, Entry>);

#[derive(Clone, Debug)]
struct Entry {
    secret: Option<Secret>,
    failure: Option<Failure>,
}

#[derive(Clone, Debug)]
struct Failure {
    since: Timestamp,
    why: String,
}

/// Result of reading each source.
pub(crate) type Reading = Vec<(Source, Result<Secret, String>)>;

/// Reads each source. Blocks on files.
pub(crate) fn read(sources: impl IntoIterator<Item = Source>) -> Reading {
    sources.into_iter().map(|source| (source.clone(), source.read())).collect()
}

impl SecretCache {
    /// Creates a cache of what was read, without a grace for sources that failed.
    pub(crate) fn of(reading: Reading) -> Self {
        Self::default().next(reading, Timestamp::EPOCH)
    }

    /// Returns the cache after a reading at `now`. Sources that were not read are removed.
    pub(crate) fn next(&self, reading: Reading, now: Timestamp) -> Self {
        let entry = |source: &Source, read| match read {
            Ok(secret) => Entry { secret: Some(secret), failure: None },
            Err(why) => self.failing(source, why, now),
        };
        let entries = reading.into_iter().map(|(source, read)| {
            let entry = entry(&source, read);
            (source, entry)
        });
        Self(entries.collect())
    }

    fn failing(&self, source: &Source, why: String, now: Timestamp) -> Entry {
        let before = self.0.get(source);
        let since = before.and_then(|entry| entry.failure.as_ref()).map_or(now, |failure| failure.since);
        let secret = before.and_then(|entry| entry.secret.clone());
        Entry { secret: secret.filter(|_| now.since(since) < GRACE), failure: Some(Failure { since, why }) }
    }

    /// Returns the secret in effect, or the reason why there is none.
    pub(super) fn get(&self, source: &Source) -> Result<&Secret, &str> {
        let Some(entry) = self.0.get(source) else { return Err("not read yet") };
        let why = || entry.failure.as_ref().map_or("not read yet", |failure| failure.why.as_str());
        entry.secret.as_ref().ok_or_else(why)
    }

    /// Checks whether a secret is in effect only by grace, so that the next reading may end it.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.values().any(|entry| entry.secret.is_some() && entry.failure.is_some())
    }

    /// Checks whether the same secrets are in effect, and the same ones missing for the same reasons.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same = |(a, mine): (&Source, &Entry), (b, theirs): (&Source, &Entry)| {
            a == b
                && match (&mine.secret, &theirs.secret) {
                    (Some(mine), Some(theirs)) => mine.is(theirs).into(),
                    (None, None) => self.get(a).err() == other.get(b).err(),
                    _ => false,
                }
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| same(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(10_000 + ms)
    }

    fn one(read: Result<&str, &str>) -> Reading {
        let read = read.map(|text| Secret::of(text.as_bytes()).unwrap()).map_err(ToOwned::to_owned);
        vec![(source(), read)]
    }

    fn source() -> Source {
        Source::Env("TOKEN".into())
    }

    fn is(held: &SecretCache, text: &str) -> bool {
        held.get(&source()).is_ok_and(|secret| secret.is(&Secret::of(text.as_bytes()).unwrap()).into())
    }

    #[test]
    fn an_unreadable_secret_stays_for_its_grace_and_not_a_tick_longer() {
        let held = SecretCache::of(one(Ok("first")));
        assert!(is(&held, "first") && !held.is_waiting());
        let missing = held.next(one(Err("gone")), at(0));
        assert!(is(&missing, "first") && missing.is_waiting());
        assert!(held.is_same(&missing), "nothing changed yet");
        let (just, over) = (missing.next(one(Err("gone")), at(499)), missing.next(one(Err("gone")), at(500)));
        assert!(is(&just, "first"));
        assert_eq!(over.get(&source()).unwrap_err(), "gone");
        assert!(!over.is_waiting() && !over.is_same(&missing));
        // The grace starts when the secret is first missed, not at the last check.
        assert!(just.next(one(Err("gone")), at(500)).get(&source()).is_err());
    }

    #[test]
    fn a_secret_that_is_back_is_in_force_at_once_and_has_its_grace_again() {
        let missing = SecretCache::of(one(Ok("first"))).next(one(Err("gone")), at(0));
        let back = missing.next(one(Ok("second")), at(100));
        assert!(is(&back, "second") && !back.is_waiting() && !back.is_same(&missing));
        assert!(is(&back.next(one(Err("gone")), at(900)), "second"));
        let revoked = missing.next(one(Err("gone")), at(700));
        assert!(is(&revoked.next(one(Ok("first")), at(800)), "first"));
    }

    #[test]
    fn a_secret_that_was_never_read_has_no_grace() {
        let held = SecretCache::of(one(Err("no such file")));
        assert_eq!(held.get(&source()).unwrap_err(), "no such file");
        assert!(!held.is_waiting());
        assert!(held.is_same(&held.next(one(Err("no such file")), at(0))));
        assert!(!held.is_same(&held.next(one(Err("permission denied")), at(0))));
        assert!(SecretCache::default().get(&source()).is_err());
    }
}
