//! The production fold and node over a network that delays, reorders, loses and doubles.
//!
//! A report, the fold's answer and the arrival of its grant are steps of their own, and any other may come between them: asks
//! and ends of work, ticks, nodes that give up waiting, leave, or die and are replaced, and a roll that is lost. Reports and
//! grants may be lost and doubled as often as there is room for them.
//!
//! A [`World`] is small, and in it times are counted from now and numbers from the last grant: what a world may still
//! do depends on nothing else, so worlds that differ only in how long they have gone on are one. At each step the roll and the node
//! that it concerns are built from it, production code does what it does, and what came of that is written down again.
//!
//! What is bounded is how many messages are under way, how many reports are sent, how many ticks pass and how often
//! a process dies or a roll is lost. Within that, every order of steps is explored.

mod built;
mod cases;
mod plain;
mod seam;
mod steps;
#[cfg(test)]
mod tests;
mod world;

use core::time::Duration;

use stateright::{Model, Property};
use throttlekit_core::concurrency::division::{Combine, Fold, Split};

pub use cases::{assumptions, large, small};
pub use seam::Seam;
pub use steps::Step;
pub use world::World;

/// What a tick is.
const TICK: Duration = Duration::from_millis(1);
/// All together never run more than the ceiling.
const LAW: &str = "fleet-ceiling";

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
    /// Messages under way at once.
    pub letters: usize,
    /// Reports sent in all.
    pub reports: u8,
    /// How long it lasts.
    pub ticks: u8,
    /// How many processes die, each replaced by another.
    pub deaths: u8,
    /// How many say that they leave.
    pub leaves: u8,
    /// How often the roll is lost.
    pub losses: u8,
}

impl Fleet {
    fn fold(&self) -> Fold {
        let limit = u32::from(self.limit);
        let linger = if self.seam == Seam::LingerUntold { 0 } else { self.linger };
        Fold {
            combine: Combine::Min,
            split: self.split,
            initial: limit,
            most: limit,
            lives: TICK * u32::from(self.lives),
            linger: TICK * u32::from(linger),
        }
    }

    /// For how many ticks the fold remembers a node.
    fn remembered(&self) -> u8 {
        (self.fold().remembered().as_nanos() / TICK.as_nanos()) as u8
    }
}

impl Model for Fleet {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self), World::at_work(self)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.offer(self, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        world.after(self, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut laws = vec![
            Property::always("in flight within the ceiling", |fleet: &Self, world: &World| {
                world.in_flight() <= fleet.limit
            }),
            Property::sometimes("the ceiling is reached by all together", |fleet: &Self, world: &World| {
                world.in_flight() == fleet.limit && world.busy() == fleet.nodes.min(fleet.limit.into())
            }),
            Property::sometimes("more runs than the share", |fleet: &Self, world: &World| {
                world.someone_drains(fleet)
            }),
        ];
        if self.room.losses > 0 {
            laws.push(Property::sometimes("the ceiling is reached on a new roll", |fleet, world: &World| {
                world.is_new_roll() && world.in_flight() == fleet.limit
            }));
        }
        if self.split == Split::Demand {
            laws.push(Property::sometimes(
                "a share went over, and all use what they have",
                |fleet, world: &World| {
                    world.handed()
                        && world.in_flight() == fleet.limit
                        && world.busy() == fleet.nodes.min(fleet.limit.into())
                },
            ));
        }
        if self.room.ticks > self.lives {
            laws.push(Property::sometimes("a node is fenced", |_, world: &World| world.someone_is_fenced()));
        }
        laws
    }
}
