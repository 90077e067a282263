use throttlekit_core::lease::{Authority, Term};
use throttlekit_core::rate::{Limit, Rate};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn window(limit: u64, nodes: usize, batch: Cost) -> World {
    let limit = Limit::fixed_window(limit, 10 * SECOND).unwrap();
    World::new(Setup::new(Authority::new(limit, Term::Window).unwrap(), nodes, batch))
}

/// A round trip that nothing befalls.
fn fetch(world: &mut World, node: usize) {
    let request = world.apply(Operation::Request { node }).unwrap();
    let reply = world.apply(Operation::Deliver(request)).unwrap();
    world.apply(Operation::Deliver(reply));
}

#[test]
fn a_fleet_admits_its_limit_and_no_more() {
    let mut world = window(10, 3, 4);
    for node in [0, 1, 2] {
        world.ask(node, 1, 4);
        fetch(&mut world, node);
    }
    let tally = world.ledger().windows()[0];
    assert_eq!((tally.admitted, tally.limit), (10, 10));
    assert_eq!(world.broken(), None);
    assert_eq!(world.ask(2, 1, 5).denied, 0, "nobody has denied anything yet");
    fetch(&mut world, 2);
    assert_eq!(world.ask(2, 1, 5).denied, 5);
}

#[test]
fn a_decision_after_a_pause_is_made_by_the_clock_as_it_is_then() {
    let mut world = window(10, 1, 4);
    world.ask(0, 1, 1);
    fetch(&mut world, 0);
    world.apply(Operation::Take { node: 0, cost: 1 });
    world.apply(Operation::Advance { by: 10 * SECOND });
    world.apply(Operation::Decide { node: 0 });
    assert_eq!((world.ledger().decisions, world.ledger().allowed), (2, 1));
}

#[test]
fn worlds_that_came_to_the_same_are_equal() {
    let (mut one, mut other) = (window(10, 2, 4), window(10, 2, 4));
    one.ask(0, 1, 1);
    fetch(&mut one, 0);
    // The other's purse was filled once more on the way.
    other.ask(0, 1, 1);
    fetch(&mut other, 0);
    let held = other.nodes[0].held;
    let purse = other.nodes[0].purse();
    purse.fill(held.units, held.until, false);
    other.nodes[0].put(&purse);
    assert_eq!(one, other);
}

#[test]
fn an_asynchronous_failover_admits_what_it_lost_again_and_a_fence_does_not() {
    let run = |replication| {
        let setup = *window(10, 2, 10).setup();
        let mut world = World::new(Setup { replication, ..setup });
        world.ask(0, 1, 4);
        let request = world.apply(Operation::Request { node: 0 }).unwrap();
        if let Some(reply) = world.apply(Operation::Deliver(request)) {
            world.apply(Operation::Deliver(reply));
        }
        world.ask(0, 1, 10);
        world.apply(Operation::Failover { with_old: 0 });
        world.ask(1, 1, 4);
        fetch(&mut world, 1);
        world.ask(1, 1, 10);
        (world.ledger().windows().first().map(|t| (t.admitted, t.lost)), world.broken().cloned())
    };
    assert_eq!(run(Replication::Async), (Some((20, 10)), None));
    assert_eq!(run(Replication::Fence), (Some((10, 0)), None));
}

#[test]
fn a_wait_for_the_replica_holds_the_grant_back() {
    let setup = *window(10, 1, 10).setup();
    let mut world = World::new(Setup { replication: Replication::Wait, ..setup });
    world.ask(0, 1, 1);
    let request = world.apply(Operation::Request { node: 0 }).unwrap();
    assert_eq!(world.apply(Operation::Deliver(request)), None);
    let reply = world.apply(Operation::Replicate).unwrap();
    world.apply(Operation::Deliver(reply));
    assert_eq!(world.ledger().allowed, 1);
}

#[test]
fn a_seeded_bug_breaks_a_law() {
    let gcra = Limit::gcra(Rate::per_second(10).burst(10)).unwrap();
    let authority = Authority::new(gcra, Term::Rolling(SECOND)).unwrap();
    let setup = Setup { bug: Some(LeaseBug::CreditPerWaiter), ..Setup::new(authority, 1, 4) };
    let mut world = World::new(setup);
    world.ask(0, 1, 3);
    fetch(&mut world, 0);
    assert_eq!(world.broken().map(|broken| broken.law), Some("conservation"));
}

/// `lease-carry` is tight: over a network the boundary can fall between a grant and its first spend.
#[test]
fn lease_carry_reaches_its_bound() {
    let limit = Limit::fixed_window(10, 10 * SECOND).unwrap();
    let mut world = World::new(Setup::new(Authority::new(limit, Term::Carry).unwrap(), 2, 4));
    let replies = [0, 1].map(|node| {
        world.ask(node, 1, 4);
        let request = world.apply(Operation::Request { node }).unwrap();
        world.apply(Operation::Deliver(request)).unwrap()
    });
    world.apply(Operation::Advance { by: 10 * SECOND });
    for reply in replies {
        world.apply(Operation::Deliver(reply));
    }
    for node in [0, 1, 0] {
        world.ask(node, 1, 4);
        fetch(&mut world, node);
    }
    let tally = world.ledger().windows()[1];
    assert_eq!((tally.admitted, world.broken()), (10 + 2 * 4, None));
}

/// A store clock set forward is worth what the fleet then holds, and no more.
#[test]
fn a_clock_set_forward_reaches_its_bound() {
    let mut world = window(10, 2, 4);
    for node in [0, 1] {
        world.apply(Operation::Ask { node, cost: 1 });
        let request = world.apply(Operation::Request { node }).unwrap();
        let reply = world.apply(Operation::Deliver(request)).unwrap();
        world.apply(Operation::Deliver(reply));
    }
    world.apply(Operation::StepStore { by_ms: 10_000 });
    world.ask(0, 1, 3);
    world.ask(1, 1, 3);
    for node in [0, 1, 0] {
        world.ask(node, 1, 4);
        fetch(&mut world, node);
    }
    let tally = world.ledger().windows()[1];
    assert_eq!((tally.admitted, world.broken()), (10 + 2 * 3, None));
}

/// `lease-rolling` is tight where leases are the smaller part: the burst, the rate, and what was held.
#[test]
fn lease_rolling_reaches_its_bound() {
    let gcra = Limit::gcra(Rate::per_second(1).burst(5)).unwrap();
    let authority = Authority::new(gcra, Term::Rolling(10 * SECOND)).unwrap();
    let mut world = World::new(Setup { taken_max: 0, ..Setup::new(authority, 1, 5) });
    world.apply(Operation::Ask { node: 0, cost: 1 });
    let request = world.apply(Operation::Request { node: 0 }).unwrap();
    let reply = world.apply(Operation::Deliver(request)).unwrap();
    world.apply(Operation::Advance { by: 5 * SECOND });
    world.apply(Operation::Deliver(reply));
    assert_eq!(world.ask(0, 1, 4).allowed, 4);
    world.ask(0, 1, 1);
    fetch(&mut world, 0);
    assert_eq!(world.ask(0, 1, 4).allowed, 4);
    // Ten at one instant: a burst of five, and one batch of five that was held before.
    assert_eq!((world.ledger().allowed, world.broken()), (10, None));
}
