//! Plays scenarios: one step after another beside the model, or many callers at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{DebitId, MemoryStore, Store};

use super::model::{Model, Node};
use super::scenario::{Scenario, Step};
use super::subject::{Subject, TreeBug};

/// A minute before an hour ends.
const BEGIN: Timestamp = Timestamp::from_millis(1_799_999_940_000);
/// Callers that draw on the same budgets at once.
const CALLERS: usize = 4;

/// The event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Scenarios.
    pub scenarios: u64,
    /// Debits that were allowed.
    pub debits: u64,
    /// Work that was admitted.
    pub admitted: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Budgets that ended above their number of tokens.
    pub crossed: u64,
    /// Calls on a run and a run that it is a part of.
    pub trees: u64,
}

impl Played {
    /// Adds another result.
    pub fn add(&mut self, other: &Self) {
        let Self { scenarios, debits, admitted, denied, crossed, trees } = other;
        self.scenarios += scenarios;
        self.debits += debits;
        self.admitted += admitted;
        self.denied += denied;
        self.crossed += crossed;
        self.trees += trees;
    }

    /// Returns the names of what never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        let Self { debits, admitted, denied, crossed, trees, .. } = *self;
        let counts = [
            ("debits", debits),
            ("admitted", admitted),
            ("denied", denied),
            ("crossed", crossed),
            ("trees", trees),
        ];
        counts.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }
}

/// Plays the scenarios of these seeds in memory, beside the model.
pub fn examine(seeds: Range<u64>) -> Result<Played, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut all = Played::default();
    for seed in seeds {
        all.add(&runtime.block_on(one(seed, None)).map_err(|wrong| format!("seed {seed}: {wrong}"))?);
    }
    Ok(all)
}

/// Returns the number of scenarios until the bug is found, if at most `max` suffice.
pub fn find_seeded(bug: TreeBug, max: u64) -> Option<(u64, &'static str)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let found = (0..max).find(|seed| runtime.block_on(one(*seed, Some(bug))).is_err());
    found.map(|seed| (seed + 1, "budget-tree"))
}

async fn one(seed: u64, bug: Option<TreeBug>) -> Result<Played, String> {
    let (scenario, clock) = (Scenario::of(seed, false), ManualClock::at(BEGIN));
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let subject = Subject::new(&store, "tree", &scenario, seed, bug);
    let mut play =
        Play { scenario: &scenario, subject, clock, model: Model::default(), played: Played::default() };
    for (number, step) in (1..).zip(&scenario.steps) {
        let id = DebitId { stream: u128::from(seed) + 1, number };
        play.step(step, id).await.map_err(|wrong| format!("step {number}, {step:?}: {wrong}"))?;
    }
    play.compare().await?;
    play.played.scenarios = 1;
    Ok(play.played)
}

struct Play<'a> {
    scenario: &'a Scenario,
    subject: Subject<MemoryStore<ManualClock>>,
    clock: ManualClock,
    model: Model,
    played: Played,
}

impl Play<'_> {
    async fn step(&mut self, step: &Step, id: DebitId) -> Result<(), String> {
        match step {
            Step::Wait(time) => self.clock.advance(*time),
            Step::Debit { keys, tokens } => {
                let nodes = self.nodes(keys);
                let should = self.model.admits_chunk(self.scenario, &nodes, self.clock.now());
                self.decided(should, self.subject.debit(keys, *tokens, id).await)?;
                if should {
                    self.played.debits += 1;
                    self.model.charge(self.scenario, &nodes, *tokens, self.clock.now());
                }
            }
            Step::Work { .. } => self.work(step).await?,
        }
        Ok(())
    }

    async fn work(&mut self, step: &Step) -> Result<(), String> {
        let Step::Work { keys, estimate, chunks, takes } = step else { return Ok(()) };
        let (nodes, begun) = (self.nodes(keys), self.clock.now());
        let should = self.model.admits_all(self.scenario, &nodes, *estimate, begun);
        let permit = self.subject.admit(keys, *estimate).await;
        self.decided(should, permit.is_some())?;
        let Some(mut permit) = permit else { return Ok(()) };
        self.played.admitted += 1;
        self.model.charge(self.scenario, &nodes, *estimate, begun);
        let mut unused = *estimate;
        for chunk in chunks {
            let (covered, now) = (unused.min(*chunk), self.clock.now());
            let beyond = chunk - covered;
            let should = beyond == 0 || self.model.admits_chunk(self.scenario, &nodes, now);
            let debit = permit.debit(*chunk).await.map_err(|error| error.to_string())?;
            self.decided(should, debit.allowed)?;
            if should {
                unused -= covered;
                self.model.charge(self.scenario, &nodes, beyond, now);
            }
        }
        self.clock.advance(*takes);
        self.model.refund(self.scenario, &nodes, unused, begun);
        self.subject.settle(keys, permit, unused).await.map_err(|error| error.to_string())
    }

    fn nodes(&mut self, keys: &[&'static str]) -> Vec<Node> {
        let nodes = Model::nodes(self.scenario, keys);
        self.played.trees += u64::from(nodes.len() > self.scenario.levels.len());
        nodes
    }

    fn decided(&mut self, should: bool, is: bool) -> Result<(), String> {
        self.played.denied += u64::from(!is);
        if should == is {
            return Ok(());
        }
        Err(format!("allowed: {is}, although the budgets say {should}"))
    }

    async fn compare(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        for node in self.model.charged().collect::<Vec<_>>() {
            let (has, should) =
                (self.subject.charged(self.scenario, node).await, self.model.used(self.scenario, node, now));
            if has != should {
                return Err(format!("{node:?} was charged {has} tokens, expected {should}"));
            }
            self.played.crossed += u64::from(within(self.scenario, node, has)?);
        }
        Ok(())
    }
}

