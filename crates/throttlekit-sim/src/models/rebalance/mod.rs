//! The production rebalancer and node over a network that delays, reorders, loses and doubles.
//!
//! A report, the rebalancer's answer and the arrival of its grant are steps of their own, and any other may come
//! between them: asks and ends of work, ticks, nodes that give up waiting, leave, or die and are replaced, and a
//! membership record that is lost. Reports and grants may be lost and doubled as often as there is room for them.
//!
//! A [`RebalanceState`] is small, and in it times are counted from now and numbers from the last grant: what a state
//! may still do depends on nothing else, so states that differ only in how long they have gone on are one. At each step
//! the membership record and the node that it concerns are built from it, production code does what it does, and what
//! came of that is written down again.
//!
//! What is bounded is how many messages are in flight, how many reports are sent, how many ticks pass and how often
//! a process dies or a membership record is lost. Within that, every order of steps is explored.

mod built;
mod cases;
mod plain;
mod seam;
mod state;
mod steps;
#[cfg(test)]
mod tests;

use core::time::Duration;

use stateright::{Model, Property};
use throttlekit_core::concurrency::division::{Combine, Rebalancer, Split};

pub use cases::{assumptions, large, small};
pub use seam::Seam;
pub use state::RebalanceState;
pub use steps::Step;

/// What a tick is.
const TICK: Duration = Duration::from_millis(1);
/// All together never run more than the ceiling.
const INVARIANT: &str = "fleet-ceiling";

/// A fleet to explore.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// How many processes there are at a time.
    pub nodes: usize,
    /// The ceiling of all.
    pub limit: u8,
    /// What each is due.
    pub split: Split,
    /// How many ticks a grant lives.
    pub lives: u8,
    /// How many ticks work may run on when a node's grant has died.
    pub linger: u8,
    /// How much may happen.
    pub room: Room,
    /// What a driver gets wrong, if anything.
    pub seam: Seam,
}

/// How much may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Messages in flight at once.
    pub letters: usize,
    /// Reports sent in all.
    pub reports: u8,
    /// How long it lasts.
    pub ticks: u8,
    /// How many processes die, each replaced by another.
    pub deaths: u8,
    /// How many say that they leave.
    pub leaves: u8,
    /// How often the membership record is lost.
    pub losses: u8,
}

impl Fleet {
    fn rebalancer(&self) -> Rebalancer {
        let limit = u32::from(self.limit);
        let linger = if self.seam == Seam::LingerUntold { 0 } else { self.linger };
        Rebalancer {
            combine: Combine::Min,
            split: self.split,
            initial: limit,
            most: limit,
            lives: TICK * u32::from(self.lives),
            linger: TICK * u32::from(linger),
        }
    }

    /// For how many ticks the rebalancer remembers a node.
    fn remembered(&self) -> u8 {
        (self.rebalancer().remembered().as_nanos() / TICK.as_nanos()) as u8
    }
}

impl Model for Fleet {
    type State = RebalanceState;
    type Action = Step;

    fn init_states(&self) -> Vec<RebalanceState> {
        vec![RebalanceState::new(self), RebalanceState::at_work(self)]
    }

    fn actions(&self, state: &RebalanceState, steps: &mut Vec<Step>) {
        state.offer(self, steps);
    }

    fn next_state(&self, state: &RebalanceState, step: Step) -> Option<RebalanceState> {
        state.after(self, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut invariants = vec![
            Property::always("in flight within the ceiling", |fleet: &Self, state: &RebalanceState| {
                state.in_flight() <= fleet.limit
            }),
            Property::sometimes(
                "the ceiling is reached by all together",
                |fleet: &Self, state: &RebalanceState| {
                    state.in_flight() == fleet.limit && state.busy() == fleet.nodes.min(fleet.limit.into())
                },
            ),
            Property::sometimes("more runs than the share", |fleet: &Self, state: &RebalanceState| {
                state.someone_drains(fleet)
            }),
        ];
        if self.room.losses > 0 {
            invariants.push(Property::sometimes(
                "the ceiling is reached on a new roll",
                |fleet, state: &RebalanceState| state.is_new_membership() && state.in_flight() == fleet.limit,
            ));
        }
        if self.split == Split::Demand {
            invariants.push(Property::sometimes(
                "a share went over, and all use what they have",
                |fleet, state: &RebalanceState| {
                    state.handed()
                        && state.in_flight() == fleet.limit
                        && state.busy() == fleet.nodes.min(fleet.limit.into())
                },
            ));
        }
        if self.room.ticks > self.lives {
            invariants.push(Property::sometimes("a node is fenced", |_, state: &RebalanceState| {
                state.someone_is_fenced()
            }));
        }
        invariants
    }
}
