use super::*;
use crate::models::check::explore;

/// The smallest of them; `cargo xtask verify` explores all.
#[test]
fn a_small_cluster_has_the_expected_number_of_states() {
    let room = Room { letters: 2, reports: 2, ticks: 1, deaths: 0, leaves: 0, losses: 0 };
    let fleet =
        Fleet { nodes: 2, limit: 2, split: Split::Equal, lives: 1, linger: 0, room, seam: Seam::Sound };
    let found = explore(fleet, 1);
    assert!(found.violated.is_empty(), "{found:?}");
    assert_eq!(found.states, 9_088);
}

#[test]
fn numbers_of_a_state_are_as_small_as_they_go() {
    let room = Room { letters: 2, reports: 9, ticks: 2, deaths: 0, leaves: 0, losses: 0 };
    let fleet =
        Fleet { nodes: 3, limit: 3, split: Split::Equal, lives: 2, linger: 0, room, seam: Seam::Sound };
    let begun = RebalanceState::at_work(&fleet);
    let round = [Step::Report(0, 0), Step::Arrive(3), Step::Arrive(3)];
    let again = |state: RebalanceState| {
        let after =
            round.iter().fold(state, |state, &step| state.after(&fleet, step).expect("there is room"));
        RebalanceState { left: state.left, ..after }
    };
    let once = again(begun);
    assert_eq!(again(again(once)), once, "a node that only sends heartbeats is where it was");
}
