//! A world of slots to explore, whatever its kind.

use std::fmt::{Debug, Display};
use std::hash::Hash;

use stateright::Model;

use super::check::{Breach, Findings, explore};
use super::counter_examples::CounterExample;

/// A world to explore, and how many states it must have.
pub struct Case {
    /// The law that it shows.
    pub law: &'static str,
    /// What is special about it.
    pub name: &'static str,
    /// The bound, which is also reached.
    pub bound: u64,
    /// How many states it has.
    pub states: usize,
    look: Box<dyn Fn(usize) -> Findings + Send + Sync>,
}

impl Case {
    /// A world that any model explores.
    pub fn new<M>(
        law: &'static str,
        name: &'static str,
        bound: impl Into<u64>,
        states: usize,
        model: M,
    ) -> Self
    where
        M: Model + Clone + Send + Sync + 'static,
        M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        M::Action: Clone + Debug + PartialEq + Send + Sync,
    {
        let look = Box::new(move |threads| explore(model.clone(), threads));
        Self { law, name, bound: bound.into(), states, look }
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

/// The shortest story in which a law breaks in a model from which something was removed.
pub(super) fn tell<M>(removed: &'static str, law: &'static str, model: &M) -> CounterExample
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + Display + PartialEq + Send + Sync,
{
    let story = Breach::shortest(model).map(|Breach { law, path }| {
        let steps = path.into_actions().into_iter().map(|step| step.to_string());
        steps.chain([format!("not {law}")]).collect()
    });
    CounterExample { removed, law, story }
}
