//! Leasing on a real server: denials are free, each request gets its own response, returns count once,
//! nothing waits forever.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, ask, builder, clear, client, dump, form, fresh};
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::store::{
    LeaseRequest, LeaseReturn, Leased, Loan, Return, ReturnId, Store, StoreError, Term, Want,
};
use throttlekit::{Limit, Rate};
use throttlekit_conformance::Dice;
use throttlekit_conformance::stores::lend_contention;
use throttlekit_postgres::PostgresStore;

const HOUR: Duration = Duration::from_secs(3_600);
const YEARS: Duration = Duration::from_secs(36_000_000);

fn window(units: u64, length: Duration) -> ScriptEncoding {
    form(Limit::fixed_window(units, length).unwrap())
}

fn lease<'a>(key: &'a str, form: &'a ScriptEncoding, wants: u64) -> LeaseRequest<'a> {
    let term = if let Limit::Gcra(_) = form.limit() { Term::Rolling(HOUR) } else { Term::Window };
    LeaseRequest { key, form, term, want: Want { wants, least: 1, share: 1 } }
}

async fn lend(store: &PostgresStore, ask: LeaseRequest<'_>) -> Leased {
    store.lease(&[ask]).await.pop().unwrap().unwrap()
}

fn back<'a>(key: &'a str, form: &'a ScriptEncoding, id: u128, loan: &Loan, units: u64) -> LeaseReturn<'a> {
    LeaseReturn { key, form, id: ReturnId(id), back: Return { epoch: loan.epoch, units } }
}

async fn names(schema: &str) -> i64 {
    let text = format!("SELECT count(*) FROM {schema}.returned");
    client().await.query_one(&text, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn leased_units_never_exceed_the_limit_and_none_is_lost() {
    let seen = lend_contention(fresh("tk_lend_contention").await, "contention").await;
    println!("{seen:?}");
    assert!(seen.most_out <= seen.limit && seen.lent > seen.limit && seen.parts > 0, "{seen:?}");
    assert_eq!(seen.out, seen.limit, "{seen:?}");
}

/// Row for row and version for version, locks included, as for a denial.
#[tokio::test]
async fn a_denied_lease_is_free() {
    let schema = "tk_lend_refusal";
    let store = fresh(schema).await;
    let beside = client().await;
    let forms = [window(5, HOUR), form(Limit::gcra(Rate::per_hour(5)).unwrap())];
    for (key, form) in ["w", "g"].into_iter().zip(&forms) {
        assert_eq!(lend(&store, lease(key, form, 9)).await.loan.granted, 5);
        let before = dump(&beside, schema).await;
        let never =
            LeaseRequest { want: Want { wants: 9, least: 6, share: 1 }, ..lease("never seen", form, 9) };
        let lent = store.lease(&[lease(key, form, 9), never]).await;
        assert!(lent.iter().all(|lent| lent.as_ref().unwrap().loan.granted == 0), "{lent:?}");
        assert_eq!(dump(&beside, schema).await, before);
    }
}

/// A row inserted for a request of the same batch is removed again.
#[tokio::test]
async fn a_denied_lease_in_a_batch_leaves_no_row() {
    let schema = "tk_lend_beside";
    let (store, form) = (fresh(schema).await, window(5, HOUR));
    let never = LeaseRequest { want: Want { wants: 9, least: 6, share: 1 }, ..lease("a", &form, 9) };
    let lent = store.lease(&[never, lease("b", &form, 2)]).await;
    assert_eq!(lent.iter().map(|lent| lent.as_ref().unwrap().loan.granted).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(dump(&client().await, schema).await.len(), 1);
}

#[tokio::test]
async fn a_foreign_row_is_an_error_of_its_request_only() {
    let schema = "tk_lend_foreign";
    let store = fresh(schema).await;
    let beside = client().await;
    let text =
        "INSERT INTO tk_lend_foreign.state VALUES ('bad', 9000000000000000, -5, NULL, 9000000000000000),
                ('far', 9223372036854775807, 0, NULL, 9000000000000000)";
    beside.batch_execute(text).await.unwrap();
    let (form, log) = (window(10, HOUR), form(Limit::sliding_log(10, HOUR).unwrap()));
    let bucket = common::form(Limit::gcra(Rate::per_hour(5)).unwrap());
    let asks = [
        lease("good", &form, 4),
        lease("bad", &form, 4),
        lease("good", &log, 4),
        lease("far", &bucket, 4),
        lease("good", &form, 4),
    ];
    let lent = store.lease(&asks).await;
    assert!(matches!(&lent[1], Err(StoreError::BadState(why)) if why.contains("bad")), "{lent:?}");
    assert!(matches!(&lent[2], Err(StoreError::Misconfigured(_))), "{lent:?}");
    assert!(matches!(&lent[3], Err(StoreError::BadState(why)) if why.contains("far")), "{lent:?}");
    let left = [&lent[0], &lent[4]].map(|lent| lent.as_ref().unwrap().loan.decision.remaining);
    assert_eq!(left, [6, 2]);
    let loan = lent[0].as_ref().unwrap().loan;
    let error = store.give_back(&[back("bad", &form, 1, &loan, 1)]).await.unwrap_err();
    assert!(matches!(&error, StoreError::BadState(why) if why.contains("bad")), "{error}");
    let error = store.give_back(&[back("good", &log, 1, &loan, 1)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Misconfigured(_)), "{error}");
    assert!(!store.line_stats().open, "foreign rows are no outage");
}

/// Another session holds the row over the end of a window of one second. The lease belongs to the window in
/// which it was made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_waited_belongs_to_the_window_in_which_the_wait_ended() {
    let schema = "tk_lend_boundary";
    let (store, form) = (Arc::new(fresh(schema).await), window(3, Duration::from_secs(1)));
    let first = lend(&store, lease("k", &form, 2)).await;
    let mut holder = client().await;
    let held = holder.transaction().await.unwrap();
    held.query("SELECT * FROM tk_lend_boundary.state FOR UPDATE", &[]).await.unwrap();
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { lend(&store, lease("k", &form, 9)).await })
    };
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    held.rollback().await.unwrap();
    let second = waiting.await.unwrap();
    assert!(second.now.since(first.now) >= Duration::from_millis(1_400), "decided after the wait");
    assert!(second.loan.epoch > first.loan.epoch && second.loan.granted == 3, "{first:?} {second:?}");
    store.give_back(&[back("k", &form, 1, &first.loan, 2)]).await.unwrap();
    let third = lend(&store, lease("k", &form, 9)).await;
    assert!(third.loan.granted == 0 || third.loan.epoch > second.loan.epoch, "{third:?}");
}

