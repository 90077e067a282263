//! A scenario to explore, for any model.

use std::fmt::{Debug, Display};
use std::hash::Hash;

use stateright::Model;

use super::check::{Breach, Findings, explore};
use super::counter_examples::Assumption;

/// A scenario to explore, and the number of states that it must have.
///
/// A different count fails: it shows a search that stops early or a machine that behaves differently.
pub struct Case {
    /// The invariant that the scenario demonstrates.
    pub invariant: &'static str,
    /// A short description of the scenario.
    pub name: &'static str,
    /// The bound, which the exploration also reaches.
    pub bound: String,
    /// The number of distinct states.
    pub states: usize,
    look: Box<dyn Fn(usize) -> Findings + Send + Sync>,
}

impl Case {
    /// Creates a scenario of any model.
    pub fn new<M>(invariant: &'static str, name: &'static str, bound: String, states: usize, model: M) -> Self
    where
        M: Model + Clone + Send + Sync + 'static,
        M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        M::Action: Clone + Debug + PartialEq + Send + Sync,
    {
        let look = Box::new(move |threads| explore(model.clone(), threads));
        Self { invariant, name, bound, states, look }
    }

    /// Explores every state.
    pub fn explore(&self, threads: usize) -> Findings {
        (self.look)(threads)
    }

    /// Returns a description of the mismatch, if there is one.
    pub fn wrong(&self, found: &Findings) -> Option<String> {
        let what = if !found.violated.is_empty() {
            format!("not so: {}", found.violated.join(", "))
        } else if !found.missing.is_empty() {
            format!("never: {}", found.missing.join(", "))
        } else if found.states != self.states {
            format!("{} states where there were {}", found.states, self.states)
        } else {
            return None;
        };
        Some(format!("{}, {}: {what}", self.invariant, self.name))
    }
}

/// Returns an assumption that is removed in a model. The counterexample is the shortest path to a state that
/// breaks the invariant.
pub(super) fn without<M>(text: &'static str, invariant: &'static str, model: M) -> Assumption
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + Display + PartialEq + Send + Sync,
{
    Assumption::new(text, invariant, move || {
        Breach::shortest(&model).map(|Breach { invariant, path }| {
            let steps = path.into_actions().into_iter().map(|step| step.to_string());
            steps.chain([format!("not {invariant}")]).collect()
        })
    })
}
