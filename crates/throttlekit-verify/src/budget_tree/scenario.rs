//! Random budgets, and calls that draw on them.

use std::collections::BTreeSet;
use std::time::Duration;

use throttlekit::{Budget, Limit};
use throttlekit_conformance::Dice;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than any run on an engine.
const LONG: Duration = Duration::from_secs(10_000 * 86_400);
/// Keys of runs beyond the first that a call may draw on.
const ANCESTORS: usize = 2;
const CHUNK_MAX: u64 = 9;
/// Most budgets of a scenario. With the ancestors of a run, the most limits that a call may have.
const LEVELS_MAX: u64 = 13;

/// One budget of a policy.
#[derive(Clone, Debug)]
pub struct Level {
    /// Name among those of the policy.
    pub name: String,
    /// Number of tokens.
    pub budget: u64,
    /// Length of its windows; `None` if its tokens never come back.
    pub window: Option<Duration>,
    /// Indexes of the keys that it counts by, in the same counts.
    pub by: Vec<usize>,
}

/// One step of a caller.
#[derive(Clone, Debug)]
pub enum Step {
    /// A debit.
    Debit {
        /// Keys of the call.
        keys: Vec<&'static str>,
        /// Tokens.
        tokens: u64,
    },
    /// Work that reserves an estimate, produces chunks and is settled.
    Work {
        /// Keys of the call.
        keys: Vec<&'static str>,
        /// Estimated tokens.
        estimate: u64,
        /// Chunks that it produces.
        chunks: Vec<u64>,
        /// Time before it is settled.
        takes: Duration,
    },
    /// Time passes.
    Wait(Duration),
}

/// Budgets and steps.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The budgets, which every call draws on.
    pub levels: Vec<Level>,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Level {
    /// Returns the limit.
    pub fn limit(&self) -> Limit {
        let budget = match self.window {
            Some(window) => Budget::per(self.budget, window),
            None => Budget::total(self.budget),
        };
        budget.tokens().expect("a budget")
    }

    /// Returns the keys of a call that it counts, each once.
    pub fn keys<'a>(&self, keys: &[&'a str]) -> BTreeSet<&'a str> {
        let (first, others) = self.by.split_first().expect("at least one key");
        let others = others.iter().map(|by| keys[*by]).filter(|key| !key.is_empty());
        std::iter::once(keys[*first]).chain(others).collect()
    }
}

impl Scenario {
    /// Generates the scenario of this seed. On an engine, no window ends.
    pub fn of(seed: u64, on_engine: bool) -> Self {
        let mut dice = Dice::new(seed);
        let count = if dice.once_in(8) { dice.between(5, LEVELS_MAX) } else { dice.between(2, 4) } as usize;
        let mut levels: Vec<Level> = (0..count).map(|by| level(&mut dice, by, on_engine)).collect();
        if dice.once_in(2) {
            let runs = levels.last_mut().expect("two levels at least");
            runs.by.extend((0..ANCESTORS).map(|before| count + before));
        }
        let keys = levels.iter().flat_map(|level| &level.by).max().map_or(1, |last| last + 1);
        let steps = (0..dice.between(4, 24)).map(|_| step(&mut dice, count, keys, on_engine)).collect();
        Self { levels, steps }
    }

    /// Returns the largest number of tokens that one call draws at once.
    pub fn largest(&self) -> u64 {
        let of = |step: &Step| match step {
            Step::Debit { tokens, .. } => *tokens,
            Step::Work { chunks, .. } => chunks.iter().copied().max().unwrap_or(0),
            Step::Wait(_) => 0,
        };
        self.steps.iter().map(of).max().unwrap_or(0).max(1)
    }
}

fn level(dice: &mut Dice, by: usize, on_engine: bool) -> Level {
    let windows = if on_engine { [None, Some(LONG), Some(LONG)] } else { [None, Some(MINUTE), Some(HOUR)] };
    Level { name: format!("l{by}"), budget: dice.between(1, 60), window: dice.pick(&windows), by: vec![by] }
}

fn step(dice: &mut Dice, named: usize, keys: usize, on_engine: bool) -> Step {
    let key = |(index, dice): (usize, &mut Dice)| {
        if index < named { dice.pick(&["a", "b"]) } else { dice.pick(&["", "a", "b", "c"]) }
    };
    let mut call = Vec::with_capacity(keys);
    for index in 0..keys {
        call.push(key((index, dice)));
    }
    let takes = |dice: &mut Dice| Duration::from_secs(if on_engine { 0 } else { dice.below(90) });
    match dice.below(5) {
        0 if !on_engine => Step::Wait(takes(dice)),
        0..=2 => Step::Debit { keys: call, tokens: dice.between(1, CHUNK_MAX) },
        _ => Step::Work {
            keys: call,
            estimate: dice.between(1, 20),
            chunks: (0..dice.below(5)).map(|_| dice.between(1, CHUNK_MAX)).collect(),
            takes: if dice.once_in(3) { takes(dice) } else { Duration::ZERO },
        },
    }
}
