//! Deterministic simulations of nodes that share slots under faults: the same seed gives the same run, byte
//! for byte.
//!
//! Even seeds are nodes under one ceiling, odd ones are holders of leased slots. Time is virtual, randomness
//! comes from the seed, and every decision is production code: the rebalancer, the membership record and the
//! node; the table and the hold.

mod bound;
mod ceiling;
mod clock;
mod held;
mod names;
mod queue;

pub use names::{Fault, Fired, SlotBug};

use crate::dice::Dice;

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first invariant that was broken, with details.
    pub broken: Option<(&'static str, String)>,
    /// Requests decided by production code.
    pub decisions: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// The number of times each fault fired.
    pub fired: Fired,
    /// A hash of all events, in order.
    pub trace_hash: u64,
}

/// Runs the simulation of this seed, with a seeded bug or none, and reports every event, one line each.
pub fn run(seed: u64, bug: Option<SlotBug>, tell: &mut dyn FnMut(String)) -> Report {
    let dice = Dice::new(seed);
    if seed.is_multiple_of(2) { ceiling::run(dice, bug, tell) } else { held::run(dice, bug, tell) }
}

/// Searches the seeds of its kind for a seeded bug. Returns the number of seeds tried and the invariant that
/// was broken.
pub fn hunt(bug: SlotBug, seeds_max: u64) -> Option<(u64, &'static str)> {
    let kind = u64::from(!bug.is_of_ceiling());
    let broken = |seed: u64| run(2 * seed + kind, Some(bug), &mut |_| ()).broken;
    (0..seeds_max).find_map(|seed| broken(seed).map(|(invariant, _)| (seed + 1, invariant)))
}

impl Report {
    fn break_invariant(&mut self, invariant: &'static str, how: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some((invariant, how()));
        }
    }

    fn note(&mut self, at: u64, what: u64) {
        for word in [at, what] {
            self.trace_hash = (self.trace_hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }
}
