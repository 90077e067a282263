//! `fleet-rolls`: whoever keeps the rolls of fleets swaps them as the memory does, and loses no beat of a race.
//!
//! * [`examine_rolls`] plays timelines of loads and swaps to a [`RollStore`](throttlekit::store::RollStore) and to a plain
//!   map, and compares every answer.
//! * [`race`] lets nodes beat at once and replays what they were granted, in the order of its numbers, on the pure fold.

mod race;
mod same;
mod seeded;
mod world;

pub use race::{Race, find_in_race, race};
pub use same::{RollReport, examine_rolls, find_roll_bug};
pub use seeded::{RollBug, SeededRolls};
pub use world::{RollOperation, RollWorld};
