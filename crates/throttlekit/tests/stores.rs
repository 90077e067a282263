//! `same-everywhere`: the store in memory gives the same responses as the pure rules, field by field, and
//! keeps the same states.
#![cfg(feature = "store")]

use std::sync::Arc;

use throttlekit::store::MemoryStore;
use throttlekit_conformance::stores::{STORE_SCENARIOS, examine_store, examine_vectors, lend_contention};

#[tokio::test(flavor = "multi_thread")]
async fn same_everywhere_in_a_memory_store() {
    let make = |clock| async { Ok(MemoryStore::with_clock(clock).memory_budget(1 << 20)) };
    let report =
        examine_store(make, 0..STORE_SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(report.unseen(), [""; 0], "{report}");
    println!("{report}");
}

#[tokio::test]
async fn same_everywhere_on_the_vectors() {
    let make = |clock| async { Ok(MemoryStore::with_clock(clock).memory_budget(1 << 20)) };
    let report = examine_vectors(make).await.unwrap_or_else(|difference| panic!("{difference}"));
    assert_eq!((report.traces, report.left_out.len()), (33, 1), "{:?}", report.left_out);
}

#[tokio::test(flavor = "multi_thread")]
async fn leased_units_never_exceed_the_limit_and_none_is_lost_in_memory() {
    let seen = lend_contention(Arc::new(MemoryStore::new()), "contention").await;
    assert!(seen.most_out <= seen.limit && seen.lent > seen.limit && seen.parts > 0, "{seen:?}");
    assert_eq!(seen.out, seen.limit, "{seen:?}");
}
