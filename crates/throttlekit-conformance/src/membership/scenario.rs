//! Random loads and swaps over time.

use std::time::Duration;

use throttlekit::rate::Timestamp;

use crate::Dice;
use crate::runner::without_each;

const OPERATIONS_MAX: u64 = 40;
pub(super) const KEYS: usize = 3;

/// A few membership records and the operations on them.
#[derive(Clone, Debug)]
pub struct MembershipScenario {
    /// Replays it.
    pub seed: u64,
    /// Start time.
    pub start: Timestamp,
    /// The operations, in order.
    pub operations: Vec<MembershipOperation>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipOperation {
    /// Time passes.
    Advance(Duration),
    /// The clock is set back.
    StepBack(Duration),
    /// Loads a record, and stores the version.
    Load(usize),
    /// Swaps from the version of an earlier load.
    Swap {
        /// The record.
        key: usize,
        /// Number of loads since that version.
        ago: usize,
        /// The next value: any bytes, as a store does not parse it.
        bytes: Vec<u8>,
        /// Time that it is kept.
        keeps: Duration,
    },
    /// Swaps from a version that may never have existed.
    Guess(usize, u64),
    /// The record is lost.
    Reset(usize),
}

impl MembershipScenario {
    /// Generates the scenario of this seed.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let count = dice.between(1, OPERATIONS_MAX);
        let operations = (0..count).map(|_| roll_operation(&mut dice)).collect();
        let start = Timestamp::from_micros(1_700_000_000_000_000 + dice.below(1 << 45));
        Self { seed, start, operations }
    }

    /// Returns the same with one operation less.
    pub(super) fn smaller(&self) -> impl Iterator<Item = Self> + '_ {
        without_each(&self.operations).map(|operations| Self { operations, ..self.clone() })
    }
}

fn roll_operation(dice: &mut Dice) -> MembershipOperation {
    let key = dice.below(KEYS as u64) as usize;
    // Whole microseconds, as the clock of a store has.
    let time = |dice: &mut Dice| Duration::from_micros(dice.any_size(200_000_000_000));
    match dice.below(20) {
        0..4 => MembershipOperation::Advance(time(dice)),
        4 => MembershipOperation::StepBack(time(dice)),
        5..10 => MembershipOperation::Load(key),
        10 => MembershipOperation::Guess(key, dice.any_size(u64::MAX >> 1)),
        11 => MembershipOperation::Reset(key),
        _ => {
            let ago = if dice.once_in(3) { dice.below(4) as usize } else { 0 };
            // An expired record may be dropped, but is not before its memory is needed. An engine counts by its own
            // time, which is shorter than any of these.
            let keeps = Duration::from_secs(dice.pick(&[60, 3_600, 86_400]));
            MembershipOperation::Swap { key, ago, bytes: roll_bytes(dice), keeps }
        }
    }
}

/// Returns bytes that need escaping: none, zeros, line ends, spaces, numbers, invalid text.
fn roll_bytes(dice: &mut Dice) -> Vec<u8> {
    let length = dice.pick(&[0, 1, 2, 7, 61, 300]);
    let mut bytes: Vec<u8> = (0..length).map(|_| dice.roll() as u8).collect();
    if dice.once_in(3) {
        bytes.splice(0..0, *dice.pick(&[b"\0\0\0", b" 7 ", b"\r\n1", b"-1 ", b"\xff\xfe\xfd"]));
    }
    bytes
}
