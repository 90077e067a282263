//! Enabled operations, for exploration.

use core::time::Duration;

use throttlekit_core::Cost;

use super::ClusterState;
use crate::operation::{Message, Operation};

/// The operations that an exploration offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Menu {
    /// Costs of requests.
    pub costs: Vec<Cost>,
    /// Steps of true time.
    pub advances: Vec<Duration>,
    /// Steps of the store's clock, in milliseconds.
    pub store_steps: Vec<i64>,
    /// Enables pauses of threads between taking and deciding.
    pub pauses: bool,
    /// Enables lost messages and failed requests.
    pub losses: bool,
    /// Enables duplicates while fewer messages than this are in flight.
    pub duplicates_below: usize,
    /// Enables requests ahead of need.
    pub low: bool,
    /// Enables returns.
    pub returns: bool,
    /// Enables crashes and restarts.
    pub crashes: bool,
    /// Enables failovers, with each of these sets of nodes left to the old primary.
    pub failovers: Vec<u64>,
    /// Enables loss of everything in the store.
    pub forgets: bool,
    /// Limits to change to.
    pub limits: Vec<u64>,
}

impl ClusterState {
    /// Returns every operation of the menu that would have an effect now.
    pub fn enabled(&self, menu: &Menu) -> Vec<Operation> {
        let mut list = Vec::new();
        (0..self.nodes.len()).for_each(|node| self.enabled_at(node, menu, &mut list));
        self.enabled_in_network(menu, &mut list);
        list.extend(menu.advances.iter().map(|&by| Operation::Advance { by }));
        list.extend(menu.store_steps.iter().map(|&by_ms| Operation::StepStore { by_ms }));
        if self.store.behind() > 0 {
            list.push(Operation::Replicate);
        }
        list.extend(menu.failovers.iter().map(|&with_old| Operation::Failover { with_old }));
        if menu.forgets {
            list.push(Operation::Forget);
        }
        let units = self.store.authority.limit().units();
        list.extend(menu.limits.iter().filter(|&&l| l != units).map(|&units| Operation::SetLimit { units }));
        list
    }

    fn enabled_at(&self, node: usize, menu: &Menu, list: &mut Vec<Operation>) {
        let one = &self.nodes[node];
        if !one.is_up() {
            return list.push(Operation::Restart { node });
        }
        let at = one.clock.read(self.now);
        if one.waiters().len() < self.setup.waiters_max {
            list.extend(menu.costs.iter().map(|&cost| Operation::Ask { node, cost }));
        }
        if menu.pauses && one.taken() < self.setup.taken_max {
            let can = menu.costs.iter().filter(|&&cost| one.held().units >= cost);
            list.extend(can.map(|&cost| Operation::Take { node, cost }));
        }
        if one.taken() > 0 {
            list.push(Operation::Decide { node });
        }
        if one.holder().clone().poll_request(&one.local_lease(), 0, one.batch, at).is_some() {
            list.push(Operation::Request { node });
        }
        if menu.losses && one.is_asking() {
            list.push(Operation::Fail { node });
        }
        if menu.low && !one.is_asking() {
            list.push(Operation::Low { node });
        }
        if menu.returns && one.holder().clone().poll_return(&one.local_lease(), at).is_some() {
            list.push(Operation::LeaseReturn { node });
        }
        if menu.crashes {
            list.push(Operation::Crash { node });
        }
    }

    fn enabled_in_network(&self, menu: &Menu, list: &mut Vec<Operation>) {
        let mut last: Option<Message> = None;
        for &message in &self.in_flight {
            // Identical messages are interchangeable.
            if last.replace(message) == Some(message) {
                continue;
            }
            list.push(Operation::Deliver(message));
            if menu.losses {
                list.push(Operation::Lose(message));
            }
            if self.in_flight.len() < menu.duplicates_below {
                list.push(Operation::Duplicate(message));
            }
        }
    }
}
