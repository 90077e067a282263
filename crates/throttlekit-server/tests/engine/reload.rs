//! A file that is refused has changed nothing, whichever of its policies was at fault.

use throttlekit_server::internals::access::Principal;
use throttlekit_server::internals::engine::{Ended, Engine, WorkTerms};
use throttlekit_server::policy::PolicySpec;

use super::{allowed, ask, engine, file};

/// Policies come in the order of their names: these are built before the one that fails.
fn running(limit: u32, weight: u32) -> String {
    format!(
        "  a: {{concurrency: {{limit: {limit}}}}}
  b: {{concurrency: {{limit: {limit}, scope: key}}}}
  c: {{fair: {{limit: 100, per: 1d, weights: {{heavy: {weight}, light: 1}}}}}}
"
    )
}

/// Returns the number of concurrent admissions that a policy allows.
async fn at_once(engine: &Engine, policy: &str) -> usize {
    let (who, mut held) = (Principal::anyone(), Vec::new());
    while let Some(lease) = engine.admit(&who, ask(policy, "k", 1), WorkTerms::default()).await.unwrap().lease
    {
        held.push(lease.id);
    }
    assert!(held.iter().all(|lease| engine.release(&who, *lease, Ended::default())));
    held.len()
}

/// Returns the limit reported to the heavy tenant, of a budget that two share.
async fn share(engine: &Engine) -> u64 {
    let mut told = 0;
    for key in ["heavy", "light", "heavy"] {
        told = engine.check(ask("c", key, 1)).await.unwrap().decision.limit;
    }
    told
}

#[tokio::test]
async fn a_refused_file_leaves_ceilings_slots_and_weights_as_they_were() {
    let engine = engine(&running(2, 1));
    let even = share(&engine).await;
    let mut bad = file(&running(5, 9));
    bad.policies.insert("z".into(), PolicySpec::default());
    assert!(engine.reload(bad).await.unwrap_err().to_string().contains("`z`"));
    let limits = |engine: &Engine| engine.guards().iter().map(|guard| guard.limit).collect::<Vec<_>>();
    assert_eq!(limits(&engine), [2, 2]);
    assert_eq!(share(&engine).await, even, "the weights");
    assert_eq!(at_once(&engine, "a").await, 2, "the ceiling of this instance");
    assert_eq!(at_once(&engine, "b").await, 2, "the slots of a key");

    let reloaded = engine.reload(file(&running(5, 9))).await.unwrap();
    assert!(reloaded.warnings.is_empty(), "{reloaded:?}");
    assert_eq!(limits(&engine), [5, 5], "a good one is put in force");
    assert!(share(&engine).await > even);
    assert_eq!(at_once(&engine, "a").await, 5);
}

/// Five an hour are used up; then one customer is given a thousand. Asked in every way there is.
#[tokio::test]
async fn an_override_gives_a_used_up_key_room_at_once() {
    let hourly = |overrides: &str| file(&format!("  hourly: {{rate: {{limit: 5, per: 1h}}{overrides}}}\n"));
    let engine = engine("  hourly: {rate: {limit: 5, per: 1h}}\n");
    assert_eq!(allowed(&engine, "hourly", "acme", 7).await, 5);
    assert_eq!(allowed(&engine, "hourly", "other", 7).await, 5);
    engine.reload(hourly(", overrides: {acme: {rate: {limit: 1000, per: 1h}}}")).await.unwrap();
    let peeked = engine.peek(ask("hourly", "acme", 1)).await.unwrap().decision;
    assert!(peeked.allowed && (995..=1_000).contains(&peeked.remaining), "{peeked:?}");
    let checked = engine.check(ask("hourly", "acme", 1)).await.unwrap().decision;
    assert!(checked.allowed && checked.limit == 1_000 && checked.remaining >= 994, "{checked:?}");
    assert_eq!(allowed(&engine, "hourly", "other", 3).await, 0, "the others stay limited");
    // Taken back, what was used in the meantime stays used.
    assert!(engine.check(ask("hourly", "acme", 20)).await.unwrap().decision.allowed);
    engine.reload(hourly("")).await.unwrap();
    assert_eq!(allowed(&engine, "hourly", "acme", 3).await, 0, "no fresh budget from a change and back");
}

/// The same where servers lease what they admit.
#[tokio::test]
async fn an_override_gives_a_used_up_key_room_where_units_are_leased() {
    let rate = |limit: u32| format!("rate: {{limit: {limit}, per: 1h, lease: {{mode: leased, batch: 5}}}}");
    let engine = engine(&format!("  p: {{{}}}\n", rate(5)));
    assert!(allowed(&engine, "p", "acme", 9).await >= 1);
    let raised = format!("  p: {{{}, overrides: {{acme: {{{}}}}}}}\n", rate(5), rate(1_000));
    engine.reload(file(&raised)).await.unwrap();
    // What was lent before and died unspent stays used.
    let passed = allowed(&engine, "p", "acme", 200).await;
    assert!((100..=200).contains(&passed), "{passed}");
}
