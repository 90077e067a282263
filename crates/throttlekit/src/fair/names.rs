//! Names of tenants, as members of a roster.

use hashbrown::HashTable;
use throttlekit_core::fair::{Member, Roster};

/// The members of a roster, up to a maximum number. Tenants are identified by their fingerprints, which label the
/// members.
pub(super) struct Names {
    members: HashTable<Member>,
    names_max: usize,
    displaced: u64,
}

impl Names {
    pub(super) fn new(names_max: usize) -> Self {
        Self { members: HashTable::new(), names_max, displaced: 0 }
    }

    #[inline]
    pub(super) fn find(&self, roster: &Roster, name: u64) -> Option<Member> {
        self.members.find(name, |&member| roster.label(member) == name).copied()
    }

    /// Names a member that has just joined.
    pub(super) fn add(&mut self, roster: &mut Roster, member: Member, name: u64) {
        roster.set_label(member, name);
        self.members.insert_unique(name, member, |&member| roster.label(member));
    }

    /// Renames a member whose entry a new tenant took over.
    pub(super) fn displace(&mut self, roster: &mut Roster, member: Member, name: u64) {
        self.displaced += 1;
        self.forget(roster, roster.label(member));
        self.add(roster, member, name);
    }

    pub(super) fn forget(&mut self, roster: &Roster, name: u64) -> Option<Member> {
        let found = self.members.find_entry(name, |&member| roster.label(member) == name);
        found.ok().map(|entry| entry.remove().0)
    }

    /// Clears the names: a new window has begun.
    pub(super) fn clear(&mut self) {
        self.members.clear();
    }

    /// Checks whether a new tenant has to take over the entry of another.
    pub(super) fn is_full(&self) -> bool {
        self.members.len() >= self.names_max
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the number of times that a tenant took over the entry of another, ever.
    pub(super) fn displaced(&self) -> u64 {
        self.displaced
    }
}
