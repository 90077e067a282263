//! Nodes with seeded bugs, which the judge of `nodes_invariants.rs` must find.

use std::time::Duration;

use crate::nodes::{Broken, Fault, NodePlan, Plan, Rolling, Rule, Windows, run, tell};

const LIMIT: u64 = 300;
const WINDOW: Duration = Duration::from_millis(500);
const COUPLED: Rule = Rule::Window { limit: LIMIT, length: WINDOW };
const BATCH: u64 = 60;
/// The time limit of finding a bug.
const CAUGHT_WITHIN: Duration = Duration::from_secs(18);

/// One node of four has a bug.
async fn is_caught(name: &str, test: &'static str, broken: Broken, faults: &'static [Fault]) {
    // Units that are returned at once cannot be held for too long, and units that are kept are not returned
    // twice.
    let one = NodePlan { share: 1, ..NodePlan::leased(BATCH) }.broken(broken);
    let one = if broken == Broken::ReturnsTwice { one.generous() } else { one };
    let good = || NodePlan { share: 1, ..NodePlan::leased(BATCH) };
    let nodes = vec![one, good(), good(), good()];
    let plan = Plan { test, rule: COUPLED, nodes, faults };
    let judged = |admissions: &[_]| Windows::of(admissions, LIMIT, WINDOW);
    let ran = run(&plan, CAUGHT_WITHIN, |admissions| judged(admissions).beyond > 0).await;
    let windows = judged(&ran.admissions);
    let caught = u64::from(windows.beyond > 0);
    tell(name, &[&windows.facts(ran.whole)[..], &[("seeded", 1), ("caught", caught)]].concat());
    assert_eq!(caught, 1, "{broken:?} went unseen: {:?}", windows.certain);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_runs_slow_is_caught() {
    is_caught("slow-clock", "nodes_seeded::a_clock_that_runs_slow_is_caught", Broken::SlowClock(2), &[])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_stops_with_its_process_is_caught() {
    let test = "nodes_seeded::a_clock_that_stops_with_its_process_is_caught";
    is_caught("frozen-clock", test, Broken::FrozenClock, &[Fault::Stop]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_live_from_the_reply_on_are_caught() {
    let test = "nodes_seeded::units_that_live_from_the_reply_on_are_caught";
    is_caught("anchored-at-reply", test, Broken::AnchoredAtReply, &[Fault::Delay]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_under_two_identifiers_is_caught() {
    is_caught(
        "returns-twice",
        "nodes_seeded::a_return_under_two_identifiers_is_caught",
        Broken::ReturnsTwice,
        &[],
    )
    .await;
}

/// Carrying over is an option with another bound: the units that N nodes hold, B each.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_carry_units_over_exceed_the_limit_and_keep_their_own_bound() {
    const NODES: u64 = 4;
    let test = "nodes_seeded::nodes_that_carry_units_over_exceed_the_limit_and_keep_their_own_bound";
    let node = NodePlan { share: 1, carry: Some(NODES), ..NodePlan::leased(BATCH) };
    let plan = Plan { test, rule: COUPLED, nodes: vec![node; NODES as usize], faults: &[] };
    let ran = run(&plan, Duration::from_secs(4), |_| false).await;
    let windows = Windows::of(&ran.admissions, LIMIT, WINDOW);
    let caught = u64::from(windows.beyond > 0);
    tell("carry", &[&windows.facts(ran.whole)[..], &[("seeded", 1), ("caught", caught)]].concat());
    assert_eq!(caught, 1, "{:?}", windows.certain);
    let bound = NODES * BATCH;
    assert!(windows.beyond <= bound, "{} beyond the limit, of {bound}", windows.beyond);
}

#[tokio::test(flavor = "multi_thread")]
async fn units_of_a_rate_that_live_too_long_are_caught() {
    const RATE: u32 = 400;
    const BURST: u64 = 80;
    let test = "nodes_seeded::units_of_a_rate_that_live_too_long_are_caught";
    let rule = Rule::Gcra { per_second: RATE, burst: BURST, hold: Duration::from_millis(50) };
    let node = NodePlan { share: 1, ..NodePlan::leased(BATCH) }.broken(Broken::SlowClock(20));
    let plan = Plan { test, rule, nodes: vec![node; 4], faults: &[] };
    let bound = BURST + u64::from(RATE) / 20;
    let ran = run(&plan, CAUGHT_WITHIN, |admissions| Rolling::of(admissions, RATE).most() > bound).await;
    let rolling = Rolling::of(&ran.admissions, RATE);
    let caught = u64::from(rolling.most() > bound);
    let facts = [("admitted", rolling.admitted), ("bound", bound), ("most", rolling.most())];
    tell("slow-clock-rolling", &[&facts[..], &[("seeded", 1), ("caught", caught)]].concat());
    assert_eq!(caught, 1, "{} beyond rate·Δ, of {bound}", rolling.most());
}
