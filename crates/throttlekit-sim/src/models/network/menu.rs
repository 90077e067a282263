//! Enabled operations, and their descriptions.

use std::time::Duration;

use crate::operation::{Message, Operation};

use super::{Network, NetworkState};

/// One tick.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Returns `true` if the operation counts against the faults of a scenario.
pub(super) fn is_fault(operation: &Operation) -> bool {
    use Operation::{Crash, Duplicate, Lose, Take};
    matches!(operation, Take { .. } | Lose(_) | Duplicate(_) | Crash { .. })
}

/// Lists every operation that might be possible. Impossible ones lead to no state.
pub(super) fn enabled(network: &Network, state: &NetworkState, menu: &mut Vec<Operation>) {
    if state.tick() < network.room.ticks {
        menu.push(Operation::Advance { by: TICK });
    }
    if state.lags() {
        menu.push(Operation::Replicate);
    }
    if state.can_fail() {
        menu.push(Operation::Failover { with_old: 0 });
    }
    for node in 0..network.clocks.len() {
        of_node(network, state, node, menu);
    }
    if state.faults_left() == 0 {
        menu.retain(|operation| !is_fault(operation));
    }
}

fn of_node(network: &Network, state: &NetworkState, node: usize, menu: &mut Vec<Operation>) {
    let it = state.node(node);
    for &cost in network.costs {
        menu.extend([Operation::Ask { node, cost }, Operation::Take { node, cost }]);
    }
    menu.extend(it.sleeps().then_some(Operation::Decide { node }));
    menu.extend(network.low_water.map(|_| Operation::Low { node }));
    menu.extend(it.is_asking().then_some(Operation::Fail { node }));
    menu.extend((state.returns_left() > 0).then_some(Operation::LeaseReturn { node }));
    menu.extend(it.is_used().then_some(Operation::Crash { node }));
    for message in it.messages(node) {
        menu.extend([Operation::Deliver(message), Operation::Duplicate(message), Operation::Lose(message)]);
    }
}

/// Describes an operation in plain language. Nodes are called A, B and C.
pub fn in_words(operation: &Operation) -> String {
    let name = |node: usize| char::from(b'A' + node as u8);
    match *operation {
        Operation::Advance { .. } => "a tick passes".into(),
        Operation::Ask { node, cost } => format!("{} is asked for {cost}", name(node)),
        Operation::Take { node, cost } => {
            format!("a thread of {} is asked for {cost} and falls asleep", name(node))
        }
        Operation::Decide { node } => format!("the thread of {} wakes", name(node)),
        Operation::Low { node } => format!("{} asks ahead of need", name(node)),
        Operation::Fail { node } => format!("{} gives up its request", name(node)),
        Operation::LeaseReturn { node } => format!("{} sends back what it holds", name(node)),
        Operation::Crash { node } => format!("{} crashes and is back with nothing", name(node)),
        Operation::Replicate => "the store's copy catches up".into(),
        Operation::Failover { .. } => "the store's copy takes over".into(),
        Operation::Deliver(Message::Request { node, request }) => {
            format!("the store answers {}, which wants {}", name(node), request.want.wants)
        }
        Operation::Deliver(Message::Reply { node, loan, .. }) => {
            format!("the reply that lends {} reaches {}", loan.granted, name(node))
        }
        Operation::Deliver(Message::Return { node, back, .. }) => {
            format!("the {} that {} sent back reach the store", back.units, name(node))
        }
        Operation::Lose(message) => format!("{} is lost", letter(&message, name)),
        Operation::Duplicate(message) => format!("{} is doubled", letter(&message, name)),
        ref other => format!("{other:?}"),
    }
}

fn letter(message: &Message, name: impl Fn(usize) -> char) -> String {
    let node = name(message.node());
    match message {
        Message::Request { .. } => format!("a request of {node}"),
        Message::Reply { .. } => format!("a reply to {node}"),
        Message::Return { .. } => format!("a return of {node}"),
    }
}
