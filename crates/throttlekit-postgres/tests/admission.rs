//! Unified admission on PostgreSQL; `cargo xtask verify admission` runs many more traces.

use crate::common::{self, builder};
use throttlekit_verify::admission::{PAIRS, examine_fused, examine_matrix, examine_priced};

/// The step between the cells of the matrix that are run.
const STEP: usize = 23;

#[tokio::test(flavor = "multi_thread")]
async fn admission_on_postgres() {
    common::clear("tk_admission_test").await;
    builder("tk_admission_test").connect().await.unwrap();
    let make = |clock| builder("tk_admission_test").connections(1).clock(clock).connect();
    let fused = examine_fused(make, 0..PAIRS).await;
    assert_eq!(fused.unwrap_or_else(|violation| panic!("{violation}")).traces, PAIRS);
    let matrix = examine_matrix(make, STEP, false).await;
    assert!(matrix.unwrap_or_else(|violation| panic!("{violation}")).adds_up());
    let priced = examine_priced(make, 0..60).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(priced.saw_all(), "{priced:?}");
}
