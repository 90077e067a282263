//! `same-everywhere`: PostgreSQL gives the same responses as the pure rules, field by field, and keeps the
//! same states; and one hot key in several processes admits exactly its limit.

use std::hash::{BuildHasher, RandomState};

use crate::common::{self, builder};
use throttlekit_conformance::stores::{
    examine_store, examine_vectors, hot_key_contention, hot_key_in_processes, hot_key_policy,
};

/// `cargo xtask verify stores` runs many more.
const SCENARIOS: u64 = 600;

#[tokio::test(flavor = "multi_thread")]
async fn same_everywhere_on_postgres() {
    common::clear("tk_same").await;
    builder("tk_same").connect().await.unwrap();
    let make = |clock| builder("tk_same").connections(2).clock(clock).connect();
    let report = examine_store(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(report.unseen(), [""; 0], "{report}");
    let vectors = examine_vectors(make).await.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(vectors.traces >= 28);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_on_postgres() {
    let store = || builder("tk_hot").connections(4).connect();
    match hot_key_policy() {
        Some(policy) => hot_key_contention(store().await.unwrap(), &policy).await,
        None => {
            store().await.unwrap();
            let policy = format!("hot-{:x}", RandomState::new().hash_one(0));
            let seen = hot_key_in_processes("same_everywhere::a_hot_key_on_postgres", &policy);
            assert_eq!(seen.admitted, [seen.limit; 3]);
        }
    }
}
