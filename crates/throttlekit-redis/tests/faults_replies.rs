//! Flushed scripts, lost replies, killed connections: nothing is charged twice, and nothing beyond the limit
//! passes.

use std::sync::Arc;
use std::time::Duration;

use crate::common::policy;
use crate::rig::{
    Connection, DAY, Limiter, Load, Proxy, Server, admitted, ask, ask_once, exact_after, figure, is_own,
    labelled, now, recovers,
};
use throttlekit::Limit;
use throttlekit_redis::RedisStore;
use tokio::time::sleep;

const PATIENT: Duration = Duration::from_secs(5);

fn daily(store: RedisStore, limit: u64) -> Arc<Limiter> {
    let limit = Limit::fixed_window(limit, DAY).unwrap();
    Arc::new(Limiter::new(store, &policy("replies"), limit).unwrap())
}

/// Returns the units left to a key, as the store reports them.
async fn left(limiter: &Limiter, key: &str) -> u64 {
    limiter.peek(key.as_bytes()).await.unwrap().remaining
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_script_costs_a_round_trip_and_no_decision() {
    let server = Server::start(&[]).await;
    for every_ms in [100, 1] {
        let store = RedisStore::builder(server.url()).deadline(PATIENT).connect().await.unwrap();
        let limiter = daily(store, 400);
        let flushing = flush_on(server.connection().await.unwrap(), Duration::from_millis(every_ms));
        let load = Load::start(&limiter, &["alice"], 4, Duration::from_millis(3));
        sleep(Duration::from_millis(1_200)).await;
        let heard = load.finish().await;
        flushing.abort();
        let no_script = limiter.store().route_stats().no_script;
        figure(
            &format!("script-flush-{every_ms}ms"),
            "sent_in_full",
            format_args!("{no_script} of {}", heard.len()),
        );
        let tally = limiter.stats().answers;
        assert_eq!(tally.exact + tally.bounded, heard.len() as u64, "{tally:?}");
        assert_eq!(admitted(&heard), 400, "of {}", heard.len());
        assert!(no_script > 0);
    }
}

fn flush_on(mut connection: Connection, every: Duration) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            ask::<()>(&mut connection, "SCRIPT FLUSH").await.unwrap();
            sleep(every).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_reply_was_lost_is_charged_once_and_not_sent_again() {
    const LIMIT: u64 = 60;
    let server = Server::start(&[]).await;
    let proxy = Proxy::before(server.port).await;
    let store = RedisStore::builder(proxy.url()).deadline(PATIENT).connect().await.unwrap();
    let limiter = daily(store, LIMIT);
    let key: Arc<str> = "alice".into();
    let (mut passed, mut lost) = (0, 0);
    for round in 0..2 * LIMIT {
        let before = left(&limiter, &key).await;
        let loses = round % 3 == 2;
        if loses {
            proxy.lose_next_reply();
        }
        let heard = ask_once(&limiter, &key).await;
        assert_eq!(heard.guarantee.map(is_own), Some(!loses), "{heard:?}");
        passed += u64::from(heard.allowed);
        lost += u64::from(loses && before > 0);
        assert_eq!(left(&limiter, &key).await, before.saturating_sub(1), "charged once");
    }
    figure("reply-lost", "admitted", format_args!("{passed} + {lost} charged unheard = {LIMIT}"));
    assert_eq!((passed + lost, proxy.lost()), (LIMIT, 2 * LIMIT / 3));
    assert_eq!(
        (limiter.stats().answers.closed, limiter.store().line_stats().failed),
        (proxy.lost(), proxy.lost())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_connections_never_charge_more_than_was_sent() {
    const LIMIT: u64 = 1_000_000;
    let server = Server::start(&[]).await;
    recovers("connection-churn", async |_| {
        let store = RedisStore::builder(server.url()).connect().await.unwrap();
        let limiter = daily(store, LIMIT);
        let load = Load::start(&limiter, &["alice"], 8, Duration::from_micros(500));
        let mut connection = server.connection().await.unwrap();
        for _ in 0..40 {
            ask::<u64>(&mut connection, "CLIENT KILL TYPE normal SKIPME yes").await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
        let over = now();
        sleep(Duration::from_millis(400)).await;
        let heard = load.finish().await;
        labelled(&heard);
        let (tally, line) = (limiter.stats().answers, limiter.store().line_stats());
        let charged = LIMIT - left(&limiter, "alice").await;
        figure(
            "connection-churn",
            "answers",
            format_args!(
                "{} exact, {} closed, {charged} charged of {} sent",
                tally.exact, tally.closed, line.calls
            ),
        );
        assert!(tally.closed > 0 && line.failed > 0, "{tally:?} {line:?}");
        assert!(admitted(&heard) <= charged && charged <= line.calls, "{} {charged}", admitted(&heard));
        exact_after(&heard, over).expect("it recovers").since(over)
    })
    .await;
}
