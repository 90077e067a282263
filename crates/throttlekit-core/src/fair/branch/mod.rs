//! One of several branches that share a budget: its tenants share what is granted to it.
//!
//! A branch is a region, or a process. It holds units that it was granted and fetches more as its tenants need them:
//! from a [`Pool`](super::pool::Pool), which reserves what other regions are due, or from a plain window by quanta.
//! Like a lease [`Holder`](crate::lease::Holder) it does no I/O: the driver sends what [`Branch::poll_request`] returns
//! and passes in the reply.
//!
//! Tenants share by the rule of the [`Roster`], over what the branch could have in this window, that is what it was
//! granted and what was last reported as available in addition. So what a slower tenant is due stays where all can see
//! it and is not fetched ahead of it. Only granted units are ever spent.
//!
//! * A grant is credited once, in the reply to the pending request, and only while its window lasts on the branch's own
//!   clock, counted from when the request was sent ([`Margin`]).
//! * One request is pending at a time, for all waiting callers. Requests that find enough units never wait.
//! * Units that were granted and not spent lapse with their window; so do those whose reply was lost. Units that were
//!   spent and not used are available again only while it lasts.

use core::time::Duration;

use super::pool::PoolGrant;
use super::{Member, Roster, Weight};
use crate::lease::{Epoch, Margin};
use crate::{Cost, Decision, Retry, Timestamp};

/// Configuration of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchPlan {
    /// The budget of all branches in a window. A higher cost can never pass.
    pub limit: Cost,
    /// Units are fetched in multiples of this.
    pub quantum: Cost,
    /// Cache time of a response: until then a tenant that has used its share is denied without a new request.
    pub hold: Duration,
    /// Error bounds of the clocks.
    pub margin: Margin,
}

/// The tenants of one branch and the units it holds.
///
/// ```
/// use core::time::Duration;
/// use throttlekit_core::fair::branch::{Branch, BranchPlan, BranchDecision};
/// use throttlekit_core::fair::{Weight, pool::{Pool, PoolRequest, PoolState}};
/// use throttlekit_core::{Timestamp, lease::Margin, rate::Limit};
///
/// let pool = Pool::new(Limit::fixed_window(100, Duration::from_secs(60))?)?;
/// let mut regions = PoolState::default();
/// let hold = Duration::from_millis(10);
/// let mut eu = Branch::new(BranchPlan { limit: 100, quantum: 10, hold, margin: Margin::default() });
///
/// let now = Timestamp::from_millis(1_000);
/// let ann = eu.roster_mut().join(Weight::ONE);
/// assert!(matches!(eu.ask(ann, Weight::ONE, 4, now), BranchDecision::Wait { .. }), "nothing is in hand");
/// eu.wait(4);
/// let request = eu.poll_request(1, now).expect("someone waits");
/// let ask = PoolRequest { region: "eu", weight: request.weight, wants: request.wants };
/// let grant = pool.grant(&mut regions, ask, now).expect("few regions");
/// eu.handle_reply(request.id, grant, now, now);
/// eu.stop_waiting(4);
/// let BranchDecision::Admit(decision) = eu.ask(ann, Weight::ONE, 4, now) else { panic!("ten are in hand") };
/// assert_eq!((grant.granted, decision.remaining), (10, 96));
/// # Ok::<(), throttlekit_core::rate::LimitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Branch {
    plan: BranchPlan,
    /// Its limit is what the branch could have in this window.
    roster: Roster,
    /// Units granted in this window.
    granted: Cost,
    window: Option<Held>,
    /// Time of the last response, and the weight it was for.
    heard: Option<(Timestamp, u64)>,
    /// Instant before which nothing is available, though its window is not known.
    closed_until: Timestamp,
    asking: Option<Sent>,
    waiters: u64,
    /// Units that the waiting callers need.
    needed: Cost,
}

/// The window of the held units.
#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: Epoch,
    /// Earliest instant at which they may have expired, by the branch's clock.
    dies: Timestamp,
    /// Latest instant at which the window is over, by the branch's clock.
    over: Timestamp,
    /// End of the window, by the budget's own clock.
    ends: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    id: u64,
    at: Timestamp,
    weight: u64,
}

