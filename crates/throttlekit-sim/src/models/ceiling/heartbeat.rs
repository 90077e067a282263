//! Grants without delay: the coordinator's grant is the node's ceiling in the same instant.
//!
//! Nodes send heartbeats one at a time, in any order. A heartbeat grants a node its part, but never what
//! another still holds: the greater of its share and its number in flight, because running work cannot be
//! revoked.

use core::fmt;

use stateright::{Model, Property};

use super::{even_split, named};

/// Nodes whose heartbeats are answered at once.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// The number of nodes, members or not.
    pub nodes: usize,
    /// The shared ceiling.
    pub limit: u8,
    /// The rule that divides the ceiling.
    pub split: Split,
    /// The amount reserved for the other nodes.
    pub cap: Cap,
}

/// The target share of a node, before other nodes' reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The same for every node.
    Even,
    /// Its use plus one. Nodes that use their whole share divide the rest in equal parts.
    ByDemand,
}

/// The amount that a grant reserves for the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// Their grants, or their numbers in flight if larger.
    Held,
    /// Their grants.
    Share,
    /// Nothing: each node gets its part.
    None,
}

/// One node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    active: bool,
    share: u8,
    inflight: u8,
}

/// The next step, and the node it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The node sends a heartbeat and is granted a share.
    Heartbeat(usize),
    /// The node joins with nothing.
    Join(usize),
    /// The node and its work are gone.
    Leave(usize),
    /// The node admits one more.
    Acquire(usize),
    /// One request ends.
    Release(usize),
}

/// All nodes at an instant.
pub type Fleet = Vec<Node>;

impl Heartbeat {
    /// Creates the model as it was published.
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
