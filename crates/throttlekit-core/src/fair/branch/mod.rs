//! One of several places that share a budget: its tenants share what is granted to it.
//!
//! A region, or a process. It holds units that it was granted and fetches more as its tenants need them: from a
//! [`Pool`](super::pool::Pool), which keeps apart what other regions are due, or from a plain window by quanta. Like a
//! lease [`Holder`](crate::lease::Holder) it does no I/O: whoever drives it sends what [`Branch::poll_request`] gives
//! and hands in what came back.
//!
//! How tenants share: by the rule of the [`Roster`], over what the branch could have in this window, that is what it was
//! granted and what it was last told it could have beside. So what a slower tenant is due stays where all can see it and
//! is not fetched ahead of it. What is spent is only ever what was granted.
//!
//! * A grant is credited once, in the reply to the request that is under way, and only while its window lasts on the
//!   branch's own clock, counted from when the request was sent ([`Margin`]).
//! * One request is under way at a time, for all who wait. Asks that find enough in hand never wait.
//! * Units that were granted and not spent lapse with their window; so do those whose reply was lost. Units that were
//!   spent and not used come back in hand only while it lives.

use core::time::Duration;

use super::pool::Grant;
use super::{Member, Roster, Weight};
use crate::lease::{Epoch, Margin};
use crate::{Cost, Decision, Retry, Timestamp};

/// How a branch fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchPlan {
    /// The budget of all branches in a window. What costs more can never pass.
    pub limit: Cost,
    /// Units are fetched in multiples of this.
    pub quantum: Cost,
    /// How long what it was told holds: until then a tenant that has had its share is denied without asking again.
    pub hold: Duration,
    /// What the clocks may be wrong by.
    pub margin: Margin,
}

/// The tenants of one place and what is in hand there.
///
/// ```
/// use core::time::Duration;
/// use throttlekit_core::fair::branch::{Branch, BranchPlan, Turn};
/// use throttlekit_core::fair::{Weight, pool::{Pool, PoolAsk, PoolState}};
/// use throttlekit_core::{Timestamp, lease::Margin, rate::Limit};
///
/// let pool = Pool::new(Limit::fixed_window(100, Duration::from_secs(60))?)?;
/// let mut regions = PoolState::default();
/// let hold = Duration::from_millis(10);
/// let mut eu = Branch::new(BranchPlan { limit: 100, quantum: 10, hold, margin: Margin::default() });
///
/// let now = Timestamp::from_millis(1_000);
/// let ann = eu.roster_mut().join(Weight::ONE);
/// assert!(matches!(eu.ask(ann, Weight::ONE, 4, now), Turn::Wait { .. }), "nothing is in hand");
/// eu.wait(4);
/// let request = eu.poll_request(1, now).expect("someone waits");
/// let ask = PoolAsk { region: "eu", weight: request.weight, wants: request.wants };
/// let grant = pool.grant(&mut regions, ask, now).expect("few regions");
/// eu.handle_reply(request.id, grant, now, now);
/// eu.stop_waiting(4);
/// let Turn::Admit(decision) = eu.ask(ann, Weight::ONE, 4, now) else { panic!("ten are in hand") };
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
    /// When it last heard, and for which weight.
    heard: Option<(Timestamp, u64)>,
    /// Until when nothing can be had, though it is not known which window that is.
    closed_until: Timestamp,
    asking: Option<Sent>,
    waiters: u64,
    /// What those who wait need.
    needed: Cost,
}

/// The window from which units are in hand.
#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: Epoch,
    /// From when on they may be dead, by the branch's clock.
    dies: Timestamp,
    /// By when the window is over, by the branch's clock.
    over: Timestamp,
    /// When it ends, by the budget's own clock.
    ends: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    id: u64,
    at: Timestamp,
    weight: u64,
}

/// What becomes of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Admitted and charged.
    Admit(Decision),
    /// Denied. Nothing changed but that the tenant is active.
    Deny(Decision),
    /// Not known yet: wait for a reply and ask again.
    Wait {
        /// How many units are needed; none if only what is due has to be heard.
        needs: Cost,
    },
}

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Names it.
    pub id: u64,
    /// The weights of all tenants.
    pub weight: Weight,
    /// How many units more.
    pub wants: Cost,
}

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Credit {
    /// Its units are in hand. If a new window began with it, everyone joins again.
    Credited {
        /// Whether handles of members are void.
        anew: bool,
    },
    /// Its units are dead: their window is over, or the request is none that is under way.
    Lapsed,
}

impl Held {
    /// From when on someone who was denied may find more: in the future, while units live.
    ///
    /// If the budget's clock stood still or was set back, the window lasts longer than it first said. Then it is known
    /// here when units die, and they are asked for anew.
    fn changes_at(&self, now: Timestamp) -> Timestamp {
        if now < self.over { self.over } else { self.dies }
    }
}

