//! A partitioned node that stops by its own clock before the coordinator gives its share to another node.
//!
//! A heartbeat grants the node its share for a lifetime. The node stops a margin before the end, by its own
//! clock. The coordinator takes the share back at the end, by a clock that may be ahead. The margin must
//! cover the difference between the clocks, and the time that work may run after the node has stopped.

use core::fmt;

use stateright::{Model, Property};

/// A node with a ceiling of one, another that gets it when the first is gone, and clocks that disagree.
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    /// The time for which a heartbeat keeps the share, in ticks.
    pub life: i8,
    /// The number of ticks by which the node stops early.
    pub margin: i8,
    /// The maximum difference of the coordinator's clock, ahead or behind.
    pub skew_max: i8,
    /// The longest time that work runs.
    pub work_max: u8,
    /// If true, work ends when the node stops.
    pub aborts: bool,
    /// If false, the node never stops.
    pub fences: bool,
}

/// Both nodes and the coordinator at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The number of ticks by which the coordinator's clock is ahead.
    skew: i8,
    /// The remaining lifetime of the node, by its own clock. Values long after the end are not distinguished.
    left: i8,
    /// True while the node's heartbeats do not arrive.
    is_cut: bool,
    /// The number of ticks for which the node's work may still run.
    work: Option<u8>,
    /// True once the coordinator has taken the share back.
    is_reclaimed: bool,
    /// True while the other node works under the share.
    other_works: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A tick passes.
    Tick,
    /// The node sends a heartbeat, and it arrives.
    Heartbeat,
    /// The partition begins.
    Cut,
    /// The partition heals.
    Heal,
    /// The node admits.
    Acquire,
    /// The node's work ends.
    Release,
    /// The coordinator takes the share back.
    Reclaim,
    /// The other node admits.
    OtherAcquire,
    /// The other node's work ends.
    OtherRelease,
}

impl Fence {
    /// Returns the smallest margin that is safe.
    pub fn safe_margin(&self) -> i8 {
        self.skew_max + if self.aborts { 0 } else { self.work_max as i8 }
    }

    fn is_fenced(&self, pair: &Pair) -> bool {
        self.fences && pair.left <= self.margin
    }

    /// Returns the remaining time below which all states have the same future.
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
            // A share that another node works under is not granted twice.
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
