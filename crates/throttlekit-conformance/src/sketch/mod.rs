//! `sketch`: whoever is allowed has been admitted no more than the limit, always; who is denied early is denied within
//! ε·N with probability 1 − δ; merged sketches are the sketch of everything.
//!
//! As with the other laws, a check is a function of the limiter under test; the same one judges those that ship and
//! those with a planted bug.

mod early;
mod equal_bytes;
mod merge;
mod planted;
mod safety;
mod subject;
mod threads;
mod traffic;

pub use early::{Early, early_denials};
pub use equal_bytes::{Contest, FLOODS, contest};
pub use merge::check_merge;
pub use planted::{MERGE_BUGS, SKETCH_BUGS, SketchBug};
pub use safety::{Tally, check_alone, check_world};
pub use subject::{Config, Kind, SharedShield, Shield, shipped};
pub use threads::check_threads;
pub use traffic::Traffic;

use crate::Dice;

/// What a check says when it fails.
type Check = Result<(), String>;

/// How much to examine.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Worlds of adversarial traffic for one limiter.
    pub worlds: u64,
    /// Asks in each.
    pub asks: u64,
    /// Secrets with which the error is measured.
    pub secrets: u64,
    /// Fleets of 64 nodes.
    pub fleets: u64,
    /// Asks by each of two threads.
    pub thread_asks: u64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What was offered and admitted.
    pub tally: Tally,
    /// How often a key was counted too high.
    pub early: Vec<Early>,
    /// What does not hold.
    pub violations: Vec<String>,
}

/// What is not told again when there is more of it.
const VIOLATIONS_MAX: usize = 3;

/// Examines the limiters that ship. `told` hears of each world that is done.
pub fn examine(size: Size, told: impl Fn(Tally)) -> Findings {
    let mut found = Findings::default();
    for kind in Kind::ALL {
        found.add(examine_shield(kind, size, &told, |config| shipped(kind, config)));
        found.note(check_threads(kind, size.thread_asks, subject::shared));
    }
    found.note(check_merge(size.fleets, |into, from| into.merge(from).is_ok()));
    found
}

/// The planted bugs that the same checks find, and those they do not.
pub fn examine_planted(size: Size) -> (Vec<&'static str>, Vec<&'static str>) {
    let sketches = SKETCH_BUGS.map(|(name, bug)| {
        (name, examine_shield(bug.kind(), size, |_| (), |config| planted::shield(bug, config)).violations)
    });
    let merges =
        MERGE_BUGS.map(|(name, merge)| (name, check_merge(size.fleets, merge).err().into_iter().collect()));
    let racy = check_threads(Kind::Sketch, size.thread_asks, |_, config| planted::racy(config));
    let racy = ("two_decide_on_one_count", racy.err().into_iter().collect::<Vec<_>>());
    let all = sketches.into_iter().chain(merges).chain([racy]);
    let (missed, found): (Vec<_>, Vec<_>) = all.partition(|(_, violations)| violations.is_empty());
    let names = |of: Vec<(&'static str, _)>| of.into_iter().map(|(name, _)| name).collect();
    (names(found), names(missed))
}

/// Every check of a limiter on one thread: worlds of floods, then, if nothing was found in those, its error.
pub fn examine_shield(
    kind: Kind,
    size: Size,
    told: impl Fn(Tally),
    make: impl Fn(&Config) -> Box<dyn Shield>,
) -> Findings {
    let mut found = Findings::default();
    for seed in 0..size.worlds {
        let mut dice = Dice::new(seed);
        let config = Config::random(kind, &mut dice);
        let played = check_world(&config, &mut *make(&config), &mut dice, size.asks).map(|tally| {
            told(tally);
            found.tally.add(tally);
        });
        let alone = check_alone(&config, &mut *make(&config), &mut dice);
        for check in [played, alone] {
            found.note(check.map_err(|story| format!("{kind:?}, world {seed}: {story}")));
        }
        if found.violations.len() >= VIOLATIONS_MAX {
            return found;
        }
    }
    if found.violations.is_empty() {
        found.early = early_denials(kind, size.secrets, make);
        found.violations.extend(found.early.iter().filter_map(|early| early.check().err()));
    }
    found
}

impl Findings {
    fn note(&mut self, check: Check) {
        self.violations.extend(check.err());
    }

    fn add(&mut self, more: Self) {
        self.tally.add(more.tally);
        self.early.extend(more.early);
        self.violations.extend(more.violations);
    }
}

/// `Ok` if the promise holds, else the story.
fn ensure(holds: bool, story: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(story()) }
}
