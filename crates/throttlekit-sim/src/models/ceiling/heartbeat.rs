//! Grants that arrive at once: the coordinator's word is the node's ceiling in the same instant.
//!
//! Nodes send heartbeats one at a time, in any order. A heartbeat gives a node its part, but never what another still
//! holds: the greater of its share and of what it has in flight, because work that runs cannot be called back.

use core::fmt;

use stateright::{Model, Property};

use super::{even_split, named};

/// A fleet whose heartbeats are answered at once.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// How many nodes there are, some of which are in the fleet.
    pub nodes: usize,
    /// The ceiling of the fleet.
    pub limit: u8,
    /// What a node should get.
    pub split: Split,
    /// What is kept for the others.
    pub cap: Cap,
}

/// What a node should get if nobody stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// As much as every other.
    Even,
    /// What it uses and one more; those that use all they have get the rest in equal parts.
    ByDemand,
}

/// What a grant leaves to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// What they were granted, or have in flight if that is more.
    Held,
    /// What they were granted.
    Share,
    /// Nothing: whoever asks gets its part.
    None,
}

/// One node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    active: bool,
    share: u8,
    inflight: u8,
}

/// What happens next, and to which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It sends a heartbeat and is granted a share.
    Heartbeat(usize),
    /// It enters with nothing.
    Join(usize),
    /// It is gone, and what it ran is too.
    Leave(usize),
    /// It admits one more.
    Acquire(usize),
    /// One is done.
    Release(usize),
}

/// The fleet at an instant.
pub type Fleet = Vec<Node>;

impl Heartbeat {
    /// The model as it was published.
    pub fn published(nodes: usize, limit: u8) -> Self {
        Self { nodes, limit, split: Split::Even, cap: Cap::Held }
    }

    fn grant(&self, fleet: &Fleet, to: usize) -> u8 {
        let others = fleet.iter().enumerate().filter(|&(at, node)| at != to && node.active);
        let kept: u8 = others.map(|(_, node)| self.kept(node)).sum();
        self.part(fleet, to).min(self.limit.saturating_sub(kept))
    }

    fn kept(&self, node: &Node) -> u8 {
        match self.cap {
            Cap::Held => node.share.max(node.inflight),
            Cap::Share => node.share,
            Cap::None => 0,
        }
    }

    fn part(&self, fleet: &Fleet, to: usize) -> u8 {
        let active = || fleet.iter().filter(|node| node.active);
        if self.split == Split::Even {
            return even_split(self.limit, active().count());
        }
        let is_satisfied = |node: &Node| node.inflight < node.share;
        if is_satisfied(&fleet[to]) {
            return fleet[to].inflight + 1;
        }
        let satisfied: u8 = active().filter(|node| is_satisfied(node)).map(|node| node.inflight + 1).sum();
        let spare = self.limit.saturating_sub(satisfied);
        let is_hungry = |node: &&Node| node.active && !is_satisfied(node);
        let hungry = fleet.iter().filter(is_hungry).count() as u8;
        let before = fleet[..to].iter().filter(is_hungry).count() as u8;
        (spare / hungry + u8::from(before < spare % hungry)).max(1)
    }
}

fn sum(fleet: &Fleet, of: impl Fn(&Node) -> u8) -> u8 {
    fleet.iter().filter(|node| node.active).map(of).sum()
}

impl Model for Heartbeat {
    type State = Fleet;
    type Action = Move;

    fn init_states(&self) -> Vec<Fleet> {
        let active = |set: usize, at: usize| Node { active: set >> at & 1 == 1, ..Node::default() };
        (1..1 << self.nodes).map(|set| (0..self.nodes).map(|at| active(set, at)).collect()).collect()
    }

    fn actions(&self, fleet: &Fleet, moves: &mut Vec<Move>) {
        let active = fleet.iter().filter(|node| node.active).count();
        for (at, node) in fleet.iter().enumerate() {
            let can = [
                (node.active, Move::Heartbeat(at)),
                (!node.active, Move::Join(at)),
                (node.active && active > 1, Move::Leave(at)),
                (node.active && node.inflight < node.share, Move::Acquire(at)),
                (node.inflight > 0, Move::Release(at)),
            ];
            moves.extend(can.into_iter().filter_map(|(can, step)| can.then_some(step)));
        }
    }

    fn next_state(&self, last: &Fleet, step: Move) -> Option<Fleet> {
        let mut fleet = last.clone();
        match step {
            Move::Heartbeat(at) => fleet[at].share = self.grant(last, at),
            Move::Join(at) => fleet[at] = Node { active: true, share: 0, ..fleet[at] },
            Move::Leave(at) => fleet[at] = Node::default(),
            Move::Acquire(at) => fleet[at].inflight += 1,
            Move::Release(at) => fleet[at].inflight -= 1,
        }
        Some(fleet)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("shares within the ceiling", |model: &Self, fleet: &Fleet| {
                sum(fleet, |node| node.share) <= model.limit
            }),
            Property::always("in flight within the ceiling", |model: &Self, fleet: &Fleet| {
                sum(fleet, |node| node.inflight) <= model.limit
            }),
            Property::sometimes("shares reach the ceiling", |model: &Self, fleet: &Fleet| {
                sum(fleet, |node| node.share) == model.limit
            }),
            Property::sometimes("in flight reaches the ceiling", |model: &Self, fleet: &Fleet| {
                sum(fleet, |node| node.inflight) == model.limit
            }),
        ]
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Heartbeat(at) => write!(f, "{} sends a heartbeat and is granted a share", named(at)),
            Self::Join(at) => write!(f, "{} joins", named(at)),
            Self::Leave(at) => write!(f, "{} leaves", named(at)),
            Self::Acquire(at) => write!(f, "{} admits one", named(at)),
            Self::Release(at) => write!(f, "{} is done with one", named(at)),
        }
    }
}
