//! Grants and reports with a delay: the share that a node was granted, the share it enforces and the share it
//! reported may differ.
//!
//! The coordinator numbers its grants. A grant may arrive late or never, and a node only moves to later ones.
//! A report names the grant that the node enforces and the number of requests in flight, both of one instant.
//! The coordinator reserves for a node the largest grant since the one it last acknowledged, or the number in
//! flight that it last reported if that is more.

use core::fmt;

use stateright::{Model, Property};

use super::{even_split, named};

/// The maximum number of grants on record for a node.
const GRANTS_MAX: usize = 4;

/// Nodes whose grants and reports are in flight for a while.
#[derive(Clone, Copy, Debug)]
pub struct Handoff {
    /// The number of nodes, members or not.
    pub nodes: usize,
    /// The shared ceiling.
    pub limit: u8,
    /// The maximum number of grants on record for a node.
    pub grants: usize,
    /// If true, grants that no longer matter are removed from the record, so that there is always capacity
    /// for another.
    pub trimmed: bool,
    /// The amount reserved for a node.
    pub reserve: Reserve,
    /// If true, the two parts of a report may be of different instants.
    pub torn_report: bool,
    /// If true, a node accepts a grant older than the one it enforces.
    pub obeys_older: bool,
}

/// The amount reserved for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The largest grant that it may still enforce, or the reported number in flight.
    Acknowledged,
    /// The latest grant, or the reported grant or number in flight.
    Snapshot,
    /// The largest grant that it may still enforce.
    Granted,
}

/// One node, and the coordinator's record of it. Grants are numbered from one; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    active: bool,
    shares: [u8; GRANTS_MAX],
    granted: usize,
    obeys: usize,
    inflight: u8,
    acknowledged: usize,
    reported: u8,
}

/// The next step, and the node it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A grant is sent to the node.
    Grant(usize),
    /// The grant with this number arrives.
    Deliver(usize, usize),
    /// The node reports the grant that it enforces and the number in flight.
    Report(usize),
    /// The node reports only the grant that it enforces.
    ReportGrant(usize),
    /// The node reports only the number in flight.
    ReportInflight(usize),
    /// The node admits one more.
    Acquire(usize),
    /// One request ends.
    Release(usize),
    /// The node joins with nothing.
    Join(usize),
    /// The node and its work are gone.
    Leave(usize),
}

/// All nodes at an instant.
pub type Fleet = Vec<Node>;

impl Node {
    fn share(&self, number: usize) -> u8 {
        number.checked_sub(1).map_or(0, |at| self.shares[at])
    }

    fn unacknowledged(&self) -> u8 {
        let from = self.acknowledged.max(1);
        (from..=self.granted).map(|number| self.share(number)).max().unwrap_or(0)
    }

    fn kept(&self, reserve: Reserve) -> u8 {
        let (last, obeys) = (self.share(self.granted), self.share(self.acknowledged));
        match reserve {
            Reserve::Acknowledged => self.unacknowledged().max(self.reported),
            Reserve::Snapshot => last.max(obeys).max(self.reported),
            Reserve::Granted => self.unacknowledged(),
        }
    }

    /// Removes grants that the node no longer enforces and the coordinator no longer reserves for.
    fn trim(&mut self) {
        let dead = self.obeys.min(self.acknowledged).saturating_sub(1);
        self.shares.copy_within(dead.., 0);
        self.shares[GRANTS_MAX - dead..].fill(0);
        self.granted -= dead;
        self.obeys -= dead.min(self.obeys);
        self.acknowledged -= dead.min(self.acknowledged);
    }
}

impl Handoff {
    /// Creates the model as it was published.
    pub fn published(nodes: usize, limit: u8, grants: usize) -> Self {
        let reserve = Reserve::Acknowledged;
        Self { nodes, limit, grants, trimmed: false, reserve, torn_report: false, obeys_older: false }
    }

    /// Creates the same model with the record trimmed, as in the variant that was published beside it.
    pub fn trimmed(nodes: usize, limit: u8, grants: usize) -> Self {
        Self { trimmed: true, ..Self::published(nodes, limit, grants) }
    }

    fn grant(&self, fleet: &Fleet, to: usize) -> u8 {
        let active = fleet.iter().filter(|node| node.active).count();
        let others = fleet.iter().enumerate().filter(|&(at, node)| at != to && node.active);
        let kept: u8 = others.map(|(_, node)| node.kept(self.reserve)).sum();
        even_split(self.limit, active).min(self.limit.saturating_sub(kept))
    }

    fn offer_deliveries(&self, at: usize, node: &Node, moves: &mut Vec<Move>) {
        let first = if self.obeys_older { 1 } else { node.obeys + 1 };
        let numbers = (first..=node.granted).filter(|&number| number != node.obeys);
        moves.extend(numbers.map(|number| Move::Deliver(at, number)));
    }

