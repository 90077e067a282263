//! The steps of a cluster, and their effects.

use core::fmt;

use throttlekit_core::concurrency::division::{Grant, NodeLoad, ReportResponse, Split};

use super::built::{NOW, sent};
use super::state::{Host, Kept, Known, Letter, MEMBERS_MAX, RebalanceState, Says, UNHEARD};
use super::{Fleet, Seam};

/// The demand of a node with high demand.
const MUCH: u8 = 3;
/// The distance by which the numbers of a lost membership record may be ahead of those of a new one. Any
/// larger one is equivalent.
const FAR: u8 = 40;

/// The next step. Hosts and messages are identified by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A node reports this demand.
    Report(usize, u8),
    /// A node stops waiting for a response.
    GiveUp(usize),
    /// A message arrives.
    Arrive(usize),
    /// A message is lost.
    Lose(usize),
    /// The network duplicates a message.
    Double(usize),
    /// A node admits one request.
    Admit(usize),
    /// One request ends.
    End(usize),
    /// A tick passes.
    Tick,
    /// A node admits no more.
    Leave(usize),
    /// A process dies, and another is started.
    Die(usize),
    /// The membership record is lost, after few grants or after many.
    LoseMembership(bool),
}

impl RebalanceState {
    pub(super) fn offer(&self, fleet: &Fleet, steps: &mut Vec<Step>) {
        let under_way = self.letters.iter().flatten().count();
        let is_room = under_way < fleet.room.letters;
        for (at, host) in self.hosts.iter().enumerate().filter(|(_, host)| host.id != 0) {
            self.offer_host(fleet, at, host, is_room, steps);
        }
        for at in 0..self.letters.len() {
            if self.letters[at].is_some() {
                steps.extend([Step::Arrive(at), Step::Lose(at)]);
                steps.extend(is_room.then_some(Step::Double(at)));
            }
        }
        steps.extend((self.left.ticks > 0).then_some(Step::Tick));
        if self.left.losses > 0 && self.membership.number > 0 {
            steps.extend([Step::LoseMembership(false), Step::LoseMembership(true)]);
        }
    }

    fn offer_host(&self, fleet: &Fleet, at: usize, host: &Host, is_room: bool, steps: &mut Vec<Step>) {
        let can_report = is_room && host.waiting.is_none() && self.left.reports > 0;
        let wants_much = can_report && fleet.split == Split::Demand;
        let can = [
            (can_report, Step::Report(at, 0)),
            (wants_much, Step::Report(at, MUCH)),
            (host.waiting.is_some(), Step::GiveUp(at)),
            (u32::from(host.in_flight) < fleet.share(host), Step::Admit(at)),
            (host.in_flight > 0, Step::End(at)),
            (self.left.leaves > 0 && !host.leaving, Step::Leave(at)),
            (self.left.deaths > 0 && host.heartbeat > 0, Step::Die(at)),
        ];
        steps.extend(can.into_iter().filter_map(|(can, step)| can.then_some(step)));
    }

    /// Returns the state after a step, or `None` if the bounds exclude it.
    pub(super) fn after(&self, fleet: &Fleet, step: Step) -> Option<Self> {
        let mut state = *self;
        match step {
            Step::Report(at, wants) => state.report(fleet, at, wants),
            Step::GiveUp(at) => state.hosts[at].waiting = None,
            Step::Arrive(at) => state.arrive(fleet, at)?,
            Step::Lose(at) => state.letters[at] = None,
            Step::Double(at) => state.put(self.letters[at]?),
            Step::Admit(at) => state.hosts[at].in_flight += 1,
            Step::End(at) => state.hosts[at].in_flight -= 1,
            Step::Tick => state.tick(fleet),
            Step::Leave(at) => {
                state.left.leaves -= 1;
                state.hosts[at].leaving = true;
            }
            Step::Die(at) => {
                state.left.deaths -= 1;
                // Identities are random, so the new one may sort anywhere; here it comes last.
                state.hosts[at] = Host { id: u8::MAX, ..Host::default() };
            }
            Step::LoseMembership(far) => state.lose_membership(fleet, far),
        }
        state.plain(fleet);
        Some(state)
    }

    fn put(&mut self, letter: Letter) {
        *self.letters.iter_mut().find(|place| place.is_none()).expect("there is room") = Some(letter);
    }

    fn report(&mut self, fleet: &Fleet, at: usize, wants: u8) {
        let host = &mut self.hosts[at];
        let mut node = fleet.node(host);
        let occupancy = NodeLoad { in_flight: host.in_flight.into(), limit: 0, wants: wants.into() };
        let mut report = node.poll_report(occupancy, 0, NOW).expect("a poll is a heartbeat");
        if fleet.seam == Seam::LeavesWithWork && report.leaving {
            report.in_flight = 0;
        }
        if fleet.seam == Seam::Torn {
            report.in_flight = host.was_in_flight.into();
            host.was_in_flight = host.in_flight;
        }
        (host.heartbeat, host.waiting) = (report.heartbeat as u8, Some(0));
        self.left.reports -= 1;
        self.put(Letter::of(&report));
    }

