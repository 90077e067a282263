//! The demand of a node's callers: in phases, which are windows where there are any.
//!
//! | phase | demand |
//! |---|---|
//! | light | a quarter of the limit: units leased here and kept would exceed it in the next phase |
//! | brisk | far above the limit: it is exhausted in an instant |
//! | steady | somewhat above the limit; one node in four stops early and its units are used by the others |

use std::time::Duration;

use throttlekit_conformance::Dice;

use super::Plan;

const PHASES: u64 = 3;
/// The units that all callers of a node request in one round: see `node.rs`.
const UNITS_PER_ROUND: u64 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Light,
    Brisk,
    Steady,
}

/// Returns the kind of a phase, by its number since the epoch.
pub(crate) fn phase(number: u64) -> Phase {
    match number % PHASES {
        0 => Phase::Light,
        1 => Phase::Brisk,
        _ => Phase::Steady,
    }
}

/// The demand of one node's callers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    node: u64,
    /// The length of a phase, in microseconds, like all times here.
    length: u64,
    /// The pause between two requests of a caller at which all nodes together request exactly the limit.
    even_pause: u64,
}

impl Demand {
    pub(crate) fn of(plan: &Plan, node: usize) -> Self {
        let length = plan.rule.phase().as_micros() as u64;
        let per_round = plan.nodes.len() as u64 * UNITS_PER_ROUND;
        Self { node: node as u64, length, even_pause: length * per_round / plan.rule.units_per_phase() }
    }

    /// Returns the pause of a caller before its next request.
    pub(crate) fn pause(&self, now: u64, admitted: bool, dice: &mut Dice) -> Duration {
        let (number, gone) = (now / self.length, now % self.length);
        // All callers are back in the first tenth of the next phase.
        let rest = self.length - gone + dice.below(self.length / 10);
        let about = |micros: u64, dice: &mut Dice| dice.between(micros / 2, micros * 3 / 2).min(rest);
        let micros = match phase(number) {
            Phase::Light => about(self.even_pause * 4, dice),
            Phase::Steady if self.stops_early(number) => match gone < self.length / 5 {
                true => about(10_000, dice),
                false => rest,
            },
            Phase::Steady if admitted => about(self.even_pause * 2 / 3, dice),
            Phase::Brisk if admitted => u64::from(dice.once_in(4)) * 1_000,
            Phase::Steady | Phase::Brisk => dice.between(2_000, 4_000),
        };
        Duration::from_micros(micros)
    }

    fn stops_early(&self, phase: u64) -> bool {
        (phase / PHASES + self.node).is_multiple_of(4)
    }
}
