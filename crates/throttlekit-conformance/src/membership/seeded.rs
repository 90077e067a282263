//! Stores of membership records with a seeded bug, which show that the check can fail.

use std::collections::HashMap;
use std::time::Duration;

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{
    Charge, Charges, Debit, Debited, LeaseRequest, LeaseReturn, Leased, MembershipRecord, MembershipStore,
    MemoryStore, Outcome, Settlement, Snapshot, Store, StoreError, Swapped,
};

crate::bugs! {
    /// The bug of a [`SeededMembership`].
    pub enum MembershipBug {
        NoVersionCheck: "A swap does not check the version.",
        NoneSwapsAnything: "A swap from no version overwrites any record.",
        SaysDoneAndKeepsTheOld: "A swap is acknowledged and the old record is kept.",
        VersionsFromOne: "Versions begin at one again after a record was lost.",
        VersionByClockAlone: "The version is the time, though the clock may step back.",
        NowOfTheFirstLook: "The time that is returned is that of the first call.",
        NewerWithoutItsVersion: "A newer record is returned with the version of the caller.",
        ForgetsWhenKeptNoLonger: "A record that may be forgotten is no longer returned.",
        EndsAtZeroByte: "A record ends at its first zero byte.",
        OneRollForAll: "All keys share one record.",
        ResetKeepsRolls: "A reset keeps the records.",
    }
}

/// A store in process with one bug. Everything except membership records is correct.
pub struct SeededMembership<C = ManualClock> {
    clock: C,
    bug: MembershipBug,
    rolls: Mutex<Filed>,
    rest: MemoryStore,
}

#[derive(Default)]
struct Filed {
    rolls: HashMap<String, (u64, Vec<u8>, Timestamp)>,
    first_look: Option<Timestamp>,
}

impl<C: Clock> SeededMembership<C> {
    /// Creates an empty one.
    pub fn new(clock: C, bug: MembershipBug) -> Self {
        Self { clock, bug, rolls: Mutex::default(), rest: MemoryStore::new() }
    }

    fn key<'k>(&self, key: &'k str) -> &'k str {
        if self.bug == MembershipBug::OneRollForAll { "" } else { key }
    }

    fn now(&self, filed: &mut Filed) -> Timestamp {
        let now = Timestamp::from_micros(self.clock.now().as_micros());
        let first = *filed.first_look.get_or_insert(now);
        if self.bug == MembershipBug::NowOfTheFirstLook { first } else { now }
    }

    fn look(&self, filed: &mut Filed, key: &str) -> MembershipRecord {
        let now = self.now(filed);
        let found = filed.rolls.get(self.key(key)).cloned();
        let lasting = |&(.., expires): &(u64, Vec<u8>, Timestamp)| {
            self.bug != MembershipBug::ForgetsWhenKeptNoLonger || now < expires
        };
        let (version, mut bytes, _) = found.filter(lasting).unwrap_or_default();
        if self.bug == MembershipBug::EndsAtZeroByte {
            bytes.truncate(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()));
        }
        MembershipRecord { bytes, version, now }
    }
}

impl<C: Clock + 'static> MembershipStore for SeededMembership<C> {
    async fn load(&self, key: &str) -> Result<MembershipRecord, StoreError> {
        let kept = self.look(&mut self.rolls.lock(), key);
        // As if an engine had responded: others come in between.
        tokio::task::yield_now().await;
        Ok(kept)
    }

    async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> Result<Swapped, StoreError> {
        let mut filed = self.rolls.lock();
        let lies = self.look(&mut filed, key);
        let overwrites = self.bug == MembershipBug::NoVersionCheck
            || self.bug == MembershipBug::NoneSwapsAnything && version == 0;
        if lies.version != version && !overwrites {
            let shown =
                if self.bug == MembershipBug::NewerWithoutItsVersion { version } else { lies.version };
            return Ok(Swapped::Newer(MembershipRecord { version: shown, ..lies }));
        }
        if self.bug == MembershipBug::SaysDoneAndKeepsTheOld && version > 0 {
            return Ok(Swapped::Done);
        }
        let next = match self.bug {
            MembershipBug::VersionsFromOne => version + 1,
            MembershipBug::VersionByClockAlone => lies.now.as_micros(),
            _ => lies.now.as_micros().max(version + 1),
        };
        let expires = lies.now + keeps;
        filed.rolls.insert(self.key(key).into(), (next, bytes.to_vec(), expires));
        Ok(Swapped::Done)
    }
}

impl<C: Clock + 'static> Store for SeededMembership<C> {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.rest.admit(asks).await
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        self.rest.debit(debits).await
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        self.rest.peek(charges).await
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        self.rest.settle(settlements).await
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        self.rest.lease(asks).await
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        self.rest.give_back(backs).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        if self.bug != MembershipBug::ResetKeepsRolls {
            let mut filed = self.rolls.lock();
            keys.iter().for_each(|key| drop(filed.rolls.remove(self.key(key))));
        }
        Ok(())
    }
}
