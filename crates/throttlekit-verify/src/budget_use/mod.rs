//! `budget-use`: a token budget gets used, whatever was learned, and no key changes what another reserves.
//!
//! A victim runs streams of fifty tokens, one or several at a time, with a demand of one and a half times its
//! budget, and obeys the retry-after of denials. Attackers with keys of their own train the learners in every
//! way they can. In each minute
//!
//! > 0.95 · budget ≤ used ≤ budget + g − 1,
//!
//! where streams differ much in length 0.85 of it, since most reserve more than they need while they run. And
//! where keys learn separately, each reservation of the victim is exactly what it is without the attackers,
//! to the token.

mod paced;
mod scenario;
mod seam;

use throttlekit::budget::{Reservation, Reserve};

pub use paced::{Paced, use_windows};
pub use scenario::{Seen, run};
pub use seam::UseBug;

use throttlekit_conformance::bugs::Found;

/// The examined budgets, in tokens per minute.
pub const BUDGETS: [u64; 5] = [500, 1_000, 2_000, 4_000, 10_000];
/// The number of the victim's concurrent streams.
pub const AT_ONCE: [usize; 2] = [1, 8];
/// The minimum part of a budget that is used in each minute, in twentieths: where streams are of one length,
/// and where they differ.
const USED_MIN_20THS: [u64; 2] = [19, 17];
/// The tokens of one debit: g.
pub const CHUNK: u64 = 10;
/// The tokens of one stream.
pub const STREAM: u64 = 50;
/// One stream in `LONG.0` has `LONG.1` tokens in mixed scenarios.
const LONG: (u64, u64) = (8, 400);

/// The learner of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learns {
    /// The default of a budget.
    Default,
    /// One learner for each key, with few learners.
    PerKey,
    /// One learner for all keys.
    Shared,
}

/// The behavior of attackers, with new keys each minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Nothing.
    None,
    /// Attackers open streams and drop them.
    Free,
    /// Attackers use one token more than is reserved for them.
    Paid,
}

/// A scenario to examine.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Tokens per minute for each key.
    pub budget: u64,
    /// The victim's concurrent streams.
    pub at_once: usize,
    /// The learner of reservations.
    pub learns: Learns,
    /// The behavior of attackers.
    pub attack: Attack,
    /// True if some streams of the victim are eight times as long, so that too much is reserved for most.
    pub mixed: bool,
}

impl Learns {
    fn reserve(self) -> Reserve {
        match self {
            Self::Default => Reserve::default(),
            Self::PerKey => Reserve::PerKey { fresh: Reservation::default(), keys_max: 1_024 },
            Self::Shared => Reserve::Learned(Reservation::default()),
        }
    }
}

impl Scenario {
    /// Returns all scenarios.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for learns in [Learns::Default, Learns::PerKey, Learns::Shared] {
            for attack in [Attack::None, Attack::Free, Attack::Paid] {
                for at_once in AT_ONCE {
                    all.extend(BUDGETS.map(|budget| Self { budget, at_once, learns, attack, mixed: false }));
                }
            }
        }
        let mixed = |scenario: &Self| scenario.attack == Attack::None && scenario.learns == Learns::Default;
        let mixed: Vec<_> =
            all.iter().copied().filter(mixed).map(|one| Self { mixed: true, ..one }).collect();
        all.extend(mixed);
        all
    }

    /// Returns the length of a stream of the victim.
    fn length(&self, stream: u64) -> u64 {
        if self.mixed && stream.is_multiple_of(LONG.0) { LONG.1 } else { STREAM }
    }

    /// Runs the scenario for `minutes`, with a bug if there is one. Returns the use and the first violation.
    pub fn examine(&self, minutes: u64, bug: Option<UseBug>) -> (Seen, Option<String>) {
        let seen = run(self, minutes, bug);
        let broken = self.check_use(&seen).and_then(|()| self.check_isolation(&seen, minutes, bug)).err();
        (seen, broken.map(|counterexample| format!("{self:?}: {counterexample}")))
    }

    fn check_use(&self, seen: &Seen) -> Result<(), String> {
        let budget = self.budget;
        if seen.waits_too_long > 0 {
            return Err(format!("{} denials said to wait for the window", seen.waits_too_long));
        }
        for (used, minute) in seen.used.iter().zip(1..) {
            if used * 20 < budget * USED_MIN_20THS[usize::from(self.mixed)] || *used >= budget + CHUNK {
                return Err(format!("{used} of {budget} used in minute {minute}"));
            }
        }
        Ok(())
    }

    /// Checks that attackers change nothing where keys learn separately.
    fn check_isolation(&self, seen: &Seen, minutes: u64, bug: Option<UseBug>) -> Result<(), String> {
        if self.attack == Attack::None || self.learns == Learns::Shared {
            return Ok(());
        }
        let alone = run(&Self { attack: Attack::None, ..*self }, minutes, bug);
        let differ = alone.reserved.iter().zip(&seen.reserved).position(|(alone, seen)| alone != seen);
        match differ {
            Some(i) => Err(format!(
                "{} reserved for stream {i} of the victim, and {} without the attackers",
                seen.reserved[i], alone.reserved[i]
            )),
            None if alone.reserved.len() != seen.reserved.len() => Err("other streams began".into()),
            None => Ok(()),
        }
    }
}

/// Searches for the seeded bugs in a few minutes of every scenario.
pub fn find_seeded(minutes: u64) -> Found {
    Found::all(|bug: UseBug| {
        Scenario::all().iter().any(|scenario| scenario.examine(minutes, Some(bug)).1.is_some())
    })
}
