//! The invariants on a real server: denials are free, limits hold under contention, nothing waits forever.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{ask, builder, clear, client, dump, form, fresh};
use throttlekit::clock::ManualClock;
use throttlekit::rate::{Cadence, Need, SlidingWindow, Timestamp};
use throttlekit::store::{Charge, Charges, Settlement, Store, StoreError};
use throttlekit::{Limit, Rate};
use throttlekit_conformance::Dice;

fn kinds() -> [Limit; 5] {
    let hour = Duration::from_secs(3_600);
    [
        Limit::gcra(Rate::per_hour(5)).unwrap(),
        Limit::fixed_window(5, hour).unwrap(),
        Limit::quota(5, Cadence::Month { utc_offset_minutes: 60 }).unwrap(),
        SlidingWindow::new(5, hour, 6).unwrap().into(),
        Limit::sliding_log(5, hour).unwrap(),
    ]
}

/// Row for row and version for version, locks included: a denial leaves the table unchanged, whether of one
/// charge, of several, or on new keys.
#[tokio::test]
async fn deny_is_free() {
    let schema = "tk_test_deny";
    let store = fresh(schema).await;
    let beside = client().await;
    for (i, limit) in kinds().into_iter().enumerate() {
        let (form, roomy) = (form(limit), form(Limit::gcra(Rate::per_second(1_000)).unwrap()));
        let (full, other) = (format!("full{i}"), format!("other{i}"));
        assert!(ask(&store, &full, &form, 5).await.unwrap().verdict.decision.allowed);
        assert!(ask(&store, &other, &roomy, 1).await.unwrap().verdict.decision.allowed);
        let before = dump(&beside, schema).await;
        let charges = [(&*other, &roomy), (&full, &form), ("never seen", &roomy)];
        let charges = charges.map(|(key, form)| Charge { key, form, cost: 1 });
        let asks = [&charges[..], &charges[1..2]].map(|charges| Charges { need: Need::All, charges });
        for flight in [&asks[..1], &asks[1..], &asks] {
            let outcomes = store.admit(flight).await.unwrap();
            assert!(outcomes.iter().all(|outcome| !outcome.verdict.decision.allowed));
        }
        assert!(!ask(&store, &full, &form, 6).await.unwrap().verdict.decision.allowed);
        assert!(!ask(&store, "never seen", &form, 6).await.unwrap().verdict.decision.allowed);
        ask(&store, &other, &roomy, 0).await.unwrap();
        assert_eq!(dump(&beside, schema).await, before, "{limit:?}");
    }
}

/// A denial of several charges that is only known once the rows are locked removes the rows it inserted.
#[tokio::test]
async fn deny_is_free_also_when_it_comes_late() {
    let schema = "tk_test_late";
    let store = Arc::new(fresh(schema).await);
    let (tight, roomy) =
        (form(Limit::fixed_window(1, Duration::from_secs(3_600)).unwrap()), form(kinds()[0]));
    let mut tasks = Vec::new();
    for i in 0..40 {
        let (store, tight, roomy) = (store.clone(), tight, roomy);
        tasks.push(tokio::spawn(async move {
            let own = format!("a{i}");
            let charges =
                [("z", &tight), (own.as_str(), &roomy)].map(|(key, form)| Charge { key, form, cost: 1 });
            let asks = [Charges { need: Need::All, charges: &charges }];
            store.admit(&asks).await.unwrap()[0].verdict.decision.allowed
        }));
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += u64::from(task.await.unwrap());
    }
    assert_eq!(admitted, 1);
    assert_eq!(dump(&client().await, schema).await.len(), 2, "the tight key and the one that came with it");
}

/// 200 tasks with five requests each: exactly the limit is admitted, for every rule.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_exact_under_contention() {
    let store = Arc::new(fresh("tk_test_hot").await);
    for limit in kinds() {
        let limit = match limit {
            Limit::Gcra(_) => Limit::gcra(Rate::per_hour(50)).unwrap(),
            Limit::Window(_) => Limit::fixed_window(50, Duration::from_secs(36_000_000)).unwrap(),
            Limit::SlidingWindow(_) => SlidingWindow::new(50, Duration::from_secs(36_000), 6).unwrap().into(),
            _ => Limit::sliding_log(50, Duration::from_secs(3_600)).unwrap(),
        };
        let form = form(limit);
        let key = format!("{limit:?}");
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (store, key) = (store.clone(), key.clone());
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..5 {
                        admitted +=
                            u64::from(ask(&store, &key, &form, 1).await.unwrap().verdict.decision.allowed);
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert_eq!(admitted, 50, "{limit:?}");
        store.reset(&[&key]).await.unwrap();
    }
}

