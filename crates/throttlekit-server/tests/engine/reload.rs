//! A file that is refused has changed nothing, whichever of its policies was at fault.

use throttlekit_server::access::Principal;
use throttlekit_server::engine::{Ended, Engine};
use throttlekit_server::policy::PolicySpec;

use super::{ask, engine, file};

/// Policies come in the order of their names: these are built before the one that fails.
fn running(limit: u32, weight: u32) -> String {
    format!(
        "  a: {{concurrency: {{limit: {limit}}}}}
  b: {{concurrency: {{limit: {limit}, scope: key}}}}
  c: {{fair: {{limit: 100, per: 1d, weights: {{heavy: {weight}, light: 1}}}}}}
"
    )
}

/// How many admissions of a policy pass at once.
async fn at_once(engine: &Engine, policy: &str) -> usize {
    let (who, mut held) = (Principal::anyone(), Vec::new());
    while let Some(lease) = engine.admit(&who, ask(policy, "k", 1), 1.0, None).await.unwrap().lease {
        held.push(lease.id);
    }
    assert!(held.iter().all(|lease| engine.release(&who, *lease, Ended::default())));
    held.len()
}

/// What the heavy tenant is told that it may have, of what two share.
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
    assert!(engine.reload(bad).await.unwrap_err().contains("`z`"));
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
