use super::*;
use crate::models::check::explore;

/// The smallest of them; the proof explores all.
#[test]
fn a_small_fleet_has_as_many_states_as_it_had() {
    let room = Room { letters: 2, reports: 2, ticks: 1, deaths: 0, leaves: 0, losses: 0 };
    let fleet =
        Fleet { nodes: 2, limit: 2, split: Split::Equal, lives: 1, linger: 0, room, seam: Seam::Sound };
    let found = explore(fleet, 1);
    assert!(found.violated.is_empty(), "{found:?}");
    assert_eq!(found.states, 9_088);
}

#[test]
fn numbers_of_a_world_are_as_small_as_they_go() {
    let room = Room { letters: 2, reports: 9, ticks: 2, deaths: 0, leaves: 0, losses: 0 };
    let fleet =
        Fleet { nodes: 3, limit: 3, split: Split::Equal, lives: 2, linger: 0, room, seam: Seam::Sound };
    let begun = World::at_work(&fleet);
    let round = [Step::Report(0, 0), Step::Arrive(3), Step::Arrive(3)];
    let again = |world: World| {
        let after =
            round.iter().fold(world, |world, &step| world.after(&fleet, step).expect("there is room"));
        World { left: world.left, ..after }
    };
    let once = again(begun);
    assert_eq!(again(again(once)), once, "a node that beats on and on is where it was");
}