/// Checks the bound of a budget. Returns whether it was crossed.
fn within(scenario: &Scenario, node: Node, charged: u64) -> Result<bool, String> {
    let (budget, chunk) = (scenario.levels[node.0].budget, scenario.largest());
    if charged > budget + chunk - 1 {
        return Err(format!("{node:?}: {charged} tokens of {budget}, with chunks of {chunk} at most"));
    }
    Ok(charged > budget)
}

/// Lets several callers draw on the budgets of this seed at once, on a store of any kind. The policy's name must be new
/// to the store.
pub async fn examine_at_once<S: Store>(store: &Arc<S>, policy: &str, seed: u64) -> Result<Played, String> {
    let scenario = Arc::new(Scenario::of(seed, true));
    let subject = Arc::new(Subject::new(store, policy, &scenario, seed, None));
    let told = Arc::new(Mutex::new((BTreeMap::new(), Played::default())));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(call(caller, scenario.clone(), subject.clone(), told.clone())))
        .collect();
    for caller in callers {
        caller.await.map_err(|error| error.to_string())??;
    }
    let (told, mut played) = told.lock().expect("no caller panicked").clone();
    for (node, tokens) in told {
        let charged = subject.charged(&scenario, node).await;
        if charged != tokens {
            return Err(format!(
                "seed {seed}: {node:?} was charged {charged} tokens, callers were told {tokens}"
            ));
        }
        played.crossed += u64::from(within(&scenario, node, charged)?);
    }
    played.scenarios = 1;
    Ok(played)
}

type ToldAll = Arc<Mutex<(BTreeMap<Node, u64>, Played)>>;

/// One of the callers: each makes all steps of the scenario.
async fn call<S: Store>(
    caller: usize,
    scenario: Arc<Scenario>,
    subject: Arc<Subject<S>>,
    told: ToldAll,
) -> Result<(), String> {
    let note = |keys: &[&'static str], tokens: u64, allowed: bool, is_debit: bool| {
        let mut told = told.lock().expect("no caller panicked");
        let nodes = Model::nodes(&scenario, keys);
        let (charged, played) = &mut *told;
        played.trees += u64::from(nodes.len() > scenario.levels.len());
        played.denied += u64::from(!allowed);
        played.debits += u64::from(allowed && is_debit);
        played.admitted += u64::from(allowed && !is_debit);
        nodes.into_iter().for_each(|node| *charged.entry(node).or_default() += tokens);
    };
    for (number, step) in (1..).zip(&scenario.steps) {
        match step {
            Step::Wait(_) => {}
            Step::Debit { keys, tokens } => {
                let id = DebitId { stream: caller as u128 + 1, number };
                let allowed = subject.debit(keys, *tokens, id).await;
                note(keys, if allowed { *tokens } else { 0 }, allowed, true);
            }
            Step::Work { keys, estimate, chunks, .. } => {
                let Some(mut permit) = subject.admit(keys, *estimate).await else {
                    note(keys, 0, false, false);
                    continue;
                };
                let mut used = 0;
                for chunk in chunks {
                    if permit.debit(*chunk).await.map_err(|error| error.to_string())?.allowed {
                        used += chunk;
                    }
                }
                subject.settle(keys, permit, 0).await.map_err(|error| error.to_string())?;
                note(keys, used, true, false);
            }
        }
    }
    Ok(())
}
