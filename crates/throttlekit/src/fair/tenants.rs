//! Names of tenants, as members of a rule.

use hashbrown::HashTable;
use throttlekit_core::fair::{Member, Weight};
use throttlekit_core::{Cost, Decision, Timestamp};

use super::FairRule;

/// A rule, and who its members are. Tenants are known by their fingerprints, which label the members.
pub(super) struct Tenants {
    rule: FairRule,
    members: HashTable<Member>,
    tenants_max: usize,
    displaced: u64,
}

impl Tenants {
    pub(super) fn new(rule: FairRule, tenants_max: usize) -> Self {
        Self { rule, members: HashTable::new(), tenants_max, displaced: 0 }
    }

    /// Answers an ask. A tenant that has not asked in this window becomes active by it, unless it asks for nothing.
    pub(super) fn check(&mut self, name: u64, weight: Weight, cost: Cost, now: Timestamp) -> Decision {
        self.advance(now);
        match self.find(name) {
            Some(member) => self.rule.check(member, weight, cost),
            None if cost == 0 => self.peek(weight),
            None => {
                let member = self.add(name, weight);
                self.rule.check(member, weight, cost)
            }
        }
    }

    /// What a stranger would get.
    fn peek(&mut self, weight: Weight) -> Decision {
        let taken = if self.is_full() { self.rule.peek_place(weight) } else { None };
        taken.unwrap_or_else(|| self.rule.peek_newcomer(weight))
    }

    /// Removes a tenant from the window, and its use with it.
    pub(super) fn remove(&mut self, name: u64, now: Timestamp) {
        self.advance(now);
        if let Some(member) = self.forget(name) {
            self.rule.leave(member);
        }
    }

    /// The rule as it is at `now`.
    pub(super) fn rule(&mut self, now: Timestamp) -> &mut FairRule {
        self.advance(now);
        &mut self.rule
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn displaced(&self) -> u64 {
        self.displaced
    }

    fn is_full(&self) -> bool {
        self.members.len() >= self.tenants_max
    }

    fn advance(&mut self, now: Timestamp) {
        if self.rule.advance(now) {
            self.members.clear();
        }
    }

    #[inline]
    fn find(&self, name: u64) -> Option<Member> {
        self.members.find(name, |&member| self.rule.label(member) == name).copied()
    }

    fn forget(&mut self, name: u64) -> Option<Member> {
        let found = self.members.find_entry(name, |&member| self.rule.label(member) == name);
        found.ok().map(|entry| entry.remove().0)
    }

    fn add(&mut self, name: u64, weight: Weight) -> Member {
        let taken = if self.is_full() { self.rule.take_place(weight) } else { None };
        if let Some(member) = taken {
            self.displaced += 1;
            self.forget(self.rule.label(member));
        }
        let member = taken.unwrap_or_else(|| self.rule.join(weight));
        self.rule.set_label(member, name);
        self.members.insert_unique(name, member, |&member| self.rule.label(member));
        member
    }
}