    fn arrive(&mut self, fleet: &Fleet, at: usize) -> Option<()> {
        let letter = self.letters[at].take()?;
        match letter.says {
            Says::Report { .. } => self.hear(fleet, letter),
            Says::Grant { number, share } => {
                self.take(fleet, letter, fleet.grant(number, share));
                Some(())
            }
        }
    }

    fn hear(&mut self, fleet: &Fleet, letter: Letter) -> Option<()> {
        let before = self.membership;
        fleet.seam.before_heartbeat(self.membership.known(letter.id));
        let (mut membership, report) =
            (self.membership.membership(fleet.rebalancer().remembered()), letter.report()?);
        let answer = fleet.rebalancer().handle_report(&mut membership, &report, NOW);
        self.membership = Kept::of(&membership)?;
        fleet.seam.after_heartbeat(self.membership.known(letter.id));
        if fleet.split == Split::Demand {
            self.follow(letter.id, before);
        }
        if let ReportResponse::Grant(Grant { number, share, .. }) = answer {
            self.put(Letter { says: Says::Grant { number: number as u8, share: share as u8 }, ..letter });
        }
        Some(())
    }

    /// Tracks whether a share is handed over: one node acknowledges less, and then another's share rises.
    fn follow(&mut self, id: u8, mut before: Kept) {
        let (Some(was), Some(is)) = (before.known(id), self.membership.known(id)) else { return };
        if !self.handed && is.high < was.high {
            self.yielded = id;
        } else if self.yielded != 0 && self.yielded != id && is.share > was.share {
            (self.yielded, self.handed) = (0, true);
        }
    }

    fn take(&mut self, fleet: &Fleet, letter: Letter, grant: Grant) {
        let Some(host) = self.hosts.iter_mut().find(|host| host.id == letter.id) else { return };
        if fleet.seam == Seam::GoesBack {
            host.grant = Some(fleet.held(grant, sent(letter.heartbeat, letter.age) + grant.lives));
        }
        let mut node = fleet.node(&fleet.seam.answered(host));
        let asked = match host.waiting {
            Some(age) if fleet.seam.takes_unawaited() => sent(host.heartbeat, age),
            _ => sent(letter.heartbeat, letter.age),
        };
        if node.handle_grant(grant, asked, NOW) {
            host.grant = Some(fleet.held(grant, node.dies()));
        }
        if host.waiting.is_some_and(|age| sent(host.heartbeat, age) == asked) {
            host.waiting = None;
        }
    }

    fn tick(&mut self, fleet: &Fleet) {
        self.left.ticks -= 1;
        let grow = |age: &mut u8| *age = age.saturating_add(1);
        self.letters.iter_mut().flatten().for_each(|letter| grow(&mut letter.age));
        self.membership.members.iter_mut().flatten().for_each(|known| grow(&mut known.age));
        if self.membership.quiet != UNHEARD {
            self.membership.quiet = self.membership.quiet.saturating_sub(1);
        }
        for host in &mut self.hosts {
            host.waiting.iter_mut().for_each(grow);
            let Some(held) = &mut host.grant else { continue };
            held.left -= 1;
            if fleet.seam == Seam::Unfenced {
                held.left = held.left.max(1);
            }
            // Work is stopped or has ended.
            if held.left <= -(fleet.linger as i8) {
                host.in_flight = 0;
            }
        }
    }

    fn lose_membership(&mut self, fleet: &Fleet, far: bool) {
        self.left.losses -= 1;
        self.is_new_membership = true;
        if far {
            self.numbers().for_each(|number| *number = if *number == 0 { 0 } else { *number + FAR });
        }
        let quiet = if fleet.seam == Seam::NoQuiet { 0 } else { UNHEARD };
        self.membership = Kept { number: 0, quiet, members: [None; MEMBERS_MAX] };
    }
}

impl Kept {
    fn known(&mut self, id: u8) -> Option<&mut Known> {
        self.members.iter_mut().flatten().find(|known| known.id == id)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report(at, wants) => write!(f, "node {at} reports, and wants {wants}"),
            Self::GiveUp(at) => write!(f, "node {at} gives up waiting"),
            Self::Arrive(at) => write!(f, "message {at} arrives"),
            Self::Lose(at) => write!(f, "message {at} is lost"),
            Self::Double(at) => write!(f, "message {at} is doubled"),
            Self::Admit(at) => write!(f, "node {at} admits one"),
            Self::End(at) => write!(f, "node {at} is done with one"),
            Self::Tick => write!(f, "a tick passes"),
            Self::Leave(at) => write!(f, "node {at} leaves"),
            Self::Die(at) => write!(f, "node {at} dies, and another is started"),
            Self::LoseMembership(_) => write!(f, "the membership record is lost"),
        }
    }
}
