//! The fleets that are explored, and how many states each has.

use throttlekit_core::concurrency::fleet::Split;

use super::{Fleet, LAW, Room, Seam};
use crate::models::case::{Case, tell};
use crate::models::counter_examples::CounterExample;

const QUIET: Room = Room { letters: 2, reports: 4, ticks: 0, deaths: 0, leaves: 0, losses: 0 };
const THREE: Fleet =
    Fleet { nodes: 3, limit: 3, split: Split::Equal, lives: 2, linger: 1, room: QUIET, seam: Seam::Sound };
const TWO: Fleet = Fleet { nodes: 2, limit: 2, ..THREE };

/// Fleets that are explored within seconds.
pub fn small() -> Vec<Case> {
    vec![case("N2 L2", 0, TWO)]
}

/// Fleets that take minutes together.
pub fn large() -> Vec<Case> {
    vec![case("N3 L3", 0, THREE)]
}

fn case(name: &'static str, states: usize, fleet: Fleet) -> Case {
    Case::new(LAW, name, fleet.limit, states, fleet)
}

/// One assumption removed at a time, and the shortest story in which the ceiling breaks.
pub fn counter_examples() -> Vec<CounterExample> {
    vec![tell("x", LAW, &Fleet { seam: Seam::TornReport, ..TWO })]
}
