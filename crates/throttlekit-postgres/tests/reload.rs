//! Invariant `reload-room` on PostgreSQL: a limit with other numbers continues from the existing use.

use crate::common::{self, builder};
use throttlekit::SharedLimiter;
use throttlekit::rate::Rate;
use throttlekit_verify::reload::examine_reload;

/// `cargo xtask verify reload-room` runs more.
const SCENARIOS: u64 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn reload_room_on_postgres() {
    common::clear("tk_reload").await;
    let make = |clock| builder("tk_reload").connections(2).clock(clock).connect();
    let report = examine_reload(make, 0..SCENARIOS).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.carried > 25 && report.off_grid > 2 && report.lent > 2, "{report:?}");
    assert!(report.at_other_pace > 25 && report.waits > 2, "{report:?}");
}

/// Five per hour exhausted, then a thousand per hour: 995 at once, by every kind of request.
#[tokio::test(flavor = "multi_thread")]
async fn a_raised_rate_applies_at_once_on_postgres() {
    let store = common::fresh("tk_raised").await;
    let limiter = |units| SharedLimiter::new(store.clone(), "raised", Rate::per_hour(units)).unwrap();
    let (few, many) = (limiter(5), limiter(1_000));
    for left in (0..5).rev() {
        assert_eq!(few.check("acme").await.unwrap().decision.remaining, left);
    }
    assert!(!few.check("acme").await.unwrap().decision.allowed);
    let raised = many.check("acme").await.unwrap().decision;
    assert!(raised.allowed && raised.remaining >= 994, "{raised:?}");
    assert!(!few.check("acme").await.unwrap().decision.allowed, "and nothing by going back");
}

/// Programs of an older version do not know paces, and keep deciding on the same rows while they run.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_an_older_version_keeps_deciding() {
    let store = common::fresh("tk_older").await;
    let limiter = SharedLimiter::new(store, "older", Rate::per_hour(5)).unwrap();
    let beside = common::client().await;
    let old = "tk_older.admit_one(NULL, 'tk:{older/acme}g:', 0, 720000000, 0, 3600000000, 0, 1)";
    let several = "tk_older.admit(NULL, '{\"tk:{older/acme}g:\"}', '{1}', '{1}', '{0}', \
                   '{720000000, 0, 3600000000, 0, 1}')";
    let passes = async |call: &str| {
        let row = beside.query_one(&format!("SELECT {call}"), &[]).await.unwrap();
        row.get::<_, Vec<i64>>(0)[0] == 1
    };
    assert!(limiter.check("acme").await.unwrap().decision.allowed);
    assert!(passes(old).await);
    assert!(passes(several).await);
    let decision = limiter.check("acme").await.unwrap().decision;
    assert_eq!((decision.allowed, decision.remaining), (true, 1));
    assert!(passes(old).await && !passes(old).await && !passes(several).await);
    assert!(!limiter.check("acme").await.unwrap().decision.allowed);
}
