//! Debits with identifiers on a real server: under contention and losses, swept in time, and after an
//! upgrade.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{ask, builder, clear, client, form, fresh};
use throttlekit::Limit;
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::store::{Charge, Debit, DebitId, Debited, REMEMBER_DEFAULT, Store, StoreError};
use throttlekit_postgres::PostgresStore;
use throttlekit_verify::budget::{self, Chunks, Setup, Way};

/// The network loses some; `cargo xtask verify budget` runs larger configurations.
const FLEET: Setup = Setup { gateways: 4, streams: 8, chunks: Chunks::Of(16), way: Way::Strict, loses: true };
const HOUR: Duration = Duration::from_secs(3_600);

fn tokens(budget: u64) -> ScriptEncoding {
    form(Limit::token_budget(budget, HOUR).unwrap())
}

async fn debit(
    store: &PostgresStore,
    form: &ScriptEncoding,
    number: u64,
    cost: u64,
) -> Result<Debited, StoreError> {
    let charge = Charge { key: "k", form, cost };
    let debit = Debit { charge, id: DebitId { stream: 7, number }, remember: REMEMBER_DEFAULT };
    store.debit(&[debit]).await.pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_holds_on_postgres() {
    let stores = [Arc::new(fresh("tk_budget_contention").await)];
    for setup in [FLEET, Setup { way: Way::Leased, ..FLEET }] {
        let seen = budget::run(&stores, &format!("{:?}", setup.way), setup).await;
        setup.check(&seen).unwrap_or_else(|violation| panic!("{violation}: {seen:?}"));
        assert!(setup.way == Way::Leased || (setup.is_tight(&seen) && seen.again > 10), "{seen:?}");
    }
}

#[tokio::test]
async fn a_debit_is_swept_when_it_has_been_over_for_the_grace() {
    let schema = "tk_budget_sweep";
    clear(schema).await;
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let store = builder(schema).clock(clock.clone()).grace(Duration::from_secs(2)).connect().await.unwrap();
    let form = tokens(10);
    debit(&store, &form, 1, 4).await.unwrap();
    store.reset(&["k"]).await.unwrap();
    assert!(debit(&store, &form, 1, 4).await.unwrap().repeated, "a reset forgets no debit");

    clock.advance(REMEMBER_DEFAULT + Duration::from_secs(2));
    assert_eq!(store.sweep(1_000).await.unwrap(), 0);
    clock.advance(Duration::from_micros(1));
    assert_eq!(store.sweep(1_000).await.unwrap(), 1);
    assert!(!debit(&store, &form, 1, 4).await.unwrap().repeated);
}

/// A schema of version 2, without debits and pools, is rejected until it is upgraded, and keeps its data.
#[tokio::test]
async fn a_schema_without_debits_is_upgraded() {
    let schema = "tk_budget_upgrade";
    let (store, form) = (fresh(schema).await, tokens(10));
    ask(&store, "k", &form, 6).await.unwrap();
    let older = "DROP FUNCTION tk_budget_upgrade.debit; DROP TABLE tk_budget_upgrade.debits;
                 DROP FUNCTION tk_budget_upgrade.grant_region; DROP FUNCTION tk_budget_upgrade.pool_share;
                 DROP TABLE tk_budget_upgrade.pool; DROP FUNCTION tk_budget_upgrade.slot_acquire;
                 DROP TABLE tk_budget_upgrade.slots; DROP TABLE tk_budget_upgrade.slot_keys;
                 UPDATE tk_budget_upgrade.version SET number = 2";
    client().await.batch_execute(older).await.unwrap();
    let error = builder(schema).migrate_on_connect(false).connect().await.unwrap_err();
    assert!(matches!(&error, StoreError::Misconfigured(why) if why.contains("version 2, not 7")), "{error}");
    let store = builder(schema).connect().await.unwrap();
    let debited = debit(&store, &form, 1, 3).await.unwrap();
    assert_eq!(debited.outcome.decisions[0].remaining, 1);
    let pool = client().await.query_one("SELECT count(*) FROM tk_budget_upgrade.pool", &[]).await.unwrap();
    assert_eq!(pool.get::<_, i64>(0), 0, "pools are there, and empty");
}