/// 48 tasks lease and return several keys at once, in random orders, with copies in other orders. None waits
/// forever, none is rolled back by the server, and in the end every unit is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_returns_in_any_order_do_not_deadlock() {
    const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let store = Arc::new(fresh("tk_lend_orders").await);
    let form = window(1_000_000, YEARS);
    let deadlocks = async || -> i64 {
        let text = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        client().await.query_one(text, &[]).await.unwrap().get(0)
    };
    let before = deadlocks().await;
    let tasks = (0..48_u64).map(|seed| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut dice = Dice::new(seed);
            for round in 0..6_u64 {
                let keys: Vec<&str> = (0..1 + dice.below(4)).map(|_| KEYS[dice.below(5) as usize]).collect();
                let asks: Vec<_> = keys.iter().map(|key| lease(key, &form, 1 + dice.below(9))).collect();
                let lent = store.lease(&asks).await;
                let mut backs: Vec<_> = keys
                    .iter()
                    .zip(&lent)
                    .zip(0_u64..)
                    .map(|((key, lent), i)| {
                        let loan = lent.as_ref().unwrap().loan;
                        let id = u128::from((seed * 100 + round) * 100 + i);
                        back(key, &form, id, &loan, loan.granted)
                    })
                    .collect();
                let given = backs.clone();
                backs.reverse();
                let (first, copy) = tokio::join!(store.give_back(&given), store.give_back(&backs));
                first.and(copy).unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let text = "SELECT sum(b)::bigint FROM tk_lend_orders.state";
    assert_eq!(client().await.query_one(text, &[]).await.unwrap().get::<_, i64>(0), 0);
    assert_eq!(deadlocks().await, before);
}

/// A return counts once, also where its key was forgotten meanwhile; its identifier is deleted when its
/// window has been over for the grace period, not a microsecond earlier.
#[tokio::test]
async fn return_identifiers_last_as_long_as_their_windows() {
    let schema = "tk_lend_names";
    clear(schema).await;
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let store = builder(schema).clock(clock.clone()).grace(Duration::from_secs(2)).connect().await.unwrap();
    let form = window(10, Duration::from_secs(10));
    let loan = lend(&store, lease("k", &form, 8)).await.loan;
    let given = back("k", &form, 7, &loan, 5);
    store.give_back(&[given, given]).await.unwrap();
    assert_eq!(lend(&store, lease("k", &form, 9)).await.loan.granted, 7);
    store.reset(&["k"]).await.unwrap();
    lend(&store, lease("k", &form, 10)).await;
    store.give_back(&[given]).await.unwrap();
    assert_eq!(lend(&store, lease("k", &form, 9)).await.loan.granted, 0, "it was counted before the reset");
    store.give_back(&[back("k", &form, 8, &loan, 0)]).await.unwrap();
    assert_eq!(names(schema).await, 1, "nothing given back has no name");

    clock.advance(Duration::from_secs(12));
    assert_eq!(store.sweep(1_000).await.unwrap(), 0);
    clock.advance(Duration::from_micros(1));
    assert_eq!(store.sweep(1).await.unwrap(), 1, "the row");
    assert_eq!((store.sweep(1_000).await.unwrap(), names(schema).await), (1, 0), "the name");
}

/// A schema of version 1, without leases, is rejected until it is upgraded, and keeps its data.
#[tokio::test]
async fn a_schema_without_leases_is_upgraded() {
    let schema = "tk_lend_upgrade";
    let (store, form) = (fresh(schema).await, window(10, YEARS));
    ask(&store, "k", &form, 6).await.unwrap();
    let older = "DROP TABLE tk_lend_upgrade.returned; DROP FUNCTION tk_lend_upgrade.lend;
                 DROP FUNCTION tk_lend_upgrade.give_back;
                 UPDATE tk_lend_upgrade.version SET number = 1";
    client().await.batch_execute(older).await.unwrap();
    let error = builder(schema).migrate_on_connect(false).connect().await.unwrap_err();
    assert!(matches!(&error, StoreError::Misconfigured(why) if why.contains("version 1, not 7")), "{error}");
    let store = builder(schema).connect().await.unwrap();
    let loan = lend(&store, lease("k", &form, 10)).await.loan;
    assert_eq!(loan.granted, 4);
    store.give_back(&[back("k", &form, 1, &loan, 4)]).await.unwrap();
    assert_eq!(ask(&store, "k", &form, 4).await.unwrap().verdict.decision.remaining, 0);
}
