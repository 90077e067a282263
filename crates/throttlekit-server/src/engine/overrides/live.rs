//! The overrides of one running policy, by key.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use super::super::by_key::ByKey;
use super::super::variant::Variant;
use super::limits::Limits;

/// The overrides of one running policy. Clones share them.
#[derive(Clone, Default)]
pub(in crate::engine) struct Live(Arc<ArcSwap<Table>>);

#[derive(Default)]
struct Table {
    by_key: ByKey<Arc<LiveLimits>>,
    /// Keys with equal limits share one variant.
    known: HashMap<Limits, Arc<LiveLimits>>,
}

/// Limits, and the variant that is built of them at the first request.
pub(in crate::engine) struct LiveLimits {
    pub(in crate::engine) limits: Limits,
    variant: OnceLock<Option<Arc<Variant>>>,
}

impl LiveLimits {
    /// Returns the variant. `None` if these limits do not fit the policy.
    pub(in crate::engine) fn variant(
        &self,
        build: impl FnOnce(&Limits) -> Option<Variant>,
    ) -> Option<Arc<Variant>> {
        self.variant.get_or_init(|| build(&self.limits).map(Arc::new)).clone()
    }

    fn built(&self) -> Option<Arc<Variant>> {
        self.variant.get().cloned().flatten()
    }
}

impl Live {
    /// Returns the limits of a key that match it by at least `length` bytes. A whole key matches by `usize::MAX`.
    pub(in crate::engine) fn find(&self, key: &[u8], length: usize) -> Option<Arc<LiveLimits>> {
        let table = self.0.load();
        if table.known.is_empty() {
            return None;
        }
        let (matched, found) = table.by_key.longest(key)?;
        (matched >= length).then(|| found.clone())
    }

    /// Replaces all overrides, by key or prefix. Returns the variants that are not used any more.
    pub(in crate::engine) fn replace<'a>(
        &self,
        overrides: impl Iterator<Item = (&'a str, &'a Limits)>,
    ) -> Vec<Arc<Variant>> {
        let before = self.0.load_full();
        let mut known: HashMap<Limits, Arc<LiveLimits>> = HashMap::new();
        let each = overrides.map(|(pattern, limits)| {
            if let Some(same) = known.get(limits) {
                return (pattern, same.clone());
            }
            let new = || Arc::new(LiveLimits { limits: limits.clone(), variant: OnceLock::new() });
            let live = before.known.get(limits).cloned().unwrap_or_else(new);
            known.insert(limits.clone(), live.clone());
            (pattern, live)
        });
        let by_key = each.collect();
        let gone = before.known.iter().filter(|(limits, _)| !known.contains_key(*limits));
        let gone = gone.filter_map(|(_, live)| live.built()).collect();
        self.0.store(Arc::new(Table { by_key, known }));
        gone
    }

    /// Returns the variants that were built.
    pub(in crate::engine) fn built(&self) -> Vec<Arc<Variant>> {
        self.0.load().known.values().filter_map(|live| live.built()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::tests::budget;
    use super::*;

    #[test]
    fn equal_limits_share_a_variant_which_survives_other_changes() {
        let (live, one, two) = (Live::default(), budget(1), budget(2));
        assert!(live.find(b"a", 0).is_none());
        assert!(live.replace([("a", &one), ("b*", &one), ("c", &two)].into_iter()).is_empty());
        let variant = |key: &[u8]| live.find(key, 0)?.variant(|_| Some(Variant::unlimited()));
        let (a, b, c) = (variant(b"a").unwrap(), variant(b"bx").unwrap(), variant(b"c").unwrap());
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &c));
        let gone = live.replace([("d", &one)].into_iter());
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0], &c), "its limits are used no more");
        assert!(Arc::ptr_eq(&variant(b"d").unwrap(), &a) && variant(b"a").is_none());
        assert_eq!(live.built().len(), 1);
    }

    #[test]
    fn a_longer_match_of_the_file_wins_and_an_equal_one_does_not() {
        let (live, one) = (Live::default(), budget(1));
        live.replace([("acme*", &one), ("whole", &one)].into_iter());
        assert!(live.find(b"acme/1", 4).is_some() && live.find(b"acme/1", 5).is_none());
        assert!(live.find(b"whole", usize::MAX).is_some() && live.find(b"acme", usize::MAX).is_none());
    }
}
