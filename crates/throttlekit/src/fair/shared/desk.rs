//! What one place keeps, one caller at a time.

use hashbrown::HashTable;
use throttlekit_core::fair::branch::{Branch, Credit, Request, Turn};
use throttlekit_core::fair::{Member, Weight};
use throttlekit_core::{Cost, Timestamp};

use crate::Clock;
use crate::store::{RegionGrant, StoreError};

/// How many asks wait for units at a time. One more is answered as in an outage.
const WAITING_MAX: usize = 65_536;

pub(super) struct Desk {
    pub(super) branch: Branch,
    /// Tenants are known by their fingerprints, which label the members.
    members: HashTable<Member>,
    tenants_max: usize,
    pub(super) displaced: u64,
    waiting: usize,
    ids: u64,
    /// The last request that came to nothing, and why.
    failed: Option<(u64, StoreError)>,
    /// By how many nanoseconds the budget's clock is ahead of ours.
    ahead: i64,
}

impl Desk {
    pub(super) fn new(branch: Branch, tenants_max: usize) -> Self {
        Self {
            branch,
            members: HashTable::new(),
            tenants_max,
            displaced: 0,
            waiting: 0,
            ids: 0,
            failed: None,
            ahead: 0,
        }
    }

    /// Answers an ask. Units are taken first and the clock is read after that; if they have died, the ask is as good as
    /// not made.
    pub(super) fn ask(&mut self, name: u64, weight: Weight, cost: Cost, clock: &impl Clock) -> Turn {
        let now = clock.now();
        self.advance(now);
        let Some(member) = self.find(name) else {
            return if cost == 0 {
                self.peek_newcomer(weight, now)
            } else {
                self.ask_anew(name, weight, cost, clock)
            };
        };
        match self.branch.ask(member, weight, cost, now) {
            Turn::Admit(_) if !self.branch.lives(clock.now()) => Turn::Wait { needs: cost },
            turn => turn,
        }
    }

    /// A tenant that has not asked in this window becomes active.
    fn ask_anew(&mut self, name: u64, weight: Weight, cost: Cost, clock: &impl Clock) -> Turn {
        self.add(name, weight);
        self.ask(name, weight, cost, clock)
    }

    fn peek_newcomer(&mut self, weight: Weight, now: Timestamp) -> Turn {
        let member = self.branch.roster_mut().join(weight);
        let turn = self.branch.ask(member, weight, 0, now);
        self.branch.roster_mut().leave(member);
        turn
    }

    /// Counts a caller that waits, and says what to send for it, if anything. Which request it waits for, too.
    pub(super) fn wait(&mut self, needs: Cost, now: Timestamp) -> Option<(u64, Option<Request>)> {
        if self.waiting >= WAITING_MAX {
            return None;
        }
        self.waiting += 1;
        self.branch.wait(needs);
        self.ids += 1;
        let request = self.branch.poll_request(self.ids, now);
        self.branch.asking().map(|id| (id, request))
    }

    pub(super) fn stop_waiting(&mut self, needs: Cost) {
        self.waiting -= 1;
        self.branch.stop_waiting(needs);
    }

    pub(super) fn reply(&mut self, id: u64, granted: &RegionGrant, now: Timestamp) -> Credit {
        self.advance(now);
        let ahead = i128::from(granted.now.as_nanos()) - i128::from(now.as_nanos());
        self.ahead = i64::try_from(ahead).unwrap_or(0);
        let credit = self.branch.handle_reply(id, granted.grant, granted.now, now);
        if credit == (Credit::Credited { anew: true }) {
            self.members.clear();
        }
        credit
    }

    pub(super) fn fail(&mut self, id: u64, error: StoreError) {
        self.branch.handle_failure(id);
        self.failed = Some((id, error));
    }

    /// Why this request came to nothing, if it did.
    pub(super) fn failed(&self, id: u64) -> Option<StoreError> {
        self.failed.as_ref().filter(|(failed, _)| *failed == id).map(|(_, error)| error.clone())
    }

    /// About what the budget's clock shows at this instant of ours.
    pub(super) fn theirs(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(now.as_nanos().saturating_add_signed(self.ahead))
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        if self.branch.advance(now) {
            self.members.clear();
        }
    }

    pub(super) fn tenants(&self) -> usize {
        self.members.len()
    }

    fn find(&self, name: u64) -> Option<Member> {
        self.members.find(name, |&member| self.branch.roster().label(member) == name).copied()
    }

    /// At the cap in the place of whoever has used least, whose use stays: nobody gets a fresh budget.
    fn add(&mut self, name: u64, weight: Weight) {
        let roster = self.branch.roster_mut();
        let taken = if self.members.len() < self.tenants_max { None } else { roster.least_used() };
        if let Some(member) = taken {
            let loser = roster.label(member);
            let found = self.members.find_entry(loser, |&known| roster.label(known) == loser);
            if let Ok(entry) = found {
                entry.remove();
            }
            self.displaced += 1;
        }
        let member = taken.unwrap_or_else(|| roster.join(weight));
        roster.set_label(member, name);
        self.members.insert_unique(name, member, |&member| roster.label(member));
    }
}
