//! Law `reload` on PostgreSQL: a limit with other numbers goes on from what was used.

mod common;

use common::builder;
use throttlekit_conformance::reload::examine_reload;

const WORLDS: u64 = 500;

#[tokio::test(flavor = "multi_thread")]
async fn reload_on_postgres() {
    common::clear("tk_reload").await;
    let make = |clock| builder("tk_reload").connections(2).clock(clock).connect();
    let report = examine_reload(make, 0..WORLDS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.carried > 100 && report.off_grid > 10 && report.lent > 10, "{report:?}");
}
