//! The overrides and plans that this server knows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{MembershipRecord, StoreError};

use super::super::shared_record::{KEPT, Next};
use super::limits::Limits;
use super::record::{self, Override, PLANS, Plan, RECORDS, Terms};

/// A policy and a key, or a policy and a plan.
pub(super) type Name = (Box<str>, Box<str>);

/// Overrides and plans, as of the last look at the store.
pub(super) struct Known {
    /// Stamp of each record as it was loaded.
    stamps: Vec<u64>,
    /// Names in each record.
    names: Vec<Vec<Name>>,
    pub(super) overrides: BTreeMap<Name, Arc<Override>>,
    pub(super) plans: BTreeMap<Name, Limits>,
    next_expiry: Option<Timestamp>,
    /// Time of the store, and that of this process at the same instant.
    clock: Option<(Timestamp, Timestamp)>,
    /// Record that is compared next, whatever its stamp.
    turn: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            stamps: vec![0; RECORDS],
            names: vec![Vec::new(); RECORDS],
            overrides: BTreeMap::new(),
            plans: BTreeMap::new(),
            next_expiry: None,
            clock: None,
            turn: 0,
        }
    }
}

impl Known {
    /// Sets the time of the store.
    pub(super) fn set_clock(&mut self, now: Timestamp) {
        self.clock = Some((now, BootClock.now()));
    }

