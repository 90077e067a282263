//! The invariants of sharing over twenty thousand scenarios, and every seeded bug found. Names are those of
//! `docs/reference/guarantees.md`.

use throttlekit_core::Timestamp;
use throttlekit_core::fair::Weight;
use throttlekit_verify::fair::{self, FairScenario, Given, Held, PICTURED, Shares};

const SCENARIOS: u64 = 20_000;

#[test]
fn fair_1_to_4_hold_and_answers_are_those_of_a_walk_over_all_tenants() {
    let holds = fair::every_invariant();
    (0..SCENARIOS).try_for_each(holds).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn every_seeded_bug_is_found() {
    for invariant in fair::invariants() {
        for (bug, _) in &invariant.seeded {
            assert!(invariant.find(bug, SCENARIOS).is_some(), "{} is blind to {bug}", invariant.name);
        }
    }
}

fn held(limit: u64, tenants: usize) -> Held {
    let start = Timestamp::from_millis(1_800_000_000_000);
    Held::new(&FairScenario {
        limit,
        places: tenants,
        give_back: None,
        weights: vec![1; tenants],
        start,
        operations: vec![],
    })
}

fn ask(rule: &mut Held, tenant: usize, cost: u64) -> bool {
    rule.ask(tenant, Weight::ONE, cost, Timestamp::from_millis(1_800_000_000_000)).allowed
}

/// Each of ten has 49 and wants 50: the bound on what is left, Σ (cost − 1), is reached.
#[test]
fn fair_3_is_tight() {
    let mut rule = held(10 * 49, 10);
    (0..10).for_each(|tenant| _ = ask(&mut rule, tenant, 500));
    assert!((0..10).all(|tenant| !ask(&mut rule, tenant, 50)));
    assert!((0..10).all(|tenant| ask(&mut rule, tenant, 49)));
}

/// Of equal weights one ends a request above its guarantee, another a request minus a unit below: 2·q − 1
/// apart of 2·q.
#[test]
fn fair_4_is_tight_to_a_unit() {
    let mut rule = held(4 * 10 + 3, 4);
    (0..4).for_each(|tenant| _ = ask(&mut rule, tenant, 500));
    assert!((0..4).all(|tenant| ask(&mut rule, tenant, 9)));
    assert!([0, 2, 3].into_iter().all(|tenant| ask(&mut rule, tenant, 1)));
    assert!(ask(&mut rule, 0, 2), "two of the three that round: at twelve");
    assert!(ask(&mut rule, 2, 1), "the third");
    assert!((0..4).all(|tenant| !ask(&mut rule, tenant, 2)), "one is still at nine");
}

#[test]
fn the_plot_shows_a_late_tenant_and_the_return_of_a_quiet_one() {
    let (kept, given) = (fair::shares_over_time(1, None), fair::shares_over_time(1, Some(PICTURED)));
    let last = |rows: &[Given], window: u64| -> Vec<u64> {
        rows.iter().filter(|row| row.step == 100 * window - 1).map(|row| row.admitted).collect()
    };
    assert_eq!(kept, fair::shares_over_time(1, None));
    let total = |rows: &[Given], window| last(rows, window).iter().sum::<u64>();
    assert!(total(&kept, 2) < 60_000, "what is reserved for the quiet one is nobody's");
    assert!(total(&given, 2) > 69_000, "it gives it back");
    let (heavy, light) = (last(&given, 2)[0] - last(&kept, 2)[0], last(&given, 2)[2] - last(&kept, 2)[2]);
    assert!(heavy > 2 * light, "and by weight: {heavy} to {light}");
    let even = last(&kept, 3);
    assert!(
        even[0].abs_diff(40_000) <= 50 && even[1].abs_diff(20_000) <= 50 && even[2].abs_diff(10_000) <= 50
    );
}

#[test]
fn fair_tree_holds_for_weights_nested_to_five_levels() {
    let invariants = fair::invariants();
    let tree = invariants.iter().find(|invariant| invariant.name == "fair-tree").unwrap();
    tree.check(0..SCENARIOS / 10).unwrap_or_else(|violation| panic!("{violation}"));
}