/// Another session holds the row for 1.5 s over the ends of windows of one second. Waiting requests decide at
/// an instant after it, the window in the row never moves back, and no window admits more than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_held_over_a_boundary_does_not_move_the_window_back() {
    let schema = "tk_test_boundary";
    let store = Arc::new(fresh(schema).await);
    let form = form(Limit::fixed_window(3, Duration::from_secs(1)).unwrap());
    let first = ask(&store, "k", &form, 1).await.unwrap();
    let end = |client: tokio_postgres::Client| async move {
        client.query_one("SELECT a FROM tk_test_boundary.state", &[]).await.unwrap().get::<_, i64>(0)
    };
    let before = end(client().await).await;

    let mut holder = client().await;
    let held = holder.transaction().await.unwrap();
    held.query("SELECT * FROM tk_test_boundary.state FOR UPDATE", &[]).await.unwrap();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { ask(&store, "k", &form, 1).await.unwrap() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    held.rollback().await.unwrap();

    let mut per_window = std::collections::HashMap::new();
    for task in waiting {
        let outcome = task.await.unwrap();
        if outcome.verdict.decision.allowed {
            assert!(outcome.now.since(first.now) >= Duration::from_millis(1_400), "decided after the wait");
            *per_window.entry(outcome.marks[0].0).or_insert(0) += 1;
        }
    }
    assert!(per_window.values().all(|&n| n <= 3) && per_window.values().sum::<i32>() >= 3, "{per_window:?}");
    assert!(end(client().await).await > before);
}

/// 64 tasks take keys in random orders, in requests of several charges and pipelines of several requests.
/// None waits forever, none is rolled back by the server, and every key's charges add up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_any_order_do_not_deadlock() {
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let schema = "tk_test_orders";
    let store = Arc::new(fresh(schema).await);
    let form = form(Limit::fixed_window(1_000_000, Duration::from_secs(36_000_000)).unwrap());
    let deadlocks = async || -> i64 {
        let text = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        client().await.query_one(text, &[]).await.unwrap().get(0)
    };
    let before = deadlocks().await;
    let tasks: Vec<_> = (0..64)
        .map(|seed| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut dice = Dice::new(seed);
                let mut charged = 0;
                for _ in 0..8 {
                    let asks: Vec<Vec<Charge<'_>>> = (0..1 + dice.below(3))
                        .map(|_| {
                            let mut keys = KEYS.to_vec();
                            (0..1 + dice.below(4))
                                .map(|_| keys.swap_remove(dice.below(keys.len() as u64) as usize))
                                .map(|key| Charge { key, form: &form, cost: 1 })
                                .collect()
                        })
                        .collect();
                    let flight: Vec<_> =
                        asks.iter().map(|charges| Charges { need: Need::All, charges }).collect();
                    let outcomes = store.admit(&flight).await.unwrap();
                    assert!(outcomes.iter().all(|outcome| outcome.verdict.decision.allowed));
                    charged += asks.iter().map(Vec::len).sum::<usize>();
                    if dice.below(4) == 0 {
                        store.reset(&["nobody", "here"]).await.unwrap();
                    }
                }
                charged
            })
        })
        .collect();
    let mut charged = 0;
    for task in tasks {
        charged += task.await.unwrap() as i64;
    }
    let text = "SELECT sum(b)::bigint FROM tk_test_orders.state";
    assert_eq!(client().await.query_one(text, &[]).await.unwrap().get::<_, i64>(0), charged);
    assert_eq!(deadlocks().await, before);
}

