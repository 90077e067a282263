//! The production rebalancer and node over a network that delays, reorders, loses and duplicates messages.
//!
//! A report, the rebalancer's response and the arrival of its grant are separate steps, and any other may
//! come between them: requests and ends of work, ticks, nodes that give up waiting, leave, or die and are
//! replaced, and a membership record that is lost. Reports and grants may be lost and duplicated as often as
//! the bounds allow.
//!
//! A [`RebalanceState`] is small. In it times are relative to now and numbers to the last grant: the future
//! of a state depends on nothing else, so states that differ only in their age are one. Each step builds the
//! membership record and the node it concerns from the state, runs production code, and converts the result
//! back.
//!
//! The bounds limit the messages in flight, the reports sent, the ticks, and how often a process dies or a
//! membership record is lost. Within them, every order of steps is explored.

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

/// The length of a tick.
const TICK: Duration = Duration::from_millis(1);
/// All nodes together never run more than the ceiling.
const INVARIANT: &str = "fleet-ceiling";

/// A cluster to explore.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// The number of processes at a time.
    pub nodes: usize,
    /// The shared ceiling.
    pub limit: u8,
    /// The rule that divides the ceiling.
    pub split: Split,
    /// The lifetime of a grant, in ticks.
    pub lives: u8,
    /// The number of ticks for which work may run on after a node's grant has expired.
    pub linger: u8,
    /// The bounds on what may happen.
    pub room: Room,
    /// The driver's bug, if any.
    pub seam: Seam,
}

/// The bounds on what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The maximum number of messages in flight.
    pub letters: usize,
    /// The maximum number of reports sent in all.
    pub reports: u8,
    /// The length of the scenario, in ticks.
    pub ticks: u8,
    /// The maximum number of processes that die, each replaced by another.
    pub deaths: u8,
    /// The maximum number of processes that announce that they leave.
    pub leaves: u8,
    /// The maximum number of times the membership record is lost.
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

    /// Returns the number of ticks for which the rebalancer remembers a node.
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