    /// Returns the time of the store, as of its last response and the time since.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.clock.map(|(store, here)| store + BootClock.now().since(here))
    }

    /// Returns the time until the next override expires.
    pub(super) fn next_expiry_in(&self) -> Option<Duration> {
        Some(self.next_expiry?.since(self.now()?))
    }

    /// Returns the records that have another stamp than when they were loaded.
    pub(super) fn changed(&self, stamps: &[u64]) -> Vec<usize> {
        (0..RECORDS).filter(|index| self.stamps[*index] != stamps[*index]).collect()
    }

    /// Returns one more record to compare, so that a change whose stamp was lost is found too.
    pub(super) fn next_turn(&mut self, stamps: &[u64]) -> Option<usize> {
        self.turn = (self.turn + 1) % RECORDS;
        let mut turns = (0..RECORDS).map(|step| (self.turn + step) % RECORDS);
        let next = turns.find(|index| stamps[*index] != 0)?;
        self.turn = next;
        Some(next)
    }

    /// Checks whether the store lost a record whose entries are known here and still apply.
    pub(super) fn lacks(&self, index: usize, record: &MembershipRecord) -> bool {
        let applies = |name: &Name| match self.overrides.get(name) {
            Some(known) => !known.is_over(record.now),
            None => index == PLANS,
        };
        record.version == 0 && self.names[index].iter().any(applies)
    }

    /// Encodes the entries of a record, for a store that lost it.
    pub(super) fn written(&self, index: usize, now: Timestamp) -> Next {
        if index == PLANS {
            let plan = |(name, limits): (&Name, &Limits)| Plan {
                policy: name.0.clone(),
                name: name.1.clone(),
                limits: limits.clone(),
            };
            let bytes = record::bytes(self.plans.iter().map(plan).collect());
            return Next { bytes, keeps: KEPT };
        }
        let known = self.names[index].iter().filter_map(|name| self.overrides.get(name));
        let known = known.filter(|one| !one.is_over(now)).map(|one| (**one).clone());
        record::next(known.collect(), now)
    }

    /// Takes over the content of a record. Returns the policies that are concerned.
    pub(super) fn take(
        &mut self,
        index: usize,
        stamp: u64,
        record: &MembershipRecord,
    ) -> Result<HashSet<Box<str>>, StoreError> {
        // Also if it cannot be read: it is read again when it changes.
        self.stamps[index] = stamp;
        if index == PLANS { self.take_plans(record) } else { self.take_shard(index, record) }
    }

    fn take_plans(&mut self, record: &MembershipRecord) -> Result<HashSet<Box<str>>, StoreError> {
        let plans = record::entries::<Plan>(record)?;
        let plans: BTreeMap<Name, Limits> =
            plans.into_iter().map(|plan| ((plan.policy, plan.name), plan.limits)).collect();
        let differs = |(name, limits): &(&Name, &Limits), other: &BTreeMap<Name, Limits>| {
            other.get(*name) != Some(*limits)
        };
        let new = plans.iter().filter(|plan| differs(plan, &self.plans));
        let old = self.plans.iter().filter(|plan| differs(plan, &plans));
        let touched = new.chain(old).map(|(name, _)| name.0.clone()).collect();
        self.names[PLANS] = plans.keys().cloned().collect();
        self.plans = plans;
        Ok(touched)
    }

    fn take_shard(
        &mut self,
        index: usize,
        record: &MembershipRecord,
    ) -> Result<HashSet<Box<str>>, StoreError> {
        let all = record::entries::<Override>(record)?;
        let mut touched = HashSet::new();
        let before = std::mem::take(&mut self.names[index]);
        let mut gone: BTreeMap<Name, Arc<Override>> =
            before.into_iter().filter_map(|name| self.overrides.remove_entry(&name)).collect();
        for one in all.into_iter().filter(|one| !one.is_over(record.now)) {
            let name = (one.policy.clone(), one.key.clone());
            let known = gone.remove(&name).filter(|known| **known == one);
            if known.is_none() {
                touched.insert(one.policy.clone());
            }
            self.names[index].push(name.clone());
            self.overrides.insert(name, known.unwrap_or_else(|| one.into()));
        }
        touched.extend(gone.into_keys().map(|name| name.0));
        self.find_next_expiry();
        Ok(touched)
    }

    /// Removes overrides that have expired. Returns the policies that are concerned.
    pub(super) fn expire(&mut self) -> HashSet<Box<str>> {
        let Some(now) = self.now() else { return HashSet::new() };
        if self.next_expiry.is_none_or(|at| now < at) {
            return HashSet::new();
        }
        let mut touched = HashSet::new();
        self.overrides.retain(|name, one| {
            let over = one.is_over(now);
            if over {
                touched.insert(name.0.clone());
            }
            !over
        });
        self.find_next_expiry();
        touched
    }

    fn find_next_expiry(&mut self) {
        let all = self.overrides.values().filter_map(|one| one.expires_ms).min();
        self.next_expiry = all.map(Timestamp::from_millis);
    }

    /// Returns the overrides of a policy from a key on, in the order of their keys.
    pub(super) fn from<'a>(&'a self, policy: &'a str, key: &str) -> impl Iterator<Item = &'a Arc<Override>> {
        let from: Name = (policy.into(), key.into());
        self.overrides.range(from..).map(|(_, one)| one).take_while(move |one| &*one.policy == policy)
    }

    /// Returns the limits of an override; `None` if there is no such plan.
    pub(super) fn limits<'a>(&'a self, one: &'a Override) -> Option<&'a Limits> {
        match &one.terms {
            Terms::Limits(limits) => Some(limits),
            Terms::Plan(plan) => self.plan(&one.policy, plan),
        }
    }

    /// Returns the limits of a plan.
    pub(super) fn plan(&self, policy: &str, plan: &str) -> Option<&Limits> {
        self.plans.get(&(policy.into(), plan.into()))
    }

    /// Returns the plans of a policy, in the order of their names.
    pub(super) fn plans_of<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = (&'a str, &'a Limits)> {
        let from: Name = (policy.into(), "".into());
        let plans = self.plans.range(from..).take_while(move |(name, _)| &*name.0 == policy);
        plans.map(|(name, limits)| (&*name.1, limits))
    }

    /// Returns the number of overrides that name a plan.
    pub(super) fn assigned(&self, policy: &str, plan: &str) -> usize {
        let named = |one: &&Arc<Override>| matches!(&one.terms, Terms::Plan(name) if **name == *plan);
        self.from(policy, "").filter(named).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::tests::budget;
    use super::*;

    fn one(key: &str, tokens: u64, expires_ms: Option<u64>) -> Override {
        let limits = budget(tokens);
        let (policy, key, set_by) = ("api".into(), key.into(), "".into());
        Override { policy, key, terms: Terms::Limits(limits), expires_ms, set_ms: 0, set_by }
    }

    fn record(all: Vec<Override>) -> MembershipRecord {
        MembershipRecord { bytes: record::bytes(all), version: 1, now: Timestamp::from_millis(1_000) }
    }

    fn keys(known: &Known) -> Vec<&str> {
        known.from("api", "").map(|one| &*one.key).collect()
    }

    #[test]
    fn a_record_replaces_what_was_known_of_it_and_nothing_else() {
        let mut known = Known::default();
        assert_eq!(known.take(3, 7, &record(vec![one("a", 1, None), one("b", 1, None)])).unwrap().len(), 1);
        known.take(4, 7, &record(vec![one("c", 1, None)])).unwrap();
        assert!(known.take(3, 8, &record(vec![one("a", 1, None), one("b", 1, None)])).unwrap().is_empty());
        assert_eq!(known.take(3, 9, &record(vec![one("b", 2, None)])).unwrap().len(), 1);
        assert_eq!(keys(&known), ["b", "c"]);
        let stamps: Vec<u64> = (0..RECORDS).map(|index| if index == 3 { 9 } else { 0 }).collect();
        assert_eq!(known.changed(&stamps), [4]);
        assert_eq!(known.from("api", "bb").count(), 1);
        assert_eq!(known.from("ap", "").count(), 0);
    }

    #[test]
    fn overrides_expire_at_their_time_by_the_clock_of_the_store() {
        let mut known = Known::default();
        let all = vec![one("gone", 1, Some(1_000)), one("a", 1, Some(1_001)), one("b", 1, None)];
        known.take(3, 1, &record(all)).unwrap();
        assert_eq!(keys(&known), ["a", "b"], "one has expired before it was loaded");
        known.set_clock(Timestamp::from_millis(1_000));
        assert!(known.next_expiry_in().unwrap() <= std::time::Duration::from_millis(1));
        known.set_clock(Timestamp::from_millis(1_001));
        assert_eq!(known.expire().len(), 1);
        assert_eq!((keys(&known), known.next_expiry_in()), (vec!["b"], None));
        assert!(known.expire().is_empty());
    }

    #[test]
    fn a_record_that_the_store_lost_is_known_here() {
        let mut known = Known::default();
        known.take(3, 1, &record(vec![one("a", 1, Some(5_000)), one("b", 1, None)])).unwrap();
        let lost = |ms| MembershipRecord { bytes: Vec::new(), version: 0, now: Timestamp::from_millis(ms) };
        assert!(known.lacks(3, &lost(1_000)) && !known.lacks(4, &lost(1_000)));
        assert!(!known.lacks(3, &record(Vec::new())), "somebody emptied it");
        let next = known.written(3, Timestamp::from_millis(5_000));
        let kept: Vec<Override> =
            record::entries(&MembershipRecord { bytes: next.bytes, ..lost(5_000) }).unwrap();
        assert_eq!(kept, [one("b", 1, None)]);
    }

    #[test]
    fn a_changed_plan_concerns_its_policy_only() {
        let mut known = Known::default();
        let plan = |policy: &str, tokens| Plan {
            policy: policy.into(),
            name: "gold".into(),
            limits: budget(tokens),
        };
        let record =
            |plans: Vec<Plan>| MembershipRecord { bytes: record::bytes(plans), ..record(Vec::new()) };
        assert_eq!(known.take(PLANS, 1, &record(vec![plan("api", 1), plan("chat", 1)])).unwrap().len(), 2);
        let touched = known.take(PLANS, 2, &record(vec![plan("api", 2), plan("chat", 1)])).unwrap();
        assert_eq!(touched, HashSet::from(["api".into()]));
        let gold = Override { terms: Terms::Plan("gold".into()), ..one("a", 0, None) };
        assert_eq!(known.limits(&gold), Some(&budget(2)));
        assert_eq!(known.take(PLANS, 3, &record(vec![plan("chat", 1)])).unwrap().len(), 1);
        assert_eq!(known.limits(&gold), None);
    }
}
