//! A server on which other sessions cancel, terminate, lock and sweep, under load: every decision is in the
//! rows, never more than the limit is admitted, and the store's own calls go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::common::{builder, clear, client, connect};
use throttlekit::store::Store;
use throttlekit::{Call, Limit, SharedLimiter};
use throttlekit_postgres::PostgresStore;
use throttlekit_verify::postgres::Server;
use tokio::time::{Instant, sleep};

const DAY: Duration = Duration::from_secs(86_400);
const KEYS: usize = 4;
const GROUPS: usize = 2;
const LIMIT: u64 = 150;
const GROUP_LIMIT: u64 = 2 * LIMIT;
const CALLERS: usize = 12;
const SECONDS: u64 = 6;
/// The time in which callers exhaust the rest once nothing disturbs them.
const FULL_WITHIN: Duration = Duration::from_secs(30);

type Two = SharedLimiter<PostgresStore>;

async fn two_limits(url: &str) -> Two {
    let store =
        PostgresStore::builder(url).schema("disturbed").migrate_on_connect(true).connect().await.unwrap();
    let window = |units| Limit::fixed_window(units, DAY).unwrap();
    let builder = SharedLimiter::builder(store, "p", window(LIMIT)).limit_by(1, "o", window(GROUP_LIMIT));
    builder.build().unwrap()
}

/// The number of admitted requests of each key and each group.
#[derive(Default)]
struct Admitted {
    keys: [AtomicU64; KEYS],
    groups: [AtomicU64; GROUPS],
    asked: AtomicU64,
}

async fn call_until(limiter: Two, admitted: Arc<Admitted>, stop: Arc<AtomicBool>, seed: u64) {
    let mut dice = throttlekit_conformance::Dice::new(seed);
    while !stop.load(Relaxed) {
        let (key, group) = (dice.below(KEYS as u64) as usize, dice.below(GROUPS as u64) as usize);
        let names = (format!("k{key}"), format!("o{group}"));
        admitted.asked.fetch_add(1, Relaxed);
        match limiter.check(Call::by(&names.0).and(&[names.1.as_str()])).await {
            Ok(answer) if answer.outage.is_none() && answer.decision.allowed => {
                admitted.keys[key].fetch_add(1, Relaxed);
                admitted.groups[group].fetch_add(1, Relaxed);
            }
            Ok(answer) if answer.outage.is_none() => {}
            _ => sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Cancels and terminates our sessions, locks rows in another order than we do, and crashes the server once.
/// Returns the numbers of cancelled and terminated calls.
async fn disturb(server: &Server) -> [i64; 2] {
    let begun = Instant::now();
    let (mut crashed, mut hits) = (false, [0; 2]);
    for round in 0_u64.. {
        let passed = begun.elapsed();
        if passed > Duration::from_secs(SECONDS) {
            break;
        }
        if !crashed && passed > Duration::from_secs(SECONDS / 2) {
            server.stop("immediate");
            server.start();
            crashed = true;
        }
        let terminates = round % 5 == 4;
        let end = if terminates {
            "pg_terminate_backend(pid)"
        } else {
            "random() < 0.3 AND state = 'active' AND pg_cancel_backend(pid)"
        };
        let hit = format!(
            "SELECT count(*) FILTER (WHERE {end}) FROM pg_stat_activity
             WHERE pid <> pg_backend_pid() AND query LIKE '%disturbed%admit%'"
        );
        let lock = "BEGIN; SELECT 1 FROM disturbed.state ORDER BY key DESC FOR UPDATE; SELECT pg_sleep(0.03); ROLLBACK";
        let beside = connect(&server.url()).await;
        hits[usize::from(terminates)] += beside.query_one(&hit, &[]).await.map_or(0, |row| row.get(0));
        let _ = beside.batch_execute(lock).await;
        sleep(Duration::from_millis(40)).await;
    }
    hits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_terminations_locks_and_a_crash_admit_no_more_than_the_limit() {
    let server = Server::create();
    server.start();
    let mut limiters = Vec::new();
    for _ in 0..3 {
        limiters.push(two_limits(&server.url()).await);
    }
    let (admitted, stop) = (Arc::new(Admitted::default()), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|i| {
            let limiter = limiters[i % limiters.len()].clone();
            tokio::spawn(call_until(limiter, admitted.clone(), stop.clone(), i as u64))
        })
        .collect();
    let hits = disturb(&server).await;
    let beside = connect(&server.url()).await;
    let is_full = async || {
        let charged = "SELECT coalesce(sum(b), 0)::bigint FROM disturbed.state";
        let charged: i64 = beside.query_one(charged, &[]).await.unwrap().get(0);
        charged as u64 >= KEYS as u64 * LIMIT + GROUPS as u64 * GROUP_LIMIT
    };
    let begun = Instant::now();
    while !is_full().await {
        assert!(begun.elapsed() < FULL_WITHIN, "the limits are not reached");
        sleep(Duration::from_millis(50)).await;
    }
    stop.store(true, Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    println!("disturbed: {:?} asked, {:?} and {:?} admitted", admitted.asked, admitted.keys, admitted.groups);
    println!("disturbed: {} cancelled, {} terminated", hits[0], hits[1]);
    assert!(hits.iter().all(|hits| *hits > 0), "nothing was disturbed: {hits:?}");
    let keys = admitted.keys.iter().enumerate().map(|(i, n)| (format!("k{i}"), n, LIMIT));
    let groups = admitted.groups.iter().enumerate().map(|(i, n)| (format!("o{i}"), n, GROUP_LIMIT));
    for (name, admitted, limit) in keys.chain(groups) {
        let text = "SELECT coalesce(max(b), 0) FROM disturbed.state WHERE key LIKE '%' || $1";
        let charged: i64 = beside.query_one(text, &[&name]).await.unwrap().get(0);
        let admitted = admitted.load(Relaxed);
        assert!(
            admitted <= charged as u64 && charged as u64 == limit,
            "{name}: {admitted} of {charged} charged"
        );
        assert!(admitted > 0, "{name}");
    }
}

/// A sweep of many rows beside callers, also with one connection for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_concurrent_sweep_is_no_outage() {
    let schema = "tk_test_swept_beside";
    clear(schema).await;
    builder(schema).migrate().await.unwrap();
    let fill = format!(
        "INSERT INTO {schema}.state SELECT 'idle' || i, 1, 1, NULL, 1 FROM generate_series(1, 20000) i;
         INSERT INTO {schema}.state SELECT 'live' || i, 1, 1, NULL, 1 << 61 FROM generate_series(1, 20000) i"
    );
    client().await.batch_execute(&fill.replace("1 << 61", "1::bigint << 61")).await.unwrap();
    for connections in [1, 4] {
        let store = builder(schema).connections(connections).connect().await.unwrap();
        let limiter =
            SharedLimiter::new(store.clone(), "p", Limit::fixed_window(1 << 40, DAY).unwrap()).unwrap();
        let sweep = tokio::spawn(async move { store.sweep(10_000).await });
        let mut answered = 0;
        while !sweep.is_finished() {
            let answer = limiter.check("k").await.unwrap();
            assert!(answer.outage.is_none() && answer.decision.allowed, "{answer:?}");
            answered += 1;
        }
        assert_eq!(sweep.await.unwrap(), Ok(10_000));
        let stats = limiter.store().line_stats();
        assert!(answered > 0 && stats.opened == 0, "{answered} beside it, {stats:?}");
        limiter.store().reset(&["k"]).await.unwrap();
    }
}