/// Result of a tenant's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchDecision {
    /// Admitted and charged.
    Admit(Decision),
    /// Denied. Nothing changed except that the tenant is active.
    Deny(Decision),
    /// Not known yet: wait for a reply and retry.
    Wait {
        /// Number of units needed; zero if only the branch's due has to be refreshed.
        needs: Cost,
    },
}

/// Request for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BranchRequest {
    /// ID of the request.
    pub id: u64,
    /// The weights of all tenants.
    pub weight: Weight,
    /// Number of additional units.
    pub wants: Cost,
}

/// Result of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Credit {
    /// Its units are available. If a new window began with it, every member joins again.
    Credited {
        /// `true` if handles of members are invalid.
        anew: bool,
    },
    /// Its units have expired: their window is over, or the request is not pending.
    Lapsed,
}

impl Held {
    /// Returns the earliest instant at which a denied tenant may find more: in the future, while units are valid.
    ///
    /// If the budget's clock stopped or was set back, the window lasts longer than first reported. Then units expire at
    /// a known instant here, and are requested again.
    fn changes_at(&self, now: Timestamp) -> Timestamp {
        if now < self.over { self.over } else { self.dies }
    }
}

impl Branch {
    /// Creates a branch without units.
    pub fn new(plan: BranchPlan) -> Self {
        let plan = BranchPlan { quantum: plan.quantum.clamp(1, plan.limit.max(1)), ..plan };
        Self {
            plan,
            roster: Roster::new(0),
            granted: 0,
            window: None,
            heard: None,
            closed_until: Timestamp::EPOCH,
            asking: None,
            waiters: 0,
            needed: 0,
        }
    }

