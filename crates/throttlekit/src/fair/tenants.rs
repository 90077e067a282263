//! A sharing rule for named tenants.

use throttlekit_core::fair::{Member, Weight};
use throttlekit_core::{Decision, Timestamp};

use super::FairStats;
use super::names::Names;
use super::rule::Sharing;

/// A rule and its members.
pub(super) struct Tenants {
    rule: Sharing,
    names: Names,
}

impl Tenants {
    pub(super) fn new(rule: Sharing, tenants_max: usize) -> Self {
        Self { rule, names: Names::new(tenants_max) }
    }

    /// Decides a request. A tenant without a request in this window becomes active by it, unless the cost is zero.
    pub(super) fn check(&mut self, name: u64, weight: Weight, cost: u64, now: Timestamp) -> Decision {
        self.advance(now);
        match self.names.find(self.rule.roster(), name) {
            Some(member) => self.rule.check(member, weight, cost),
            None if cost == 0 => self.peek(weight),
            None => {
                let member = self.add(name, weight);
                self.rule.check(member, weight, cost)
            }
        }
    }

    /// Returns units to the window that ends at `reset_at`, if it is the one at `now` and the tenant has an entry.
    pub(super) fn refund(&mut self, name: u64, units: u64, reset_at: Timestamp, now: Timestamp) {
        self.advance(now);
        if self.rule.ends_at() != reset_at {
            return;
        }
        if let Some(member) = self.names.find(self.rule.roster(), name) {
            self.rule.refund(member, units);
        }
    }

    /// Charges units that a tenant used without a request. An inactive tenant becomes active by it.
    pub(super) fn owe(&mut self, name: u64, weight: Weight, units: u64, now: Timestamp) {
        self.advance(now);
        if units > 0 {
            let known = self.names.find(self.rule.roster(), name);
            let member = known.unwrap_or_else(|| self.add(name, weight));
            self.rule.owe(member, weight, units);
        }
    }

    /// Removes a tenant from the window, with its use.
    pub(super) fn remove(&mut self, name: u64, now: Timestamp) {
        self.advance(now);
        if let Some(member) = self.names.forget(self.rule.roster(), name) {
            self.rule.leave(member);
        }
    }

    /// Returns the rule, advanced to `now`.
    pub(super) fn rule(&mut self, now: Timestamp) -> &mut Sharing {
        self.advance(now);
        &mut self.rule
    }

    pub(super) fn stats(&mut self, now: Timestamp) -> FairStats {
        self.advance(now);
        let (limit, used) = (self.rule.roster().limit(), self.rule.roster().used());
        FairStats { limit, used, tenants: self.names.len(), displaced: self.names.displaced() }
    }

    fn advance(&mut self, now: Timestamp) {
        if self.rule.advance(now) {
            self.names.clear();
        }
    }

    /// Returns the decision for an unknown tenant.
    fn peek(&mut self, weight: Weight) -> Decision {
        let taken = if self.names.is_full() { self.rule.peek_place(weight) } else { None };
        taken.unwrap_or_else(|| self.rule.peek_newcomer(weight))
    }

    fn add(&mut self, name: u64, weight: Weight) -> Member {
        let taken = if self.names.is_full() { self.rule.take_place(weight) } else { None };
        if let Some(member) = taken {
            self.names.displace(self.rule.roster_mut(), member, name);
            return member;
        }
        let member = self.rule.join(weight);
        self.names.add(self.rule.roster_mut(), member, name);
        member
    }
}
