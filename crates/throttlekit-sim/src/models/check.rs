//! Runs a search to its end and says what it found.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// Distinct states.
    pub states: usize,
    /// Steps taken between them.
    pub steps: usize,
    /// The most steps on a shortest way to a state; with several threads, about that.
    pub depth: usize,
    /// What should always hold and does not.
    pub violated: Vec<&'static str>,
    /// What should occur and does not.
    pub missing: Vec<&'static str>,
}

impl Findings {
    /// Whether all that should hold holds, and all that should occur occurs.
    pub fn holds(&self) -> bool {
        self.violated.is_empty() && self.missing.is_empty()
    }
}

/// Explores every state of a model.
pub fn explore<M>(model: M, threads: usize) -> Findings
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let properties = model.properties();
    let checker = model.checker().threads(threads).spawn_bfs().join();
    let found = checker.discoveries();
    let of = |expected: Expectation, discovered: bool| {
        let named = properties.iter().filter(|property| property.expectation == expected);
        named.map(|property| property.name).filter(|name| found.contains_key(name) == discovered).collect()
    };
    Findings {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        violated: of(Expectation::Always, true),
        missing: of(Expectation::Sometimes, false),
    }
}

/// A shortest way to a violation of what a model says should always hold, if there is one.
pub fn shortest_violation<M>(model: M) -> Option<(&'static str, Path<M::State, M::Action>)>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let mut found = violation(model.clone(), usize::MAX)?;
    // The checker ends some time after it has found one, so it may name a later one than the first.
    while let Some(shorter) = violation(model.clone(), found.1.clone().into_actions().len()) {
        found = shorter;
    }
    Some(found)
}

/// A violation after fewer steps than that.
fn violation<M>(model: M, steps: usize) -> Option<(&'static str, Path<M::State, M::Action>)>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let depth_max = steps.saturating_add(1);
    let checker = model.checker().target_max_depth(depth_max).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let properties = checker.model().properties();
    let always = properties.iter().filter(|property| property.expectation == Expectation::Always);
    let mut found = checker.discoveries();
    let paths = always.filter_map(|property| found.remove(property.name).map(|path| (property.name, path)));
    paths.min_by_key(|(_, path)| path.clone().into_actions().len())
}
