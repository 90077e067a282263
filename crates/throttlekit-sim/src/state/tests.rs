use throttlekit_core::lease::{Authority, Term};
use throttlekit_core::rate::{Limit, Rate};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn window(limit: u64, nodes: usize, batch: Cost) -> ClusterState {
    let limit = Limit::fixed_window(limit, 10 * SECOND).unwrap();
    ClusterState::new(Setup::new(Authority::new(limit, Term::Window).unwrap(), nodes, batch))
}

/// A round trip without faults.
fn fetch(state: &mut ClusterState, node: usize) {
    let request = state.apply(Operation::Request { node }).unwrap();
    let reply = state.apply(Operation::Deliver(request)).unwrap();
    state.apply(Operation::Deliver(reply));
}

#[test]
fn a_cluster_admits_its_limit_and_no_more() {
    let mut state = window(10, 3, 4);
    for node in [0, 1, 2] {
        state.ask(node, 1, 4);
        fetch(&mut state, node);
    }
    let tally = state.ledger().windows()[0];
    assert_eq!((tally.admitted, tally.limit), (10, 10));
    assert_eq!(state.broken(), None);
    assert_eq!(state.ask(2, 1, 5).denied, 0, "nobody has denied anything yet");
    fetch(&mut state, 2);
    assert_eq!(state.ask(2, 1, 5).denied, 5);
}

#[test]
fn a_decision_after_a_pause_is_made_by_the_clock_as_it_is_then() {
    let mut state = window(10, 1, 4);
    state.ask(0, 1, 1);
    fetch(&mut state, 0);
    state.apply(Operation::Take { node: 0, cost: 1 });
    state.apply(Operation::Advance { by: 10 * SECOND });
    state.apply(Operation::Decide { node: 0 });
    assert_eq!((state.ledger().decisions, state.ledger().allowed), (2, 1));
}

#[test]
fn states_that_came_to_the_same_are_equal() {
    let (mut one, mut other) = (window(10, 2, 4), window(10, 2, 4));
    one.ask(0, 1, 1);
    fetch(&mut one, 0);
    // The other's local lease was filled once more on the way.
    other.ask(0, 1, 1);
    fetch(&mut other, 0);
    let held = other.nodes[0].held;
    let local_lease = other.nodes[0].local_lease();
    local_lease.fill(held.units, held.until, false);
    other.nodes[0].put(&local_lease);
    assert_eq!(one, other);
}

#[test]
fn an_asynchronous_failover_admits_what_it_lost_again_and_a_fence_does_not() {
    let run = |replication| {
        let setup = *window(10, 2, 10).setup();
        let mut state = ClusterState::new(Setup { replication, ..setup });
        state.ask(0, 1, 4);
        let request = state.apply(Operation::Request { node: 0 }).unwrap();
        if let Some(reply) = state.apply(Operation::Deliver(request)) {
            state.apply(Operation::Deliver(reply));
        }
        state.ask(0, 1, 10);
        state.apply(Operation::Failover { with_old: 0 });
        state.ask(1, 1, 4);
        fetch(&mut state, 1);
        state.ask(1, 1, 10);
        (state.ledger().windows().first().map(|t| (t.admitted, t.lost)), state.broken().cloned())
    };
    assert_eq!(run(Replication::Async), (Some((20, 10)), None));
    assert_eq!(run(Replication::Fence), (Some((10, 0)), None));
}

#[test]
fn a_grant_in_wait_mode_leaves_after_the_replica_has_it() {
    let setup = *window(10, 1, 10).setup();
    let mut state = ClusterState::new(Setup { replication: Replication::Wait, ..setup });
    state.ask(0, 1, 1);
    let request = state.apply(Operation::Request { node: 0 }).unwrap();
    assert_eq!(state.apply(Operation::Deliver(request)), None);
    let reply = state.apply(Operation::Replicate).unwrap();
    state.apply(Operation::Deliver(reply));
    assert_eq!(state.ledger().allowed, 1);
}

#[test]
fn a_seeded_bug_breaks_an_invariant() {
    let gcra = Limit::gcra(Rate::per_second(10).burst(10)).unwrap();
    let authority = Authority::new(gcra, Term::Rolling(SECOND)).unwrap();
    let setup = Setup { bug: Some(LeaseBug::CreditPerWaiter), ..Setup::new(authority, 1, 4) };
    let mut state = ClusterState::new(setup);
    state.ask(0, 1, 3);
    fetch(&mut state, 0);
    assert_eq!(state.broken().map(|broken| broken.invariant), Some("conservation"));
}

/// `lease-carry` is tight: over a network the boundary can fall between a grant and its first spend.
#[test]
fn lease_carry_reaches_its_bound() {
    let limit = Limit::fixed_window(10, 10 * SECOND).unwrap();
    let mut state = ClusterState::new(Setup::new(Authority::new(limit, Term::Carry).unwrap(), 2, 4));
    let replies = [0, 1].map(|node| {
        state.ask(node, 1, 4);
        let request = state.apply(Operation::Request { node }).unwrap();
        state.apply(Operation::Deliver(request)).unwrap()
    });
    state.apply(Operation::Advance { by: 10 * SECOND });
    for reply in replies {
        state.apply(Operation::Deliver(reply));
    }
    for node in [0, 1, 0] {
        state.ask(node, 1, 4);
        fetch(&mut state, node);
    }
    let tally = state.ledger().windows()[1];
    assert_eq!((tally.admitted, state.broken()), (10 + 2 * 4, None));
}

/// A store clock set forward admits the units that all nodes then hold, and no more.
#[test]
fn a_clock_set_forward_reaches_its_bound() {
    let mut state = window(10, 2, 4);
    for node in [0, 1] {
        state.apply(Operation::Ask { node, cost: 1 });
        let request = state.apply(Operation::Request { node }).unwrap();
        let reply = state.apply(Operation::Deliver(request)).unwrap();
        state.apply(Operation::Deliver(reply));
    }
    state.apply(Operation::StepStore { by_ms: 10_000 });
    state.ask(0, 1, 3);
    state.ask(1, 1, 3);
    for node in [0, 1, 0] {
        state.ask(node, 1, 4);
        fetch(&mut state, node);
    }
    let tally = state.ledger().windows()[1];
    assert_eq!((tally.admitted, state.broken()), (10 + 2 * 3, None));
}

/// `lease-rolling` is tight where leases are the smaller part: the burst, the rate, and the held units.
#[test]
fn lease_rolling_reaches_its_bound() {
    let gcra = Limit::gcra(Rate::per_second(1).burst(5)).unwrap();
    let authority = Authority::new(gcra, Term::Rolling(10 * SECOND)).unwrap();
    let mut state = ClusterState::new(Setup { taken_max: 0, ..Setup::new(authority, 1, 5) });
    state.apply(Operation::Ask { node: 0, cost: 1 });
    let request = state.apply(Operation::Request { node: 0 }).unwrap();
    let reply = state.apply(Operation::Deliver(request)).unwrap();
    state.apply(Operation::Advance { by: 5 * SECOND });
    state.apply(Operation::Deliver(reply));
    assert_eq!(state.ask(0, 1, 4).allowed, 4);
    state.ask(0, 1, 1);
    fetch(&mut state, 0);
    assert_eq!(state.ask(0, 1, 4).allowed, 4);
    // Ten at one instant: a burst of five, and one batch of five held before.
    assert_eq!((state.ledger().allowed, state.broken()), (10, None));
}
