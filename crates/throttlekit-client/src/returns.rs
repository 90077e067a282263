//! The ids under which unspent units are returned.

use std::collections::{HashMap, VecDeque};

use throttlekit::clock::{BootClock, Clock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::Epoch;

use crate::store_key::StoreKey;

/// Maximum number of keys with stored ids. Units of further keys expire with their window.
const KEPT_MAX: usize = 65_536;
/// Maximum number of leases per key. Unspent units are mostly of the last: a batch is fetched when the previous runs
/// low.
const LEASES_MAX: usize = 16;

/// The return ids of each key's last leases of one window, as the server sent them. Each is used once.
#[derive(Default)]
pub(crate) struct Returns(Mutex<HashMap<StoreKey, Names>>);

struct Names {
    epoch: Epoch,
    until: Timestamp,
    /// In order; the most recent last.
    leases: VecDeque<Name>,
}

/// One lease, and the number of units that may be returned under its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) id: String,
    pub(crate) wire_epoch: String,
    pub(crate) units: u64,
}

impl Returns {
    /// Stores a lease that ends at `until`, by the boot clock. Those of another window are over.
    pub(crate) fn keep(&self, key: StoreKey, epoch: Epoch, lease: Name, until: Timestamp) {
        if lease.id.is_empty() {
            return;
        }
        let mut names = self.0.lock();
        if names.len() >= KEPT_MAX && !names.contains_key(&key) {
            let now = BootClock.now();
            names.retain(|_, name| name.until > now);
            if names.len() >= KEPT_MAX {
                return;
            }
        }
        let fresh = || Names { epoch, until, leases: VecDeque::new() };
        let of_key = names.entry(key).or_insert_with(fresh);
        if of_key.epoch != epoch {
            *of_key = fresh();
        }
        if of_key.leases.len() >= LEASES_MAX {
            of_key.leases.pop_front();
        }
        of_key.until = of_key.until.max(until);
        of_key.leases.push_back(lease);
    }

    /// Takes the ids under which to return this many units of this window, with the units for each. The most recent
    /// lease first: earlier ones are spent first. Fewer units, if there are not enough ids.
    pub(crate) fn take(&self, key: &StoreKey, epoch: Epoch, units: u64) -> Vec<Name> {
        let (mut names, mut left, mut taken) = (self.0.lock(), units, Vec::new());
        let Some(of_key) = names.get_mut(key).filter(|of_key| of_key.epoch == epoch) else { return taken };
        while left > 0
            && let Some(lease) = of_key.leases.pop_back()
        {
            let part = left.min(lease.units);
            left -= part;
            taken.push(Name { units: part, ..lease });
        }
        if of_key.leases.is_empty() {
            names.remove(key);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: &str, units: u64) -> Name {
        Name { id: id.into(), wire_epoch: String::new(), units }
    }

    fn key(key: &str) -> StoreKey {
        StoreKey { policy: "api".into(), key: key.into() }
    }

    fn holding(leases: &[(&str, u64)]) -> Returns {
        let returns = Returns::default();
        for (id, units) in leases {
            returns.keep(key("k"), Epoch(1), lease(id, *units), Timestamp::MAX);
        }
        returns
    }

    #[test]
    fn what_several_leases_left_goes_back_under_the_name_of_each() {
        let returns = holding(&[("a", 20), ("b", 20), ("c", 20)]);
        assert_eq!(returns.take(&key("k"), Epoch(1), 30), [lease("c", 20), lease("b", 10)]);
        assert_eq!(returns.take(&key("k"), Epoch(1), 30), [lease("a", 20)], "each name once");
        assert_eq!(returns.take(&key("k"), Epoch(1), 30), []);
    }

    #[test]
    fn names_of_another_window_or_key_are_not_used() {
        let returns = holding(&[("a", 20)]);
        assert_eq!(returns.take(&key("k"), Epoch(2), 5), []);
        assert_eq!(returns.take(&key("l"), Epoch(1), 5), []);
        let of_another_policy = StoreKey { policy: "chat".into(), ..key("k") };
        assert_eq!(returns.take(&of_another_policy, Epoch(1), 5), []);
        returns.keep(key("k"), Epoch(2), lease("b", 7), Timestamp::MAX);
        assert_eq!(
            returns.take(&key("k"), Epoch(2), 30),
            [lease("b", 7)],
            "those of the window before are over"
        );
    }

    #[test]
    fn a_key_keeps_the_names_of_its_last_leases() {
        let returns = Returns::default();
        for id in 0..100 {
            returns.keep(key("k"), Epoch(1), lease(&id.to_string(), 1), Timestamp::MAX);
        }
        let taken = returns.take(&key("k"), Epoch(1), 1_000);
        assert_eq!((taken.len(), &*taken[0].id), (LEASES_MAX, "99"));
    }
}
