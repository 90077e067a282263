//! A world to explore, whatever its kind.

use std::fmt::{Debug, Display};
use std::hash::Hash;

use stateright::Model;

use super::check::{Breach, Findings, explore};
use super::counter_examples::Assumption;

/// A world to explore, and how many states it must have.
///
/// A count that differs fails: a search that stops looking, or a machine that does something else, is noticed.
pub struct Case {
    /// The law that it shows.
    pub law: &'static str,
    /// What is special about it.
    pub name: &'static str,
    /// The bound, which is also reached.
    pub bound: String,
    /// How many states it has.
    pub states: usize,
    look: Box<dyn Fn(usize) -> Findings + Send + Sync>,
}

impl Case {
    /// A world that any model explores.
    pub fn new<M>(law: &'static str, name: &'static str, bound: String, states: usize, model: M) -> Self
    where
        M: Model + Clone + Send + Sync + 'static,
        M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        M::Action: Clone + Debug + PartialEq + Send + Sync,
    {
        let look = Box::new(move |threads| explore(model.clone(), threads));
        Self { law, name, bound, states, look }
    }

    /// Explores every state of it.
    pub fn explore(&self, threads: usize) -> Findings {
        (self.look)(threads)
    }

    /// What is not as it should be, if anything.
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
        Some(format!("{}, {}: {what}", self.law, self.name))
    }
}

/// An assumption whose absence a model shows: its shortest path to a state in which the law does not hold.
pub(super) fn without<M>(text: &'static str, law: &'static str, model: M) -> Assumption
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + Display + PartialEq + Send + Sync,
{
    Assumption::new(text, law, move || {
        Breach::shortest(&model).map(|Breach { law, path }| {
            let steps = path.into_actions().into_iter().map(|step| step.to_string());
            steps.chain([format!("not {law}")]).collect()
        })
    })
}
