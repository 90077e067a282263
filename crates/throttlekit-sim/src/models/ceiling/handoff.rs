//! Grants and reports that take their time: what a node was granted, what it obeys and what it said of itself are three things.
//!
//! The coordinator numbers its grants. A grant may arrive late or never, and a node only moves to later ones. A report says which
//! grant the node obeys and how much it has in flight, both of one instant. Kept for a node is the most that it was granted since
//! the grant that it last said it obeys, or what it last said is in flight if that is more.

use core::fmt;

use stateright::{Model, Property};

use super::{even_split, named};

/// No node has more grants on record than this.
const GRANTS_MAX: usize = 4;

/// A fleet whose grants and reports are in flight for a while.
#[derive(Clone, Copy, Debug)]
pub struct Handoff {
    /// How many nodes there are, some of which are in the fleet.
    pub nodes: usize,
    /// The ceiling of the fleet.
    pub limit: u8,
    /// How many grants of a node are on record at most.
    pub grants: usize,
    /// Whether grants are struck from the record that can matter no more, so that there is always room for another.
    pub trimmed: bool,
    /// What is kept for a node.
    pub reserve: Reserve,
    /// Whether what a node says of itself is of one instant.
    pub torn_report: bool,
    /// Whether a node obeys a grant that it was sent before the one it obeys now.
    pub obeys_older: bool,
}

/// What is kept for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The most it was granted and may still obey, or has in flight as it says.
    Acknowledged,
    /// What it was granted last, or obeys or has in flight as it says.
    Snapshot,
    /// The most it was granted and may still obey.
    Granted,
}

/// One node, and what the coordinator knows of it. Grants are counted from one; none is zero.
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

/// What happens next, and to which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It is sent a grant.
    Grant(usize),
    /// The grant of this number arrives.
    Deliver(usize, usize),
    /// It says which grant it obeys and what it has in flight.
    Report(usize),
    /// It says which grant it obeys and nothing of what it has in flight.
    ReportGrant(usize),
    /// It says what it has in flight and nothing of the grant.
    ReportInflight(usize),
    /// It admits one more.
    Acquire(usize),
    /// One is done.
    Release(usize),
    /// It enters with nothing.
    Join(usize),
    /// It is gone, and what it ran is too.
    Leave(usize),
}

/// The fleet at an instant.
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

    /// Strikes what neither the node obeys nor the coordinator reserves for any more, nor ever will.
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
    /// The model as it was published.
    pub fn published(nodes: usize, limit: u8, grants: usize) -> Self {
        let reserve = Reserve::Acknowledged;
        Self { nodes, limit, grants, trimmed: false, reserve, torn_report: false, obeys_older: false }
    }

    /// The same with the record trimmed, as the twin that was published beside it does.
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
            // How much the un-acknowledged maximum is worth.
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
