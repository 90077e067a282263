//! The charges that a tree of budgets must have.

use std::collections::BTreeMap;

use throttlekit::rate::{Settle, State, Timestamp};

use super::scenario::Scenario;

/// A budget by its index, and a key of it.
pub type Node = (usize, &'static str);

/// Counts the tokens of every budget and key, window by window.
#[derive(Default)]
pub struct Model(BTreeMap<Node, (u64, u64)>);

impl Model {
    /// Returns the budgets and keys that a call draws on.
    pub fn nodes(scenario: &Scenario, keys: &[&'static str]) -> Vec<Node> {
        let levels = scenario.levels.iter().enumerate();
        levels.flat_map(|(place, level)| level.keys(keys).into_iter().map(move |key| (place, key))).collect()
    }

    /// Returns the window of a budget.
    pub fn window(scenario: &Scenario, node: Node, now: Timestamp) -> u64 {
        scenario.levels[node.0].limit().mark(&State::default(), now).0
    }

    /// Returns the tokens of a budget and key that are charged in its window.
    pub fn used(&self, scenario: &Scenario, node: Node, now: Timestamp) -> u64 {
        let window = Self::window(scenario, node, now);
        self.0.get(&node).filter(|(in_it, _)| *in_it == window).map_or(0, |(_, used)| *used)
    }

    /// Checks whether all have tokens left, of which at most one chunk crosses the edge.
    pub fn admits_chunk(&self, scenario: &Scenario, nodes: &[Node], now: Timestamp) -> bool {
        nodes.iter().all(|node| self.used(scenario, *node, now) < scenario.levels[node.0].budget)
    }

    /// Checks whether all have this many tokens left.
    pub fn admits_all(&self, scenario: &Scenario, nodes: &[Node], tokens: u64, now: Timestamp) -> bool {
        nodes.iter().all(|node| self.used(scenario, *node, now) + tokens <= scenario.levels[node.0].budget)
    }

    /// Charges all.
    pub fn charge(&mut self, scenario: &Scenario, nodes: &[Node], tokens: u64, now: Timestamp) {
        for node in nodes {
            let used = self.used(scenario, *node, now) + tokens;
            self.0.insert(*node, (Self::window(scenario, *node, now), used));
        }
    }

    /// Returns tokens that were charged at `then`, where the window lasts.
    pub fn refund(&mut self, scenario: &Scenario, nodes: &[Node], tokens: u64, then: Timestamp) {
        for node in nodes {
            let window = Self::window(scenario, *node, then);
            if let Some((_, used)) = self.0.get_mut(node).filter(|(in_it, _)| *in_it == window) {
                *used -= tokens;
            }
        }
    }

    /// Returns every budget and key that was charged.
    pub fn charged(&self) -> impl Iterator<Item = Node> {
        self.0.keys().copied()
    }
}
