//! `same-everywhere`: Redis, Redis Cluster and Valkey give the same responses as the pure rules, field by
//! field, and keep the same states.

use crate::common::{cluster, on_each, single, valkey};
use throttlekit_conformance::stores::{examine_store, examine_vectors};
use throttlekit_redis::RedisStoreBuilder;

/// Scenarios per engine; `cargo xtask verify stores` runs many more.
const SCENARIOS: u64 = 600;

async fn answers_as_the_rules_do(builder: RedisStoreBuilder) {
    let store = builder.connect().await.unwrap();
    let make = move |clock| std::future::ready(Ok(store.at(clock)));
    let report = examine_store(make.clone(), 0..SCENARIOS).await;
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(report.unseen(), [""; 0], "{report}");
    println!("{report}");
    let vectors = examine_vectors(make).await;
    assert!(vectors.unwrap_or_else(|difference| panic!("{difference}")).traces >= 28);
}

on_each! { answers_as_the_rules_do:
    single => same_everywhere_on_redis,
    cluster => same_everywhere_on_a_redis_cluster,
    valkey => same_everywhere_on_valkey,
}
