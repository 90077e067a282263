//! Guarantees `lease-coupled` and `lease-rolling` on real processes: nodes that are killed, stopped and
//! disconnected, over a real server, each running the shipped limiter.

use std::time::Duration;

use crate::nodes::{
    Admission, Fault, NodeClock, NodePlan, Plan, Rolling, Rule, Windows, run, schedule_length, tell,
};

const LIMIT: u64 = 300;
const WINDOW: Duration = Duration::from_millis(500);
const COUPLED: Rule = Rule::Window { limit: LIMIT, length: WINDOW };

const FAULTS: &[Fault] = &[
    // Drawn evenly; more frequent faults are listed more often.
    Fault::Stop,
    Fault::Stop,
    Fault::Delay,
    Fault::Delay,
    Fault::Kill,
    Fault::Leave,
    Fault::LoseReply,
    Fault::Repeat,
    Fault::Repeat,
    Fault::HalfOpen,
    Fault::Reset,
    Fault::ScriptFlush,
    Fault::ClientPause,
];

/// Returns batches of several sizes, ahead of need and not, learned and not.
fn mixed() -> Vec<NodePlan> {
    let need_only = NodePlan { refill_at_percent: 0, ..NodePlan::leased(7) };
    let greedy = NodePlan { share: 1, refill_at_percent: 50, ..NodePlan::leased(60) };
    let by_ticks = NodePlan { clock: NodeClock::Tick, ..NodePlan::leased(30) };
    let precise = NodePlan { clock: NodeClock::Precise, ..NodePlan::auto() };
    vec![by_ticks, need_only.generous(), greedy, precise, NodePlan::auto().generous(), NodePlan::leased(1)]
}

fn never(_: &[Admission]) -> bool {
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_coupled_healthy_nodes_admit_exactly_the_limit() {
    let test = "nodes_invariants::lease_coupled_healthy_nodes_admit_exactly_the_limit";
    let plan = Plan {
        test,
        rule: COUPLED,
        nodes: mixed().into_iter().map(|node| NodePlan { thread_cache: false, ..node }).collect(),
        faults: &[],
    };
    let ran = run(&plan, Duration::from_secs(5), never).await;
    let windows = Windows::of(&ran.admissions, LIMIT, WINDOW);
    tell("coupled-healthy", &windows.facts(ran.whole));
    assert_eq!(windows.beyond, 0, "{:?}", windows.certain);
    let brisk = windows.brisk(ran.whole);
    let full = brisk.iter().filter(|(certain, _)| *certain == LIMIT).count();
    let maybe_full = brisk.iter().filter(|(_, possible)| *possible >= LIMIT).count();
    // On a machine that is busy elsewhere, a node keeps a few units unused now and then.
    assert!(
        full >= 1 && maybe_full * 2 >= brisk.len(),
        "{full} and {maybe_full} were used in full: {brisk:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_coupled_holds_under_faults() {
    let plan = Plan {
        test: "nodes_invariants::lease_coupled_holds_under_faults",
        rule: COUPLED,
        nodes: mixed(),
        faults: FAULTS,
    };
    let ran = run(&plan, schedule_length(6), never).await;
    let windows = Windows::of(&ran.admissions, LIMIT, WINDOW);
    let done = [("replies_lost", ran.lost), ("requests_repeated", ran.repeated)];
    tell("coupled-storm", &[&windows.facts(ran.whole)[..], &ran.struck.facts(), &done].concat());
    assert_eq!(windows.beyond, 0, "{:?}", windows.certain);
    assert_eq!(ran.struck.missing(), [], "every fault struck");
    assert!(ran.lost > 0 && ran.repeated > 0, "{} lost, {} repeated", ran.lost, ran.repeated);
    assert!(windows.most() >= LIMIT / 2, "too little passed to tell: {:?}", windows.certain);
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_rolling_holds_under_faults() {
    const RATE: u32 = 400;
    const BURST: u64 = 80;
    let hold = Duration::from_millis(60);
    let rule = Rule::Gcra { per_second: RATE, burst: BURST, hold };
    let plan = Plan {
        test: "nodes_invariants::lease_rolling_holds_under_faults",
        rule,
        nodes: mixed(),
        faults: FAULTS,
    };
    let ran = run(&plan, schedule_length(5), never).await;
    let rolling = Rolling::of(&ran.admissions, RATE);
    let bound = BURST + u64::from(RATE) * 60 / 1_000;
    let facts = [
        ("admitted", rolling.admitted),
        ("bound", bound),
        ("most", rolling.most()),
        ("beyond", rolling.most().saturating_sub(bound)),
    ];
    tell("rolling-storm", &[&facts[..], &ran.struck.facts()].concat());
    assert!(rolling.most() <= bound, "{} beyond rate·Δ, of {bound}", rolling.most());
    assert!(rolling.most() >= BURST / 2, "too little passed to tell: {}", rolling.most());
}

fn at(from: u64, to: u64, cost: u64) -> Admission {
    Admission { from: from * 1_000, to: to * 1_000, cost }
}

/// The judge itself: certain admissions count, one across an edge counts for both windows together.
#[test]
fn the_judge_blames_only_what_is_certain() {
    let beyond = |admissions: &[Admission]| Windows::of(admissions, 10, Duration::from_millis(100)).beyond;
    assert_eq!(beyond(&[at(0, 50, 10), at(100, 199, 10)]), 0);
    assert_eq!(beyond(&[at(0, 50, 10), at(99, 99, 1)]), 1);
    assert_eq!(beyond(&[at(0, 50, 10), at(99, 100, 1)]), 0, "it may be of the next window");
    assert_eq!(beyond(&[at(0, 50, 10), at(99, 100, 1), at(120, 130, 10)]), 1, "which is full as well");
    assert_eq!(beyond(&[at(0, 50, 10), at(99, 250, 1), at(120, 130, 10)]), 0, "or of the one after");
}

#[test]
fn the_judge_of_intervals_agrees_with_brute_force() {
    let mut dice = throttlekit_conformance::Dice::new(7);
    for _ in 0..200 {
        let admissions: Vec<_> = (0..dice.between(1, 30))
            .map(|_| {
                let from = dice.below(2_000);
                at(from, from + dice.below(50), dice.between(1, 9))
            })
            .collect();
        let within = |begin: u64, end: u64| {
            let inside = admissions.iter().filter(|one| one.from >= begin && one.to <= end);
            inside.map(|one| one.cost as i64 * 1_000_000).sum::<i64>() - (end - begin) as i64 * 20
        };
        let starts = admissions.iter().map(|one| one.from);
        let worst = starts
            .flat_map(|begin| admissions.iter().map(move |one| (begin, one.to)))
            .filter(|(begin, end)| begin <= end)
            .map(|(begin, end)| within(begin, end))
            .max();
        let worst = worst.unwrap().max(0) as u64;
        assert_eq!(Rolling::of(&admissions, 20).most(), worst.div_ceil(1_000_000));
    }
}
