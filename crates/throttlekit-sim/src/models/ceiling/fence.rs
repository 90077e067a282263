//! A node that is cut off and stops by its own clock before the coordinator gives its share to another.
//!
//! A heartbeat promises the node its share for a life. The node stops a margin before the life is over, by its clock;
//! the coordinator takes the share back when it is over, by a clock that may be ahead. The margin must cover how far
//! the clocks are apart, and how long work may run if it goes on after the node has stopped.

use core::fmt;

use stateright::{Model, Property};

/// A node with a ceiling of one, another that gets it when the first is gone, and clocks that disagree.
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    /// How long a heartbeat keeps the share, in ticks.
    pub life: i8,
    /// How much earlier the node stops.
    pub margin: i8,
    /// How far the coordinator's clock may be ahead or behind.
    pub skew_max: i8,
    /// How long work runs at most.
    pub work_max: u8,
    /// Whether work ends when the node stops.
    pub aborts: bool,
    /// Whether the node stops at all.
    pub fences: bool,
}

/// Both nodes and the coordinator at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// How far the coordinator's clock is ahead.
    skew: i8,
    /// How much is left of the node's life, by its own clock; nothing is told apart long after its end.
    left: i8,
    /// Whether the node's heartbeats no longer arrive.
    is_cut: bool,
    /// For how many ticks the node's work may still run.
    work: Option<u8>,
    /// Whether the coordinator has taken the share back.
    is_reclaimed: bool,
    /// Whether the other works under the share.
    other_works: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A tick passes.
    Tick,
    /// The node sends a heartbeat, and it arrives.
    Heartbeat,
    /// Heartbeats no longer arrive.
    Cut,
    /// They do again.
    Heal,
    /// The node admits.
    Acquire,
    /// Its work is done.
    Release,
    /// The coordinator takes the share back.
    Reclaim,
    /// The other admits.
    OtherAcquire,
    /// The other's work is done.
    OtherRelease,
}

impl Fence {
    /// The least margin that is safe.
    pub fn safe_margin(&self) -> i8 {
        self.skew_max + if self.aborts { 0 } else { self.work_max as i8 }
    }

    fn is_fenced(&self, pair: &Pair) -> bool {
        self.fences && pair.left <= self.margin
    }

    /// Below this all that can still happen is the same.
    fn left_min(&self) -> i8 {
        -self.skew_max - self.work_max as i8 - 1
    }

    fn tick(&self, pair: &mut Pair) {
        pair.left = (pair.left - 1).max(self.left_min());
        pair.work = pair.work.and_then(|ticks| ticks.checked_sub(1));
        if self.aborts && self.is_fenced(pair) {
            pair.work = None;
        }
    }
}

impl Model for Fence {
    type State = Pair;
    type Action = Move;

    fn init_states(&self) -> Vec<Pair> {
        let at = |skew| Pair {
            skew,
            left: self.life,
            is_cut: false,
            work: None,
            is_reclaimed: false,
            other_works: false,
        };
        (-self.skew_max..=self.skew_max).map(at).collect()
    }

    fn actions(&self, pair: &Pair, moves: &mut Vec<Move>) {
        let can = [
            (true, Move::Tick),
            // What another works under is not lent twice.
            (!pair.is_cut && !pair.other_works, Move::Heartbeat),
            (!pair.is_cut, Move::Cut),
            (pair.is_cut, Move::Heal),
            (pair.work.is_none() && !self.is_fenced(pair), Move::Acquire),
            (pair.work.is_some(), Move::Release),
            (!pair.is_reclaimed && pair.left <= pair.skew, Move::Reclaim),
            (pair.is_reclaimed && !pair.other_works, Move::OtherAcquire),
            (pair.other_works, Move::OtherRelease),
        ];
        moves.extend(can.into_iter().filter_map(|(can, step)| can.then_some(step)));
    }

    fn next_state(&self, last: &Pair, step: Move) -> Option<Pair> {
        let mut pair = *last;
        match step {
            Move::Tick => self.tick(&mut pair),
            Move::Heartbeat => (pair.left, pair.is_reclaimed) = (self.life, false),
            Move::Cut => pair.is_cut = true,
            Move::Heal => pair.is_cut = false,
            Move::Acquire => pair.work = Some(self.work_max),
            Move::Release => pair.work = None,
            Move::Reclaim => pair.is_reclaimed = true,
            Move::OtherAcquire => pair.other_works = true,
            Move::OtherRelease => pair.other_works = false,
        }
        Some(pair)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("in flight within the ceiling", |_, pair: &Pair| {
                pair.work.is_none() || !pair.other_works
            }),
            Property::sometimes("the node works to the last", |model: &Self, pair: &Pair| {
                pair.work.is_some() && !model.is_fenced(pair) && pair.left == model.margin + 1
            }),
            Property::sometimes("the other gets the share", |_, pair: &Pair| pair.other_works),
        ]
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tick => "a tick passes",
            Self::Heartbeat => "A sends a heartbeat",
            Self::Cut => "A is cut off",
            Self::Heal => "A is no longer cut off",
            Self::Acquire => "A admits one",
            Self::Release => "A is done with it",
            Self::Reclaim => "the coordinator takes A's share back",
            Self::OtherAcquire => "B admits one",
            Self::OtherRelease => "B is done with it",
        })
    }
}