/// A foreign row is an error that names its key, and a charge beside it is not made.
#[tokio::test]
async fn a_foreign_row_is_an_error_and_nothing_is_written() {
    let schema = "tk_test_foreign";
    let store = fresh(schema).await;
    let beside = client().await;
    let far = 9_000_000_000_000_000_i64;
    let rows = [
        (0, "-1, 0, NULL", "range"),
        (1, "9000000000000000, -5, NULL", "range"),
        (3, "9000000, 0, '{1,2,3}'", "buckets"),
        (3, "9000000, 0, '{1,2,3,4,5,6,-7}'", "buckets"),
        (3, "9000000, 0, '{1,2,3,4,5,6,NULL}'", "buckets"),
        (4, "9000000000000000, 1, '{9000000000000000}'", "log"),
        (4, "9000000000000000, 1, '{8,1}'", "log"),
        (4, "9000000000000000, 1, NULL", "missing"),
        (0, "9223372036854775807, 0, NULL", "bigint"),
    ];
    for (i, (kind, columns, word)) in rows.into_iter().enumerate() {
        let key = format!("k{i}");
        let text = format!("INSERT INTO {schema}.state VALUES ('{key}', {columns}, {far})");
        beside.batch_execute(&text).await.unwrap();
        let before = dump(&beside, schema).await;
        let (bad, good) = (form(kinds()[kind]), form(kinds()[0]));
        let charges =
            [("beside", &good), (key.as_str(), &bad)].map(|(key, form)| Charge { key, form, cost: 1 });
        let alone = ask(&store, &key, &bad, 1).await;
        let both = store.admit(&[Charges { need: Need::All, charges: &charges }]).await;
        for error in [alone.unwrap_err(), both.unwrap_err()] {
            let StoreError::BadState(why) = &error else { panic!("{columns}: {error}") };
            assert!(why.contains(word) && (word == "bigint" || why.contains(&key)), "{columns}: {why}");
        }
        assert_eq!(dump(&beside, schema).await, before);
    }
    assert!(!store.line_stats().open, "foreign rows are no outage");
}

#[tokio::test]
async fn a_refund_to_a_key_without_a_row_creates_none() {
    let schema = "tk_test_refund";
    let store = fresh(schema).await;
    for limit in kinds() {
        let form = form(limit);
        let mark = ask(&store, "k", &form, 3).await.unwrap().marks[0];
        store.reset(&["k"]).await.unwrap();
        let settlement = Settlement { key: "k", form: &form, mark, charged: 3, actual: 0 };
        store.settle(&[settlement]).await.unwrap();
        assert_eq!(dump(&client().await, schema).await, Vec::<String>::new(), "{limit:?}");
        store.settle(&[Settlement { charged: 0, actual: 5, ..settlement }]).await.unwrap();
        assert!(!ask(&store, "k", &form, 1).await.unwrap().verdict.decision.allowed, "{limit:?}");
        store.reset(&["k"]).await.unwrap();
    }
}

/// A row is deleted when it has been idle for the grace period, not one microsecond earlier, and its key
/// loses nothing by it.
#[tokio::test]
async fn sweeping_deletes_idle_rows_only() {
    let schema = "tk_test_sweep";
    clear(schema).await;
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let store = builder(schema).clock(clock.clone()).grace(Duration::from_secs(2)).connect().await.unwrap();
    for (i, limit) in kinds().into_iter().enumerate() {
        ask(&store, &format!("k{i}"), &form(limit), 5).await.unwrap();
    }
    let form = form(Limit::gcra(Rate::per_second(5)).unwrap());
    ask(&store, "short", &form, 5).await.unwrap();
    clock.advance(Duration::from_secs(3));
    assert_eq!(store.sweep(1_000).await.unwrap(), 0, "idle after one second, and two of grace");
    clock.advance(Duration::from_micros(1));
    assert_eq!(store.sweep(1_000).await.unwrap(), 1);
    assert_eq!(ask(&store, "short", &form, 0).await.unwrap().verdict.decision.remaining, 5);
    clock.advance(Duration::from_secs(40 * 86_400));
    assert_eq!(store.sweep(3).await.unwrap(), 3, "no more than told");
    store.sweep_every(Duration::from_millis(20));
    for _ in 0..500 {
        if dump(&client().await, schema).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the task does not sweep");
}
