//! Debits with identifiers on real engines: under contention and losses, with replicas that are waited for,
//! beside foreign keys.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{cluster, on_each, plain, policy, single, valkey};
use crate::rig::{DAY, Limiter, Pair};
use throttlekit::Limit;
use throttlekit::store::{Charge, Debit, DebitId, KeySpace, REMEMBER_DEFAULT, Store, StoreError};
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_redis::{Failover, RedisStore, RedisStoreBuilder};
use throttlekit_verify::budget::{self, Chunks, Setup, Way};

/// The network loses some; `cargo xtask verify budget` runs larger configurations.
const FLEET: Setup = Setup { gateways: 4, streams: 8, chunks: Chunks::Of(16), way: Way::Strict, loses: true };

async fn charges_each_debit_once(builder: RedisStoreBuilder) {
    let stores = [Arc::new(builder.connect().await.unwrap())];
    for setup in [FLEET, Setup { way: Way::Leased, ..FLEET }] {
        let seen = budget::run(&stores, &policy("budget"), setup).await;
        setup.check(&seen).unwrap_or_else(|violation| panic!("{violation}: {seen:?}"));
        assert!(setup.way == Way::Leased || (setup.is_tight(&seen) && seen.again > 10), "{seen:?}");
    }
}

on_each! { charges_each_debit_once:
    single => budget_holds_on_redis,
    cluster => budget_holds_on_a_redis_cluster,
    valkey => budget_holds_on_valkey,
}

/// The repeated debit gets no cached response while the replica has not received the charge.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_spent_only_when_replicas_have_the_charge() {
    let pair = Pair::start().await;
    let failover = Failover::Wait { replicas: 1, within: Duration::from_millis(200) };
    let builder = RedisStore::builder(pair.way.url()).deadline(Duration::from_secs(2)).failover(failover);
    let budget = Limit::token_budget(100, DAY).unwrap();
    let meter = Limiter::new(builder.connect().await.unwrap(), &policy("wait"), budget).unwrap();
    let id = DebitId { stream: 1, number: 1 };
    pair.replica.signal("STOP");
    for _ in 0..2 {
        let answer = meter.debit(("acme", 30), id).await.unwrap();
        assert!(!answer.decision.allowed && answer.outage.is_some(), "{answer:?}");
    }
    pair.replica.signal("CONT");
    let answer = meter.debit(("acme", 30), id).await.unwrap();
    assert_eq!((answer.outage, answer.decision.remaining), (None, 70), "charged once");
}

/// One pipeline: a debit whose identifier holds a foreign value gets an error, the others get their response.
#[tokio::test]
async fn a_foreign_value_under_an_identifier_is_an_error_of_its_debit_only() {
    let form = ScriptEncoding::of(&Limit::token_budget(10, DAY).unwrap()).unwrap();
    let space = KeySpace::new("tk", &policy("debits"), "", &form);
    let key = space.key(b"acme", b"acme");
    let mut beside = plain("THROTTLEKIT_REDIS").await;
    let name = format!("{key}:debit:2a");
    redis::cmd("SET").arg(&name).arg("not ours").arg("PX").arg(60_000).exec_async(&mut beside).await.unwrap();
    let debit = |stream| Debit {
        charge: Charge { key: &key, form: &form, cost: 4 },
        id: DebitId { stream, number: 1 },
        remember: REMEMBER_DEFAULT,
    };
    let answers = single().connect().await.unwrap().debit(&[debit(1), debit(0x2a), debit(3)]).await;
    assert!(matches!(&answers[1], Err(StoreError::BadState(key)) if key.contains(&*name)), "{answers:?}");
    let left = [&answers[0], &answers[2]].map(|a| a.as_ref().unwrap().outcome.decisions[0].remaining);
    assert_eq!(left, [6, 2]);
}
