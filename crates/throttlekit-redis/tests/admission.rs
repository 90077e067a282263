//! Unified admission on Redis and a Redis Cluster; `cargo xtask verify admission` runs many more traces.

use crate::common::{cluster, on_each, single};
use throttlekit_redis::RedisStoreBuilder;
use throttlekit_verify::admission::{PAIRS, examine_fused, examine_matrix, examine_priced};

/// The step between the cells of the matrix that are run.
const STEP: usize = 11;

async fn one_call_over_all_axes(builder: RedisStoreBuilder) {
    let store = builder.connect().await.unwrap();
    let make = move |clock| std::future::ready(Ok(store.at(clock)));
    let fused = examine_fused(make.clone(), 0..PAIRS).await;
    assert_eq!(fused.unwrap_or_else(|violation| panic!("{violation}")).traces, PAIRS);
    let matrix = examine_matrix(make.clone(), STEP, false).await;
    assert!(matrix.unwrap_or_else(|violation| panic!("{violation}")).adds_up());
    let priced = examine_priced(make, 0..60).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(priced.saw_all(), "{priced:?}");
}

on_each! { one_call_over_all_axes:
    single => admission_on_redis,
    cluster => admission_on_a_redis_cluster,
}
