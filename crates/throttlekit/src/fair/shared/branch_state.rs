//! The state of one branch, locked by one caller at a time.

use throttlekit_core::Timestamp;
use throttlekit_core::fair::Weight;
use throttlekit_core::fair::branch::{Branch, BranchDecision, BranchRequest, Credit};

use crate::clock::Clock;
use crate::fair::names::Names;
use crate::store::{RegionGrant, StoreError};

/// Maximum number of requests that wait for units. Further ones are handled as in an outage.
const WAITING_MAX: usize = 65_536;

pub(super) struct BranchState {
    pub(super) branch: Branch,
    pub(super) names: Names,
    waiting: usize,
    ids: u64,
    /// The last failed request, and its error.
    failed: Option<(u64, StoreError)>,
    /// Nanoseconds by which the budget's clock is ahead of the local clock.
    ahead: i64,
}

impl BranchState {
    pub(super) fn new(branch: Branch, tenants_max: usize) -> Self {
        Self { branch, names: Names::new(tenants_max), waiting: 0, ids: 0, failed: None, ahead: 0 }
    }

    /// Decides a request. Units are taken first and the clock is read after that; if they have expired, the request has
    /// no effect.
    pub(super) fn ask(&mut self, name: u64, weight: Weight, cost: u64, clock: &impl Clock) -> BranchDecision {
        let now = clock.now();
        self.advance(now);
        let Some(member) = self.names.find(self.branch.roster(), name) else {
            return if cost == 0 {
                self.peek_newcomer(weight, now)
            } else {
                self.ask_anew(name, weight, cost, clock)
            };
        };
        match self.branch.ask(member, weight, cost, now) {
            BranchDecision::Admit(_) if !self.branch.lives(clock.now()) => {
                BranchDecision::Wait { needs: cost }
            }
            turn => turn,
        }
    }

    /// Returns units to the window that ends at `reset_at`, if it is still current here and the tenant has an entry.
    pub(super) fn refund(&mut self, name: u64, units: u64, reset_at: Timestamp, now: Timestamp) {
        self.advance(now);
        if let Some(member) = self.names.find(self.branch.roster(), name) {
            self.branch.refund(member, units, reset_at, now);
        }
    }

    /// Decides the first request of a tenant in this window, which makes it active.
    fn ask_anew(&mut self, name: u64, weight: Weight, cost: u64, clock: &impl Clock) -> BranchDecision {
        self.add(name, weight);
        self.ask(name, weight, cost, clock)
    }

    /// Returns the turn for an unknown tenant: temporarily it joins, or at the cap replaces the tenant that has used
    /// least.
    fn peek_newcomer(&mut self, weight: Weight, now: Timestamp) -> BranchDecision {
        let roster = self.branch.roster_mut();
        let taken = if self.names.is_full() { roster.least_used() } else { None };
        if let Some((member, own)) = taken.and_then(|member| Some((member, roster.weight(member)?))) {
            roster.set_weight(member, weight);
            let turn = self.branch.ask(member, weight, 0, now);
            self.branch.roster_mut().set_weight(member, own);
            return turn;
        }
        let member = roster.join(weight);
        let turn = self.branch.ask(member, weight, 0, now);
        self.branch.roster_mut().leave(member);
        turn
    }

    /// Counts a waiting caller, and returns the id of the request it waits for, and the request to send, if any.
    pub(super) fn wait(&mut self, needs: u64, now: Timestamp) -> Option<(u64, Option<BranchRequest>)> {
        if self.waiting >= WAITING_MAX {
            return None;
        }
        self.waiting += 1;
        self.branch.wait(needs);
        self.ids += 1;
        let request = self.branch.poll_request(self.ids, now);
        self.branch.asking().map(|id| (id, request))
    }

    pub(super) fn stop_waiting(&mut self, needs: u64) {
        self.waiting -= 1;
        self.branch.stop_waiting(needs);
    }

    pub(super) fn reply(&mut self, id: u64, granted: &RegionGrant, now: Timestamp) -> Credit {
        self.advance(now);
        let ahead = i128::from(granted.now.as_nanos()) - i128::from(now.as_nanos());
        self.ahead = i64::try_from(ahead).unwrap_or(0);
        let credit = self.branch.handle_reply(id, granted.grant, granted.now, now);
        if credit == (Credit::Credited { anew: true }) {
            self.names.clear();
        }
        credit
    }

    pub(super) fn fail(&mut self, id: u64, error: StoreError) {
        self.branch.handle_failure(id);
        self.failed = Some((id, error));
    }

    /// Returns the error of this request, if it failed.
    pub(super) fn failed(&self, id: u64) -> Option<StoreError> {
        self.failed.as_ref().filter(|(failed, _)| *failed == id).map(|(_, error)| error.clone())
    }

    /// Estimates the budget's clock at this local time.
    pub(super) fn theirs(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(now.as_nanos().saturating_add_signed(self.ahead))
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        if self.branch.advance(now) {
            self.names.clear();
        }
    }

    /// Adds a tenant. At the cap it takes over the entry of the one that has used least, with its use: no tenant gets a
    /// fresh budget.
    fn add(&mut self, name: u64, weight: Weight) {
        let roster = self.branch.roster_mut();
        let taken = if self.names.is_full() { roster.least_used() } else { None };
        match taken {
            Some(member) => self.names.displace(roster, member, name),
            None => {
                let member = roster.join(weight);
                self.names.add(roster, member, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throttlekit_core::fair::branch::BranchPlan;
    use throttlekit_core::fair::pool::PoolGrant;
    use throttlekit_core::lease::{Epoch, Margin};

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn an_unknown_tenant_at_the_cap_sees_the_share_of_the_entry_it_would_take() {
        let clock = ManualClock::at(Timestamp::from_millis(1_000));
        let hold = Duration::from_secs(1);
        let branch = Branch::new(BranchPlan { limit: 100, quantum: 100, hold, margin: Margin::NONE });
        let (mut state, now) = (BranchState::new(branch, 2), clock.now());
        let (id, _) = state.wait(100, now).unwrap();
        let grant = PoolGrant { granted: 100, more: 0, epoch: Epoch(1), lives: 60 * hold };
        state.reply(id, &RegionGrant { grant, now }, now);
        state.stop_waiting(100);

        let mut ask = |name, weight, cost| match state.ask(name, Weight::new(weight).unwrap(), cost, &clock) {
            BranchDecision::Admit(decision) => decision.remaining,
            turn => panic!("{turn:?}"),
        };
        assert_eq!([ask(1, 1, 30), ask(2, 1, 20)], [70, 30]);
        assert_eq!(ask(3, 3, 0), 50, "75 at its weight, of which 20 are used, and 50 are left");
        assert_eq!(ask(2, 1, 0), 30, "which still is the other's");
        ask(3, 3, 50);
        assert_eq!((state.names.len(), state.names.displaced()), (2, 1));
    }
}
