//! Commits that hang while reads work: the store must neither use up the server's connections nor report it
//! as healthy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::common;
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::{Guarantee, Limit, SharedLimiter};
use throttlekit_postgres::PostgresStore;
use throttlekit_verify::postgres::{Load, Server, hang_commits};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

const CONNECTIONS: usize = 4;
const HOUR: Duration = Duration::from_secs(3_600);
/// The pause between requests: fifty per second.
const PAUSE: Duration = Duration::from_millis(20);
/// The time limit on a busy machine; an idle one takes a tenth.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

type Limiter = Arc<SharedLimiter<PostgresStore>>;

async fn limiter(url: &str, schema: &str, deadline: Duration) -> Limiter {
    let builder = PostgresStore::builder(url).schema(schema).migrate_on_connect(true);
    let store = builder.connections(CONNECTIONS).deadline(deadline).connect().await.unwrap();
    Arc::new(SharedLimiter::new(store, "p", Limit::fixed_window(1_000_000, HOUR).unwrap()).unwrap())
}

/// Sends requests at a constant rate, whether or not earlier ones got a response.
fn requests(limiter: &Limiter, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<u64> {
    let (limiter, stop) = (limiter.clone(), stop.clone());
    tokio::spawn(async move {
        let mut sent = 0;
        while !stop.load(Relaxed) {
            let (limiter, key) = (limiter.clone(), format!("k{sent}"));
            tokio::spawn(async move { limiter.check(&key).await.map(drop) });
            sent += 1;
            sleep(PAUSE).await;
        }
        sent
    })
}

/// Returns the number of backends of the store, without that of this query.
async fn backends(beside: &Client) -> i64 {
    let text = "SELECT count(*) FROM pg_stat_activity
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    beside.query_one(text, &[]).await.unwrap().get(0)
}

/// Returns the maximum number of backends over some seconds.
async fn most_backends(beside: &Client, seconds: u64) -> i64 {
    let mut most = 0;
    for _ in 0..seconds * 20 {
        most = most.max(backends(beside).await);
        sleep(Duration::from_millis(50)).await;
    }
    most
}

async fn recovers(limiter: &Limiter) -> Duration {
    let (clock, key) = (PreciseClock::new(), "back");
    let begun = clock.now();
    let back = async {
        while limiter.check(key).await.unwrap().guarantee != Guarantee::Exact {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(RECOVERY_MAX, back).await.expect("the store is found again");
    clock.now().since(begun)
}

/// The synchronous standby is gone: every commit waits forever, and no timeout of the server ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_commits_use_at_most_the_configured_connections_and_one() {
    let server = Server::create();
    server.start();
    let limiter = limiter(&server.url(), "hung", Duration::from_millis(250)).await;
    let load = Load { seconds: 8, rate: 100 };
    let seen = hang_commits(Arc::new(server), limiter, PostgresStore::line_stats, load, |_, _| {}).await;
    println!("{seen:?}");
    assert!(seen.connections_max() <= CONNECTIONS as u64 + 1, "{seen:?}");
    assert!(seen.hung_late() <= 1, "calls that were given up are cancelled: {seen:?}");
    assert_eq!(seen.closed_seconds(), 0, "the circuit breaker is open while commits hang: {seen:?}");
    assert!(seen.others.0 > 0 && seen.others.0 == seen.others.1, "others connect as ever: {seen:?}");
    assert!(seen.recovery < RECOVERY_MAX, "{seen:?}");
}

/// Every process of the server is stopped, so that a cancel request hangs too. When it continues, there are
/// no more connections than before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_finds_no_pile_of_connections_when_it_goes_on() {
    let server = Server::create();
    server.start();
    let beside = common::connect(&server.url()).await;
    let limiter = limiter(&server.url(), "stopped", Duration::from_millis(250)).await;
    assert!(limiter.check("warm").await.unwrap().decision.allowed);
    let stop = Arc::new(AtomicBool::new(false));
    let sending = requests(&limiter, &stop);
    sleep(Duration::from_millis(500)).await;
    server.signal_all("STOP");
    sleep(Duration::from_secs(4)).await;
    assert!(limiter.store().line_stats().open);
    server.signal_all("CONT");
    let most = most_backends(&beside, 3).await;
    stop.store(true, Relaxed);
    println!("stopped server: {} requests, most backends {most}", sending.await.unwrap());
    assert!(most <= CONNECTIONS as i64 + 1, "{most}");
    recovers(&limiter).await;
}

/// A call whose caller was dropped ends on the server by its deadline, and its connection is reused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_caller_left_ends_on_the_server_by_its_deadline() {
    let schema = "tk_test_cancelled";
    common::clear(schema).await;
    let builder = common::builder(schema).connections(1).deadline(Duration::from_secs(2));
    let store = Arc::new(builder.connect().await.unwrap());
    let form = common::form(Limit::fixed_window(10, HOUR).unwrap());
    common::ask(&store, "held", &form, 1).await.unwrap();
    let mut holder = common::client().await;
    let held = holder.transaction().await.unwrap();
    held.query("SELECT * FROM tk_test_cancelled.state FOR UPDATE", &[]).await.unwrap();
    let beside = common::client().await;
    let waiting = "SELECT coalesce(min(pid), 0), count(*) FROM pg_stat_activity
                   WHERE query LIKE '%tk_test_cancelled%' AND wait_event_type = 'Lock'";
    let waiting = async || {
        let row = beside.query_one(waiting, &[]).await.unwrap();
        (row.get::<_, i32>(0), row.get::<_, i64>(1))
    };
    let call = tokio::spawn({
        let store = store.clone();
        async move { common::ask(&store, "held", &form, 1).await }
    });
    while waiting().await.1 == 0 {
        sleep(Duration::from_millis(20)).await;
    }
    let (pid, _) = waiting().await;
    call.abort();
    let ended = async {
        while waiting().await.1 > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    // The row is held all the while.
    timeout(Duration::from_secs(8), ended).await.expect("the server has ended the call");
    assert!(common::ask(&store, "free", &form, 1).await.unwrap().verdict.decision.allowed);
    let text = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND query LIKE '%tk_test_cancelled%'";
    assert_eq!(
        beside.query_one(text, &[&pid]).await.unwrap().get::<_, i64>(0),
        1,
        "over the same connection"
    );
    held.rollback().await.unwrap();
}
