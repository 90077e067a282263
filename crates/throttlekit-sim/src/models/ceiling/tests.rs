use super::*;
use crate::models::check::explore;

#[test]
fn scenarios_have_as_many_states_as_were_published() {
    for case in cases().iter().filter(|case| case.states < 50_000) {
        let found = case.explore(1);
        assert_eq!(case.wrong(&found), None);
    }
}

/// The published depth too: the maximum, over all states, of the steps on a shortest path.
#[test]
fn the_acknowledged_handoff_is_as_deep_as_was_published() {
    let found = explore(Handoff::published(2, 4, 3), 1);
    assert_eq!((found.states, found.depth), (250_624, 37));
}

/// Reserving a snapshot of grants and reports admits half as much again, as was published, and no more.
#[test]
fn without_the_unacknowledged_maximum_the_ceiling_is_exceeded_by_half() {
    let found = explore(Handoff { reserve: Reserve::Snapshot, ..Handoff::trimmed(2, 4, 2) }, 1);
    assert_eq!(found.violated, ["in flight within the ceiling"]);
    assert!(found.missing.is_empty(), "{found:?}");
}

#[test]
fn every_term_is_needed() {
    for assumption in assumptions() {
        assert!(assumption.counterexample().is_some(), "nothing breaks without: {}", assumption.text);
    }
}

#[test]
fn a_margin_of_skew_plus_running_work_is_safe_and_one_tick_less_is_not() {
    for skew_max in 0..=3 {
        for work_max in 1..=3 {
            for aborts in [true, false] {
                let model = Fence { life: 9, margin: 0, skew_max, work_max, aborts, fences: true };
                let margin = model.safe_margin();
                assert!(explore(Fence { margin, ..model }, 1).holds(), "{model:?}");
                let below = explore(Fence { margin: margin - 1, ..model }, 1);
                assert_eq!(below.violated, ["in flight within the ceiling"], "{model:?}");
            }
        }
    }
}
