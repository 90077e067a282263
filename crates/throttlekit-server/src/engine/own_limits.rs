//! Limits that requests bring along, in place of those of their policy.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::internals::Mutex;

use super::variant::Variant;

/// Maximum number of different limits that are kept ready for a policy. With one more, all are built again when needed:
/// a limit has no state of its own, since the store counts.
const KEPT_MAX: usize = 64;

/// A limit that a request brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnLimit {
    /// Number of units, at least 1.
    pub(crate) limit: u64,
    /// Period.
    pub(crate) per: Duration,
}

/// The limits that requests of a policy brought along lately. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OwnLimits(Arc<Mutex<HashMap<OwnLimit, Arc<Variant>>>>);

impl OwnLimits {
    /// Returns the limits for a request; builds them if they are new.
    pub(super) fn get(
        &self,
        limit: OwnLimit,
        build: impl FnOnce() -> Result<Variant, String>,
    ) -> Result<Arc<Variant>, String> {
        if let Some(known) = self.0.lock().get(&limit) {
            return Ok(known.clone());
        }
        let built = Arc::new(build()?);
        let mut known = self.0.lock();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(limit, built.clone());
        Ok(built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_built_once_and_their_number_is_bounded() {
        let limits = OwnLimits::default();
        let of = |limit| OwnLimit { limit, per: Duration::from_secs(1) };
        let first = limits.get(of(1), || Ok(Variant::unlimited())).unwrap();
        let again = limits.get(of(1), || Err("built twice".into())).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert!(limits.get(of(2), || Err("invalid".into())).is_err());
        for limit in 0..1_000 {
            limits.get(of(limit), || Ok(Variant::unlimited())).unwrap();
            assert!(limits.0.lock().len() <= KEPT_MAX);
        }
    }
}
