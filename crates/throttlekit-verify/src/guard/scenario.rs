//! Random sequences of all operations on slots, compared with the reference implementation.

use super::{Caller, Goes, Holds, Naive, Seen, SlotBug, Told};
use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::{Check, ensure};

const STEPS: usize = 200;
const CALLERS: usize = 14;

/// The configuration of slots.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The initial limit.
    pub limit: u32,
    /// The part reserved from each priority after the first, in thousandths; never less than from the one
    /// before.
    pub kept: Vec<u16>,
    /// The queue size of each priority.
    pub queue_max: u32,
}

impl Setup {
    /// Draws a configuration.
    pub fn roll(dice: &mut Dice) -> Self {
        let mut kept: Vec<u16> = (0..dice.below(3)).map(|_| dice.pick(&[0, 100, 250, 500, 999])).collect();
        kept.sort_unstable();
        Self { limit: dice.below(6) as u32, kept, queue_max: dice.pick(&[0, 1, 2, 4]) }
    }
}

/// The state of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    Waiting,
    Working,
}

/// Runs `scenarios` scenarios. Returns the first few violations.
pub fn examine<S: Holds>(scenarios: u64, make: impl Fn(&Setup) -> S) -> Vec<String> {
    (0..scenarios).filter_map(|seed| play(seed, &make).err()).take(3).collect()
}

/// Searches for the seeded bugs in these scenarios.
pub fn find_seeded(scenarios: u64) -> Found {
    Found::all(|bug: SlotBug| !examine(scenarios, |setup| Naive::new(setup, Some(bug))).is_empty())
}

fn play<S: Holds>(seed: u64, make: impl Fn(&Setup) -> S) -> Check {
    let mut dice = Dice::new(seed);
    let setup = Setup::roll(&mut dice);
    let mut scenario = Scenario {
        subject: make(&setup),
        plain: Naive::new(&setup, None),
        doing: [Doing::Nothing; CALLERS],
        priorities: setup.kept.len() + 1,
        dice,
    };
    for step in 0..STEPS {
        let (what, same) = scenario.step();
        ensure(same, || format!("scenario {seed}, step {step}: {what}; {setup:?}"))?;
        let (subject, plain) = (scenario.subject.see(), scenario.plain.see());
        ensure(subject == plain, || {
            format!("scenario {seed}, step {step}: after {what} {subject:?} instead of {plain:?}; {setup:?}")
        })?;
    }
    let rest = scenario.rest();
    ensure(rest.in_flight == 0 && rest.waiting == 0, || format!("scenario {seed}: at rest {rest:?}"))
}

struct Scenario<S> {
    subject: S,
    plain: Naive,
    doing: [Doing; CALLERS],
    priorities: usize,
    dice: Dice,
}

impl<S: Holds> Scenario<S> {
    /// Applies one random operation. Returns its description, and `true` if both responses are equal.
    fn step(&mut self) -> (String, bool) {
        if self.dice.once_in(8) {
            let limit = self.dice.below(6) as u32;
            self.subject.set_limit(limit);
            self.plain.set_limit(limit);
            return (format!("limit {limit}"), true);
        }
        let who = self.dice.below(CALLERS as u64) as Caller;
        match self.doing[who] {
            Doing::Nothing => self.asks(who),
            Doing::Waiting => self.waits(who),
            Doing::Working => self.goes(who),
        }
    }

    fn asks(&mut self, who: Caller) -> (String, bool) {
        let priority = self.dice.below(self.priorities as u64) as usize;
        let told = if self.dice.once_in(3) {
            [self.subject.ask(who, priority), self.plain.ask(who, priority)]
        } else {
            [self.subject.wait(who, priority), self.plain.wait(who, priority)]
        };
        self.told(who, told, "asks")
    }

    fn waits(&mut self, who: Caller) -> (String, bool) {
        if self.dice.once_in(3) {
            self.subject.give_up(who);
            self.plain.give_up(who);
            self.doing[who] = Doing::Nothing;
            return (format!("{who} gives up"), true);
        }
        let told = [self.subject.poll(who), self.plain.poll(who)];
        self.told(who, told, "looks")
    }

    fn goes(&mut self, who: Caller) -> (String, bool) {
        let all = [Goes::Success, Goes::Dropped, Goes::Ignored, Goes::Cancelled, Goes::Panicked];
        let how = self.dice.pick(&all);
        self.subject.go(who, how);
        self.plain.go(who, how);
        self.doing[who] = Doing::Nothing;
        (format!("{who} goes: {how:?}"), true)
    }

    fn told(&mut self, who: Caller, [subject, plain]: [Told; 2], what: &str) -> (String, bool) {
        self.doing[who] = match subject {
            Told::Come => Doing::Working,
            Told::Wait => Doing::Waiting,
            Told::Full => Doing::Nothing,
        };
        (format!("{who} {what}: {subject:?}, should be {plain:?}"), subject == plain)
    }

    /// Ends all callers.
    fn rest(&mut self) -> Seen {
        for who in 0..CALLERS {
            match self.doing[who] {
                Doing::Nothing => {}
                Doing::Waiting => self.subject.give_up(who),
                Doing::Working => self.subject.go(who, Goes::Cancelled),
            }
        }
        self.subject.see()
    }
}
