//! The laws of sharing over twenty thousand worlds, and every planted bug found. Names are those of `docs/guarantees.md`.

use throttlekit_conformance::fair;

const WORLDS: u64 = 20_000;

#[test]
fn fair_1_to_4_hold_and_answers_are_those_of_a_walk_over_all_tenants() {
    let holds = fair::every_law();
    (0..WORLDS).try_for_each(holds).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn every_planted_bug_is_found() {
    for law in fair::laws() {
        for (bug, _) in &law.planted {
            assert!(law.find(bug, WORLDS).is_some(), "{} is blind to {bug}", law.name);
        }
    }
}
