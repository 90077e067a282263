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

/// How something came about that should never be.
pub struct Breach<M: Model> {
    /// What should always hold.
    pub invariant: &'static str,
    /// The steps to where it does not.
    pub path: Path<M::State, M::Action>,
}

impl<M> Breach<M>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    /// A shortest way to where something does not hold that a model says always should, if there is one.
    pub fn shortest(model: &M) -> Option<Self> {
        let mut found = Self::within(model, usize::MAX)?;
        // The checker ends some time after it has found one, so it may name a later one than the first.
        while let Some(shorter) = Self::within(model, found.steps()) {
            found = shorter;
        }
        Some(found)
    }

    /// One of fewer steps than that. One thread searches: only then does it go from near to far.
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
