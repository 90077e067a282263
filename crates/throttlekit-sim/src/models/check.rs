//! Runs a search to its end and returns the findings.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

/// The findings of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// Distinct states.
    pub states: usize,
    /// Transitions between them.
    pub steps: usize,
    /// The maximum, over all states, of the steps on a shortest path. Approximate with several threads.
    pub depth: usize,
    /// The invariants that were violated.
    pub violated: Vec<&'static str>,
    /// The reachability properties that no state satisfied.
    pub missing: Vec<&'static str>,
}

impl Findings {
    /// Returns `true` if all invariants hold and all expected states occur.
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

/// A violated invariant with its counterexample.
pub struct Breach<M: Model> {
    /// The invariant.
    pub invariant: &'static str,
    /// The steps to a state in which it does not hold.
    pub path: Path<M::State, M::Action>,
}

impl<M> Breach<M>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    /// Returns a shortest counterexample to any of the model's invariants, if there is one.
    pub fn shortest(model: &M) -> Option<Self> {
        let mut found = Self::within(model, usize::MAX)?;
        // The checker stops some time after it has found one, so the reported one may not be the first.
        while let Some(shorter) = Self::within(model, found.steps()) {
            found = shorter;
        }
        Some(found)
    }

    /// Returns a counterexample with fewer steps. Uses one thread: only then is the search breadth-first.
    fn within(model: &M, steps: usize) -> Option<Self> {
        let checker = model.clone().checker().target_max_depth(steps.saturating_add(1));
        let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let mut found = checker.discoveries();
        let properties = model.properties();
        let always = properties.iter().filter(|property| property.expectation == Expectation::Always);
        let breaches = always.filter_map(|property| {
            Some(Self { invariant: property.name, path: found.remove(property.name)? })
        });
        breaches.min_by_key(Self::steps)
    }

    fn steps(&self) -> usize {
        self.path.clone().into_actions().len()
    }
}
