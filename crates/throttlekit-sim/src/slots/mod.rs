//! Fleets that share slots under faults, the same every time: one seed is one run, byte for byte.
//!
//! Even seeds are fleets under one ceiling, odd ones are holders of leased slots. Time is virtual, chance comes from the seed,
//! and every decision is production code: the rebalancer, the membership record and the node; the table and the hold.

mod bound;
mod ceiling;
mod clock;
mod held;
mod names;
mod queue;

pub use names::{Fault, Fired, SlotBug};

use crate::dice::Dice;

/// What came of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first invariant that was broken, and how.
    pub broken: Option<(&'static str, String)>,
    /// Asks that were answered by production code.
    pub decisions: u64,
    /// Asks that were admitted.
    pub admitted: u64,
    /// How often each fault fired.
    pub fired: Fired,
    /// Of everything that happened, in order.
    pub trace_hash: u64,
}

/// Runs the fleet of this seed, with a seeded bug or none, and tells what happens, a line each.
pub fn run(seed: u64, bug: Option<SlotBug>, tell: &mut dyn FnMut(String)) -> Report {
    let dice = Dice::new(seed);
    if seed.is_multiple_of(2) { ceiling::run(dice, bug, tell) } else { held::run(dice, bug, tell) }
}

/// Hunts a seeded bug through the seeds of its kind: how many it took, and which invariant was broken.
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
