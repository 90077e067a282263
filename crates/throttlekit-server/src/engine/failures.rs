//! The last failure of the store.

use throttlekit::clock::{Clock, WallClock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;

/// A failed call to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// Time at which it was noticed here.
    pub at: Timestamp,
    /// Cause, for people. It contains no key.
    pub why: String,
}

/// The last failure, of all policies.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<Option<(Timestamp, StoreError)>>);

impl Failures {
    pub(super) fn note(&self, error: &StoreError) {
        // A client that numbers its debits wrongly is not a failure of the store.
        if !matches!(error, StoreError::Stale(_)) {
            *self.0.lock() = Some((WallClock.now(), error.clone()));
        }
    }

    pub(super) fn last(&self) -> Option<StoreFailure> {
        let last = self.0.lock().clone();
        last.map(|(at, error)| StoreFailure { at, why: told(&error) })
    }
}

/// Describes an error without keys, since not every reader may see those of every policy.
fn told(error: &StoreError) -> String {
    match error {
        StoreError::BadState(_) => "a key holds foreign data: the error of its request names the key".into(),
        error => error.to_string(),
    }
}

/// A result of a store call that may have failed.
pub(super) trait Failed {
    /// Returns the first failure in it.
    fn failed(&self) -> Option<&StoreError>;
}

impl<T> Failed for Result<T, StoreError> {
    #[inline]
    fn failed(&self) -> Option<&StoreError> {
        self.as_ref().err()
    }
}

impl<T> Failed for Vec<Result<T, StoreError>> {
    #[inline]
    fn failed(&self) -> Option<&StoreError> {
        self.iter().find_map(Failed::failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_is_kept_with_its_time_and_names_no_key() {
        let failures = Failures::default();
        assert_eq!(failures.last(), None);
        let before = WallClock.now();
        failures.note(&StoreError::unavailable("no route to host"));
        let seen = failures.last().unwrap();
        assert_eq!(seen.why, "the store is unavailable: no route to host");
        assert!(seen.at >= before && seen.at <= WallClock.now());
        failures.note(&StoreError::bad_state("tk:{api/alice}"));
        assert!(!failures.last().unwrap().why.contains("alice"));
        failures.note(&StoreError::Stale(7));
        assert!(
            failures.last().unwrap().why.starts_with("a key holds foreign data"),
            "a stale debit is the client's"
        );
    }
}
