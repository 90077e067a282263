//! Leasing on real engines: under contention, and beside foreign keys.

use std::time::Duration;

use crate::common::{cluster, on_each, plain, policy, single, valkey};
use throttlekit::Limit;
use throttlekit::store::{KeySpace, LeaseRequest, Store, StoreError, Term, Want};
use throttlekit_conformance::stores::lend_contention;
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_redis::RedisStoreBuilder;

async fn lends_the_limit_and_no_more(builder: RedisStoreBuilder) {
    let seen = lend_contention(builder.connect().await.unwrap(), &policy("lending")).await;
    println!("{seen:?}");
    assert!(seen.most_out <= seen.limit && seen.lent > seen.limit && seen.parts > 0, "{seen:?}");
    assert_eq!(seen.out, seen.limit, "{seen:?}");
}

on_each! { lends_the_limit_and_no_more:
    single => lent_units_are_never_more_than_the_limit_and_none_is_lost_on_redis,
    cluster => lent_units_are_never_more_than_the_limit_and_none_is_lost_on_a_redis_cluster,
    valkey => lent_units_are_never_more_than_the_limit_and_none_is_lost_on_valkey,
}

/// One pipeline: the request for a foreign key gets an error, so does the one for a limit that cannot be
/// leased, and the others are granted.
#[tokio::test]
async fn a_foreign_key_is_an_error_of_its_request_only() {
    let hour = Duration::from_secs(3_600);
    let [window, log] = [Limit::fixed_window(10, hour), Limit::sliding_log(10, hour)]
        .map(|limit| ScriptEncoding::of(&limit.unwrap()).unwrap());
    let space = KeySpace::new("tk", &policy("lending"), "", &window);
    let [good, bad, other] = ["good", "bad", "other"].map(|key| space.key(b"one place", key.as_bytes()));
    let mut beside = plain("THROTTLEKIT_REDIS").await;
    redis::cmd("SET").arg(&bad).arg("not ours").arg("PX").arg(60_000).exec_async(&mut beside).await.unwrap();
    let want = Want { wants: 4, least: 1, share: 1 };
    let ask = |key, form| LeaseRequest { key, form, term: Term::Window, want };
    let asks = [ask(&good, &window), ask(&bad, &window), ask(&other, &log), ask(&good, &window)];
    let store = single().connect().await.unwrap();
    let lent = store.lease(&asks).await;
    assert!(matches!(&lent[1], Err(StoreError::BadState(key)) if key.contains(&*bad)), "{lent:?}");
    assert!(matches!(&lent[2], Err(StoreError::Misconfigured(_))), "{lent:?}");
    let left = [&lent[0], &lent[3]].map(|lent| lent.as_ref().unwrap().loan.decision.remaining);
    assert_eq!(left, [6, 2]);
}
