//! Guarantees `inference_*`, at a small size; `cargo xtask verify slots inference` runs more of everything.

use throttlekit_verify::inference::{
    self, MOST, Size, check_denials, check_dips, check_hang, check_light, check_share, check_timeouts,
    examine, examine_aimd, examine_controls, examine_disturbances, find_seeded, first_implementation,
    shipped,
};

use throttlekit_verify::inference::tails::{self, SHAPES, Scenario, Shape, compare, ours, run};

const SMALL: Size = Size { seeds: 1, completions: 4_000 };

#[test]
fn inference_holds_in_every_scenario() {
    let found = examine(&shipped, SMALL);
    assert!(found.violations.is_empty(), "{:#?}", found.violations);
    assert!(found.scenarios > 100);
}

#[test]
fn inference_survives_denials_on_another_axis() {
    for per_mille in [10, 50, 100, 200] {
        assert_eq!(check_denials(&shipped, per_mille, 11), Ok(()), "{per_mille} of a thousand denied");
    }
}

#[test]
fn inference_is_bounded_by_timeouts_and_rests_when_under_used() {
    for initial in [4, 64, MOST] {
        assert_eq!(check_timeouts(&shipped, initial, 11), Ok(()), "from {initial}");
    }
    assert_eq!(check_hang(&shipped, 11), Ok(()));
    assert_eq!(check_light(&shipped, 11), Ok(()));
}

#[test]
fn inference_is_in_units_of_the_whole_and_never_dips() {
    assert_eq!(check_share(&shipped, 11), Ok(()));
    assert_eq!(check_dips(&shipped, 11), Ok(()));
}

#[test]
fn inference_finds_every_seeded_bug() {
    let outcome = find_seeded();
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 15);
    assert_eq!(examine_controls(), [] as [String; 0], "an invariant that also fails without the bug");
}

#[test]
fn inference_withstands_disturbances() {
    let (rows, broken) = examine_disturbances(&shipped, SMALL);
    assert!(broken.is_empty(), "{broken:#?}");
    assert_eq!(rows.len(), inference::DISTURBANCES.len());
}

#[test]
fn the_additive_rule_survives_denials_within_its_bounds() {
    assert_eq!(examine_aimd(SMALL).1, [] as [String; 0]);
}

#[test]
fn the_first_implementation_collapsed_when_another_axis_denied() {
    assert_eq!(first_implementation(0), 512);
    let saws = first_implementation(10);
    assert!((10..=150).contains(&saws), "{saws}");
    assert!(first_implementation(50) <= 6, "{}", first_implementation(50));
    assert_eq!(inference::LEAST, 4);
}

#[test]
fn inference_is_robust_to_long_tails() {
    for shape in SHAPES {
        for load in [0.8, 1.5] {
            let compared = compare(&|_| ours(), Scenario::new(shape, load, 8, (12_000, 10_000)), 2, false);
            assert_eq!(compared.violation(), None);
        }
    }
}

#[test]
fn inference_finds_every_seeded_bug_in_long_tails() {
    let (outcome, controls) = tails::find_seeded();
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 13);
    assert_eq!(controls, [] as [String; 0], "a scenario that also fails without the bug");
}

#[test]
fn slower_work_without_load_is_not_overload() {
    for shape in [Shape::Exponential, Shape::Bimodal3_5, Shape::Pareto2_2] {
        // From the middle of the warm-up on every call takes three times as long: a load of 0.25 becomes one of 0.75.
        let scenario = Scenario { slows_by: 3.0, ..Scenario::new(shape, 0.25, 32, (40_000, 10_000)) };
        let admitted = run(&mut ours(), scenario, 5).admitted;
        assert!(admitted >= 0.9, "{shape:?}: {admitted:.3} admitted");
    }
}