    /// Moves to `now`. True if the held units expired with their window: then every member joins again.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        let over = self.window.is_some_and(|window| now >= window.dies);
        if over {
            self.begin(None);
        }
        over
    }

    /// Decides a request, and charges it if allowed. A cost of zero changes nothing, and reports the most that would
    /// pass.
    ///
    /// On [`BranchDecision::Admit`] the caller reads the clock again and admits only if [`lives`](Self::lives) is true then: any
    /// time may pass in between.
    pub fn ask(&mut self, member: Member, weight: Weight, cost: Cost, now: Timestamp) -> BranchDecision {
        if cost > self.plan.limit {
            return BranchDecision::Deny(self.denied(member, Retry::Never));
        }
        if cost > 0 {
            self.roster.set_weight(member, weight);
        }
        let Some(window) = self.window.filter(|window| now < window.dies) else {
            let wait = self.closed_until.since(now);
            return if wait > Duration::ZERO {
                BranchDecision::Deny(self.denied(member, Retry::after(wait)))
            } else {
                BranchDecision::Wait { needs: cost }
            };
        };
        if cost == 0 {
            return BranchDecision::Admit(self.standing(member));
        }
        if !self.roster.admits(member, cost) {
            if self.may_have_changed(now) {
                return BranchDecision::Wait { needs: 0 };
            }
            return BranchDecision::Deny(
                self.denied(member, Retry::after(window.changes_at(now).since(now))),
            );
        }
        if cost > self.in_hand() {
            return BranchDecision::Wait { needs: cost };
        }
        self.roster.spend(member, cost);
        let (guarantee, used) = (self.roster.guarantee(member), self.roster.used_by(member));
        let remaining = guarantee.saturating_sub(used).min(self.roster.left());
        BranchDecision::Admit(self.decision(true, guarantee.max(used), remaining, Retry::Now))
    }

    /// Refunds units that a member was charged and did not use: they are available again while the window lasts that
    /// ends at `reset_at`, as in its decision. Otherwise they lapse with it.
    pub fn refund(&mut self, member: Member, units: Cost, reset_at: Timestamp, now: Timestamp) {
        if self.window.is_some_and(|window| window.ends == reset_at && now < window.dies) {
            self.roster.refund(member, units);
        }
    }

    /// Checks whether the held units are valid at `now`.
    pub fn lives(&self, now: Timestamp) -> bool {
        self.window.is_some_and(|window| now < window.dies)
    }

    /// Records a waiting caller that needs `needs` units.
    pub fn wait(&mut self, needs: Cost) {
        self.waiters += 1;
        self.needed = self.needed.saturating_add(needs);
    }

    /// Removes a waiting caller that needed `needs` units.
    pub fn stop_waiting(&mut self, needs: Cost) {
        self.waiters = self.waiters.saturating_sub(1);
        self.needed = self.needed.saturating_sub(needs);
    }

    /// Returns the request to send now, if any. It is pending until its reply or failure is handled.
    pub fn poll_request(&mut self, id: u64, now: Timestamp) -> Option<BranchRequest> {
        if self.waiters == 0 || self.asking.is_some() {
            return None;
        }
        let short = self.needed.saturating_sub(self.in_hand());
        let wants = short.div_ceil(self.plan.quantum).saturating_mul(self.plan.quantum).min(self.plan.limit);
        let weights = self.roster.weights();
        let weight = Weight::new(weights).unwrap_or(if weights == 0 { Weight::ONE } else { Weight::MAX });
        self.asking = Some(Sent { id, at: now, weight: weights });
        Some(BranchRequest { id, weight, wants })
    }

    /// Returns the ID of the pending request.
    pub fn asking(&self) -> Option<u64> {
        self.asking.map(|sent| sent.id)
    }

    /// Handles a reply. `theirs` is the instant of the reply, by the sender's clock.
    pub fn handle_reply(&mut self, id: u64, grant: PoolGrant, theirs: Timestamp, now: Timestamp) -> Credit {
        let Some(sent) = self.asking.take_if(|sent| sent.id == id) else { return Credit::Lapsed };
        let (dies, over) = (self.plan.margin.deadline(sent.at, grant.lives), now + grant.lives);
        if now >= dies {
            self.closed_until = over;
            return Credit::Lapsed;
        }
        let fresh = Held { epoch: grant.epoch, dies, over, ends: theirs + grant.lives };
        let anew = self.window.is_some_and(|window| window.epoch != grant.epoch);
        match &mut self.window {
            Some(window) if !anew => {
                // Each is a bound of the same instant.
                window.dies = window.dies.max(dies);
                window.over = window.over.min(over);
            }
            Some(_) => self.begin(Some(fresh)),
            None => self.window = Some(fresh),
        }
        self.granted = self.granted.saturating_add(grant.granted);
        self.roster.set_limit(self.granted.saturating_add(grant.more));
        self.heard = Some((now, sent.weight));
        Credit::Credited { anew }
    }

    /// Handles a request without a reply. What it would have granted lapses.
    pub fn handle_failure(&mut self, id: u64) {
        self.asking.take_if(|sent| sent.id == id);
    }

    /// Returns the roster of tenants. Its limit is what the branch could have.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The same, mutable, to map names to members: they join there, and leave.
    pub fn roster_mut(&mut self) -> &mut Roster {
        &mut self.roster
    }

    /// Units granted in this window.
    pub fn granted(&self) -> Cost {
        self.granted
    }

    /// Units granted and not spent.
    pub fn in_hand(&self) -> Cost {
        self.granted.saturating_sub(self.roster.used())
    }

    /// A window without units or members.
    fn begin(&mut self, window: Option<Held>) {
        self.window = window;
        self.granted = 0;
        self.heard = None;
        self.roster.clear();
        self.roster.set_limit(0);
    }

    /// Checks whether to request the branch's due again.
    fn may_have_changed(&self, now: Timestamp) -> bool {
        self.heard
            .is_none_or(|(at, weight)| weight != self.roster.weights() || now.since(at) >= self.plan.hold)
    }

    /// The most a tenant could take in one request, and the use that would result.
    fn standing(&mut self, member: Member) -> Decision {
        let (guarantee, used) = (self.roster.guarantee(member), self.roster.used_by(member));
        let most = self.roster.admissible(member);
        self.decision(true, guarantee.max(used.saturating_add(most)), most, Retry::Now)
    }

    fn denied(&mut self, member: Member, retry_after: Retry) -> Decision {
        Decision { allowed: false, retry_after, ..self.standing(member) }
    }

    fn decision(&self, allowed: bool, limit: Cost, remaining: Cost, retry_after: Retry) -> Decision {
        let reset_at = self.window.map_or(Timestamp::EPOCH, |window| window.ends);
        Decision { allowed, limit, remaining, reset_at, retry_after }
    }
}

#[cfg(test)]
mod tests;
