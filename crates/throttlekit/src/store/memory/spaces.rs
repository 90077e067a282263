//! Keys grouped by limit and policy, whatever the limit's current numbers.
//!
//! A changed limit uses the same keys, and finds in them the state that it left under other numbers.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashTable;
use throttlekit_core::Timestamp;
use throttlekit_core::rate::estimate::Estimates;
use throttlekit_core::rate::shared::{ScriptEncoding, ScriptRule};
use throttlekit_core::rate::stored::Stored;
use throttlekit_core::rate::{Limit, State};

use crate::hash::{KeyHash, TrustedHash};
use crate::memory::{Budget, KeyMemory, Owing, Shards};
use crate::store::StoreError;
use crate::store::key::space_of;
use crate::store::streams::Search;
use crate::sync::RwLock;

/// Maximum number of limits in one store. Beyond it, those whose keys owe nothing any more are removed.
pub(super) const SPACES_MAX: usize = 65_536;

/// Each space has few shards, as there may be many spaces.
const SHARDS_PER_SPACE: usize = 16;

pub(super) struct Spaces {
    /// Memory for all keys, whichever limit they are of.
    budget: Arc<Budget>,
    table: RwLock<Table>,
    /// Operators name policies and limits, not untrusted clients.
    hash: TrustedHash,
}

#[derive(Default)]
struct Table {
    spaces: HashTable<(u64, Space)>,
    search: Search,
}

/// The keys of one limit.
pub(super) struct Space {
    /// Common parts of all its keys.
    name: (Box<str>, Box<str>),
    /// Its limit, or the one of its former limits that remembers longest.
    form: ScriptEncoding,
    pub(super) keys: Shards<Stored>,
}

impl Owing<Stored> for ScriptEncoding {
    fn idle_at(&self, kept: &Stored) -> Timestamp {
        kept.idle_at(self)
    }

    fn heap_bytes(&self, kept: &Stored) -> usize {
        kept.heap_bytes()
    }

    fn estimates(&self) -> Estimates {
        Estimates::of(self.limit())
    }

    fn state<'a>(&self, kept: &'a Stored, now: Timestamp) -> Cow<'a, State> {
        kept.state(self, now)
    }

    fn kept(&self, state: State, now: Timestamp) -> Stored {
        Stored::of(self, state, now)
    }
}

impl Spaces {
    pub(super) fn new(bytes: usize) -> Self {
        Self { budget: Arc::new(Budget::new(bytes)), table: RwLock::default(), hash: TrustedHash::random() }
    }

    /// Returns how full all of them are at `now`. Scans every key.
    pub(super) fn memory(&self, now: Timestamp) -> KeyMemory {
        let table = self.table.read();
        let mut all = KeyMemory::of(&self.budget);
        table.spaces.iter().for_each(|(_, space)| all.add(&space.keys.memory(&space.form, now)));
        all
    }

    /// Visits the keys among which this one is, under a limit of this form.
    pub(super) fn visit<T>(
        &self,
        key: &str,
        form: &ScriptEncoding,
        now: Timestamp,
        visit: impl FnOnce(&Space) -> T,
    ) -> Result<T, StoreError> {
        let name = space_of(key);
        let hash = self.hash_of(name);
        {
            let table = self.table.read();
            if let Some((_, space)) = table.spaces.find(hash, |(_, space)| space.is(name, form))
                && !space.forgets_before(form)
            {
                return Ok(visit(space));
            }
        }
        let mut table = self.table.write();
        table.space((hash, name), form, &self.budget, now).map(visit)
    }

    /// Forgets a key, under all limits.
    pub(super) fn remove(&self, fingerprint: u64) {
        let table = self.table.read();
        table.spaces.iter().for_each(|(_, space)| space.keys.remove(fingerprint, &space.form));
    }

    fn hash_of(&self, (head, tail): (&str, &str)) -> u64 {
        let part = |text: &str| self.hash.fingerprint(text.as_bytes());
        part(head) ^ part(tail).rotate_left(32)
    }
}