impl Branch {
    /// A branch that holds nothing yet.
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

    /// Moves to `now`. True if the units in hand died with their window: then everyone joins again.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        let over = self.window.is_some_and(|window| now >= window.dies);
        if over {
            self.begin(None);
        }
        over
    }

    /// Answers an ask, and charges it if allowed. An ask of nothing changes nothing, and tells the most that would pass.
    ///
    /// Whoever is told [`Turn::Admit`] reads the clock again and lets it count only if [`lives`](Self::lives) then: the
    /// time between deciding and saying so is as long as it pleases the machine.
    pub fn ask(&mut self, member: Member, weight: Weight, cost: Cost, now: Timestamp) -> Turn {
        if cost > self.plan.limit {
            return Turn::Deny(self.denied(member, Retry::Never));
        }
        if cost > 0 {
            self.roster.set_weight(member, weight);
        }
        let Some(window) = self.window.filter(|window| now < window.dies) else {
            let wait = self.closed_until.since(now);
            return if wait > Duration::ZERO {
                Turn::Deny(self.denied(member, Retry::after(wait)))
            } else {
                Turn::Wait { needs: cost }
            };
        };
        if cost == 0 {
            return Turn::Admit(self.standing(member));
        }
        if !self.roster.admits(member, cost) {
            if self.may_have_changed(now) {
                return Turn::Wait { needs: 0 };
            }
            return Turn::Deny(self.denied(member, Retry::after(window.changes_at(now).since(now))));
        }
        if cost > self.in_hand() {
            return Turn::Wait { needs: cost };
        }
        self.roster.spend(member, cost);
        let (guarantee, used) = (self.roster.guarantee(member), self.roster.used_by(member));
        let remaining = guarantee.saturating_sub(used).min(self.roster.left());
        Turn::Admit(self.decision(true, guarantee.max(used), remaining, Retry::Now))
    }

    /// Hands units back that a member was charged and did not use: they are in hand again while the window lives that
    /// ends at `reset_at`, as its decision said. Otherwise they lapse with it.
    pub fn refund(&mut self, member: Member, units: Cost, reset_at: Timestamp, now: Timestamp) {
        if self.window.is_some_and(|window| window.ends == reset_at && now < window.dies) {
            self.roster.refund(member, units);
        }
    }

    /// Whether units in hand are alive at `now`.
    pub fn lives(&self, now: Timestamp) -> bool {
        self.window.is_some_and(|window| now < window.dies)
    }

    /// Someone waits, and needs so much.
    pub fn wait(&mut self, needs: Cost) {
        self.waiters += 1;
        self.needed = self.needed.saturating_add(needs);
    }

    /// Whoever waited and needed so much does not any more.
    pub fn stop_waiting(&mut self, needs: Cost) {
        self.waiters = self.waiters.saturating_sub(1);
        self.needed = self.needed.saturating_sub(needs);
    }

    /// What to ask for now, if anything. It is under way until a reply or a failure is handed in.
    pub fn poll_request(&mut self, id: u64, now: Timestamp) -> Option<Request> {
        if self.waiters == 0 || self.asking.is_some() {
            return None;
        }
        let short = self.needed.saturating_sub(self.in_hand());
        let wants = short.div_ceil(self.plan.quantum).saturating_mul(self.plan.quantum).min(self.plan.limit);
        let weights = self.roster.weights();
        let weight = Weight::new(weights).unwrap_or(if weights == 0 { Weight::ONE } else { Weight::MAX });
        self.asking = Some(Sent { id, at: now, weight: weights });
        Some(Request { id, weight, wants })
    }

    /// Which request is under way.
    pub fn asking(&self) -> Option<u64> {
        self.asking.map(|sent| sent.id)
    }

    /// Takes in a reply. `theirs` is the instant of whoever replied, by its own clock.
    pub fn handle_reply(&mut self, id: u64, grant: Grant, theirs: Timestamp, now: Timestamp) -> Credit {
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

    /// There will be no reply. What it would have granted lapses.
    pub fn handle_failure(&mut self, id: u64) {
        self.asking.take_if(|sent| sent.id == id);
    }

    /// Who shares it. Its limit is what the branch could have.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The same, for whoever maps names to members: they join there, and leave.
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

    /// Whether it is worth asking again what the branch is due.
    fn may_have_changed(&self, now: Timestamp) -> bool {
        self.heard
            .is_none_or(|(at, weight)| weight != self.roster.weights() || now.since(at) >= self.plan.hold)
    }

    /// The most a tenant could take in one ask, and up to what use that would bring it.
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