    fn offer_reports(&self, at: usize, node: &Node, moves: &mut Vec<Move>) {
        let (obeys, inflight) = (node.acknowledged != node.obeys, node.reported != node.inflight);
        match self.torn_report {
            true if obeys => moves.push(Move::ReportGrant(at)),
            false if obeys || inflight => moves.push(Move::Report(at)),
            _ => {}
        }
        if self.torn_report && inflight {
            moves.push(Move::ReportInflight(at));
        }
    }
}

fn sum(fleet: &Fleet, of: impl Fn(&Node) -> u8) -> u8 {
    fleet.iter().filter(|node| node.active).map(of).sum()
}

impl Model for Handoff {
    type State = Fleet;
    type Action = Move;

    fn init_states(&self) -> Vec<Fleet> {
        assert!(self.grants <= GRANTS_MAX, "a record of {} grants has no room", self.grants);
        let active = |set: usize, at: usize| Node { active: set >> at & 1 == 1, ..Node::default() };
        (1..1 << self.nodes).map(|set| (0..self.nodes).map(|at| active(set, at)).collect()).collect()
    }

    fn actions(&self, fleet: &Fleet, moves: &mut Vec<Move>) {
        let active = fleet.iter().filter(|node| node.active).count();
        for (at, node) in fleet.iter().enumerate() {
            if node.active {
                self.offer_deliveries(at, node, moves);
                self.offer_reports(at, node, moves);
            }
            let can = [
                (node.active && node.granted < self.grants, Move::Grant(at)),
                (node.active && node.inflight < node.share(node.obeys), Move::Acquire(at)),
                (node.inflight > 0, Move::Release(at)),
                (!node.active, Move::Join(at)),
                (node.active && active > 1, Move::Leave(at)),
            ];
            moves.extend(can.into_iter().filter_map(|(can, step)| can.then_some(step)));
        }
    }

    fn next_state(&self, last: &Fleet, step: Move) -> Option<Fleet> {
        let mut fleet = last.clone();
        match step {
            Move::Grant(at) => {
                let number = fleet[at].granted;
                fleet[at].shares[number] = self.grant(last, at);
                fleet[at].granted += 1;
            }
            Move::Deliver(at, number) => fleet[at].obeys = number,
            Move::Report(at) | Move::ReportGrant(at) | Move::ReportInflight(at) => {
                let node = &mut fleet[at];
                if !matches!(step, Move::ReportInflight(_)) {
                    node.acknowledged = node.obeys;
                }
                if !matches!(step, Move::ReportGrant(_)) {
                    node.reported = node.inflight;
                }
            }
            Move::Acquire(at) => fleet[at].inflight += 1,
            Move::Release(at) => fleet[at].inflight -= 1,
            Move::Join(at) => fleet[at] = Node { active: true, ..Node::default() },
            Move::Leave(at) => fleet[at] = Node::default(),
        }
        if self.trimmed {
            fleet.iter_mut().for_each(Node::trim);
        }
        Some(fleet)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut invariants = vec![
            Property::always("shares within the ceiling", |model: &Self, fleet: &Fleet| {
                sum(fleet, |node| node.share(node.granted)) <= model.limit
            }),
            Property::always("in flight within the ceiling", |model: &Self, fleet: &Fleet| {
                sum(fleet, |node| node.inflight) <= model.limit
            }),
            Property::sometimes("shares reach the ceiling", |model: &Self, fleet: &Fleet| {
                sum(fleet, |node| node.share(node.granted)) == model.limit
            }),
            Property::sometimes("in flight reaches the ceiling", |model: &Self, fleet: &Fleet| {
                sum(fleet, |node| node.inflight) == model.limit
            }),
        ];
        if !self.obeys_older {
            invariants
                .push(Property::always("nobody acknowledges what it does not obey", |_, fleet: &Fleet| {
                    fleet.iter().all(|node| node.acknowledged <= node.obeys)
                }));
        }
        if self.reserve == Reserve::Snapshot {
            // The value of the unacknowledged maximum.
            invariants.push(Property::sometimes(
                "half as much again is in flight",
                |model: &Self, fleet: &Fleet| {
                    sum(fleet, |node| node.inflight) == model.limit + model.limit / 2
                },
            ));
        }
        invariants
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Grant(at) => write!(f, "{} is sent a grant", named(at)),
            Self::Deliver(at, number) => write!(f, "grant {number} arrives at {}", named(at)),
            Self::Report(at) => write!(f, "{} reports", named(at)),
            Self::ReportGrant(at) => write!(f, "{} reports its grant", named(at)),
            Self::ReportInflight(at) => write!(f, "{} reports what is in flight", named(at)),
            Self::Acquire(at) => write!(f, "{} admits one", named(at)),
            Self::Release(at) => write!(f, "{} is done with one", named(at)),
            Self::Join(at) => write!(f, "{} joins", named(at)),
            Self::Leave(at) => write!(f, "{} leaves", named(at)),
        }
    }
}
