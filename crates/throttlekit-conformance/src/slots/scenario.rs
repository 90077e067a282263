//! Random calls about the slots of one key, over time.

use std::time::Duration;

use throttlekit::rate::Timestamp;

use crate::Dice;
use crate::runner::without_each;

const OPERATIONS_MAX: u64 = 60;
/// Few leases, so that calls conflict.
const LEASES: u64 = 5;
const OWNERS: u64 = 2;
/// Lease durations and waits are multiples of this, so that time stops at the ends of leases.
const STEP: Duration = Duration::from_millis(10);

/// The slots of a key and the operations on them.
#[derive(Clone, Debug)]
pub struct SlotScenario {
    /// Replays it.
    pub seed: u64,
    /// Start time.
    pub start: Timestamp,
    /// The operations, in order.
    pub operations: Vec<SlotOperation>,
}

/// An operation. A lease and an owner are numbers, from which a scenario makes ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOperation {
    /// Time passes.
    Advance(Duration),
    /// The clock is set back.
    StepBack(Duration),
    /// Requests a slot, perhaps repeatedly.
    Acquire {
        /// The lease.
        lease: u128,
        /// The owner.
        owner: u128,
        /// The limit.
        most: u32,
        /// Duration of the lease.
        lives: Duration,
    },
    /// Sends a heartbeat for leases, own or not, held or not.
    Heartbeat {
        /// The leases.
        leases: Vec<u128>,
        /// The owner.
        owner: u128,
        /// New duration of the leases.
        lives: Duration,
    },
    /// Releases leases, own or not, held or not.
    Release {
        /// The leases.
        leases: Vec<u128>,
        /// The owner.
        owner: u128,
    },
    /// Reads the number of held slots.
    Look,
}

impl SlotScenario {
    /// Generates the scenario of this seed.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let most = dice.between(1, 4) as u32;
        let steps = dice.between(1, 6);
        let count = dice.between(1, OPERATIONS_MAX);
        let operations = (0..count).map(|_| roll_operation(&mut dice, most, steps)).collect();
        let start = Timestamp::from_micros(1_700_000_000_000_000 + dice.below(1 << 45));
        Self { seed, start, operations }
    }

    /// Returns the same with one operation less.
    pub(super) fn smaller(&self) -> impl Iterator<Item = Self> + '_ {
        without_each(&self.operations).map(|operations| Self { operations, ..self.clone() })
    }
}

fn roll_operation(dice: &mut Dice, most: u32, steps: u64) -> SlotOperation {
    let owner = u128::from(dice.below(OWNERS));
    match dice.below(20) {
        0..=3 => SlotOperation::Advance(roll_wait(dice, steps)),
        4 => SlotOperation::StepBack(roll_wait(dice, 2 * steps)),
        5..=11 => SlotOperation::Acquire {
            lease: dice.below(LEASES).into(),
            owner,
            // The limit changes now and then, also to zero and to more than the maximum.
            most: match dice.below(12) {
                0 => dice.pick(&[0, 1, 2, u32::MAX]),
                1 => most + 1,
                _ => most,
            },
            lives: roll_life(dice, steps),
        },
        12..=15 => {
            SlotOperation::Heartbeat { leases: roll_leases(dice), owner, lives: roll_life(dice, steps) }
        }
        16..=18 => SlotOperation::Release { leases: roll_leases(dice), owner },
        _ => SlotOperation::Look,
    }
}

fn roll_leases(dice: &mut Dice) -> Vec<u128> {
    (0..dice.between(1, 3)).map(|_| dice.below(LEASES).into()).collect()
}

fn roll_life(dice: &mut Dice, steps: u64) -> Duration {
    STEP * if dice.once_in(6) { dice.between(1, 2 * steps) } else { steps } as u32
}

/// Returns a wait to the end of a lease, just before or just after it, or longer than any lease.
fn roll_wait(dice: &mut Dice, steps: u64) -> Duration {
    let wait = STEP * dice.between(1, steps) as u32;
    let micro = Duration::from_micros(1);
    match dice.below(8) {
        0 => wait - micro,
        1 => wait + micro,
        2 => micro,
        3 => STEP * 20,
        _ => wait,
    }
}