impl Table {
    fn space(
        &mut self,
        (hash, name): (u64, (&str, &str)),
        form: &ScriptEncoding,
        budget: &Arc<Budget>,
        now: Timestamp,
    ) -> Result<&Space, StoreError> {
        if self.spaces.find(hash, |(_, space)| space.is(name, form)).is_none() {
            self.make_room(now)?;
            let name = (name.0.into(), name.1.into());
            let space = Space { name, form: *form, keys: Shards::new(Arc::clone(budget), SHARDS_PER_SPACE) };
            self.spaces.insert_unique(hash, (hash, space), |(hash, _)| *hash);
        }
        let found = self.spaces.find_mut(hash, |(_, space)| space.is(name, form));
        let (_, space) =
            found.ok_or_else(|| StoreError::unavailable("the limit was removed during the call"))?;
        if space.forgets_before(form) {
            space.form = *form;
        }
        Ok(space)
    }

    /// Removes idle spaces. No call uses any space while the table is locked for writing, so none in flight is lost.
    fn make_room(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if self.spaces.len() >= SPACES_MAX && self.search.is_due(now) {
            self.spaces.retain(|(_, space)| !space.keys.is_idle(&space.form, now));
        }
        if self.spaces.len() >= SPACES_MAX {
            return Err(StoreError::misconfigured(format_args!(
                "too many limits: at most {SPACES_MAX} with keys in use"
            )));
        }
        Ok(())
    }
}

impl Space {
    /// States of different kinds and shapes are never mixed, even if a caller names their keys alike.
    fn is(&self, (head, tail): (&str, &str), form: &ScriptEncoding) -> bool {
        *self.name.0 == *head
            && *self.name.1 == *tail
            && same_kind(self.form.kind(), form.kind())
            && self.form.shape() == form.shape()
    }

    /// Only a log owes for as long as the requesting limit remembers.
    fn forgets_before(&self, form: &ScriptEncoding) -> bool {
        matches!(form.limit(), Limit::SlidingLog(_)) && self.form.limit().period() < form.limit().period()
    }
}

fn same_kind(one: ScriptRule, other: ScriptRule) -> bool {
    one == other || (one.is_window() && other.is_window())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn day(limit: u64) -> ScriptEncoding {
        ScriptEncoding::of(&Limit::fixed_window(limit, Duration::from_secs(86_400)).unwrap()).unwrap()
    }

    fn use_one(spaces: &Spaces, policy: usize, now: Timestamp) -> Result<(), StoreError> {
        let (key, form) = (format!("tk:{{{policy}/a}}w:"), day(5));
        spaces.visit(&key, &form, now, |space| {
            space.keys.lock(7).change(&form, now, |stored| stored.charge(&form, 1, now));
        })
    }

    fn used(spaces: &Spaces, policy: usize, form: &ScriptEncoding, now: Timestamp) -> bool {
        let key = format!("tk:{{{policy}/b}}w:");
        spaces.visit(&key, form, now, |space| space.keys.lock(7).state(form, now).is_some()).unwrap()
    }

    /// Policies come and go with every reload, for years.
    #[test]
    fn only_limits_without_debt_are_evicted() {
        let (spaces, now) = (Spaces::new(1 << 20), Timestamp::from_millis(1_700_000_000_000));
        assert!((0..SPACES_MAX).all(|policy| use_one(&spaces, policy, now).is_ok()));
        let refused = use_one(&spaces, SPACES_MAX, now);
        assert!(matches!(refused, Err(StoreError::Misconfigured(_))), "{refused:?}");
        assert!(used(&spaces, 0, &day(50), now), "changed or not, it is the same limit");
        let tomorrow = now + Duration::from_secs(86_400);
        use_one(&spaces, SPACES_MAX, tomorrow).unwrap();
        assert!(!used(&spaces, 0, &day(5), tomorrow));
    }

    #[test]
    fn kinds_and_shapes_are_kept_apart_under_any_key() {
        let (spaces, now) = (Spaces::new(1 << 20), Timestamp::from_millis(1_700_000_000_000));
        use_one(&spaces, 1, now).unwrap();
        let sliding = Limit::sliding_window(5, Duration::from_secs(86_400)).unwrap();
        assert!(!used(&spaces, 1, &ScriptEncoding::of(&sliding).unwrap(), now));
        assert!(!used(&spaces, 2, &day(5), now));
        assert!(used(&spaces, 1, &day(5), now));
    }
}
