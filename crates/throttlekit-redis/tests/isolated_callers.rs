//! Connections, probes and topology do not depend on a caller's runtime: callers come and go, stand still or
//! give up early, and the others are served.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::common::policy;
use crate::rig::{self, DAY, Limiter, Proxy, Server};
use throttlekit::Limit;
use throttlekit_redis::RedisStore;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

const MS: Duration = Duration::from_millis(1);
/// The time limit of an expected event on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Longer than the timeout of impatient callers, and than a healthy server takes on a busy machine.
const DEADLINE: Duration = Duration::from_millis(500);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The runtime of the fixture: the server and the proxy live as long as the test.
fn fixture() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn daily(url: String, deadline: Duration) -> Limiter {
    let store = RedisStore::builder(url).deadline(deadline).connect().await.unwrap();
    Limiter::new(store, &policy("isolated"), Limit::fixed_window(1_000_000, DAY).unwrap()).unwrap()
}

/// Returns `true` if the server decided, and not a fallback.
async fn is_answered(limiter: &Limiter) -> bool {
    limiter.check("k").await.is_ok_and(|answer| answer.outage.is_none())
}

async fn until_answered(limiter: &Limiter) {
    let answered = async {
        while !is_answered(limiter).await {
            sleep(10 * MS).await;
        }
    };
    timeout(SOON, answered)
        .await
        .unwrap_or_else(|_| panic!("still away: {:?}", limiter.store().line_stats()));
}

async fn until_open(limiter: &Limiter) {
    while !limiter.store().line_stats().open {
        let _ = limiter.check("k").await;
    }
}

/// A store in a static, and runtimes that come and go: one per test, per foreign call, per restart of a
/// service.
#[test]
fn the_circuit_breaker_closes_after_the_runtime_that_saw_the_outage_was_dropped() {
    let fixture = fixture();
    let server = fixture.block_on(Server::start(&[]));
    let limiter = runtime().block_on(daily(server.url(), DEADLINE));
    runtime().block_on(until_answered(&limiter));
    server.signal("STOP");
    runtime().block_on(until_open(&limiter));
    server.signal("CONT");
    runtime().block_on(until_answered(&limiter));
}

/// Not even one call fails: the connection does not belong to the dropped runtime.
#[test]
fn a_connection_outlives_the_runtime_that_made_it() {
    let fixture = fixture();
    let server = fixture.block_on(Server::start(&[]));
    let limiter = runtime().block_on(daily(server.url(), SOON));
    for _ in 0..3 {
        assert!(runtime().block_on(is_answered(&limiter)));
    }
    let line = limiter.store().line_stats();
    assert_eq!((line.failed, line.timed_out), (0, 0), "{line:?}");
}

/// The runtime that connected is idle, with a call in flight.
#[test]
fn a_connection_works_while_the_runtime_that_made_it_is_idle() {
    let fixture = fixture();
    let server = fixture.block_on(Server::start(&[]));
    let idle = runtime();
    let limiter = idle.block_on(daily(server.url(), SOON));
    idle.block_on(async {
        let mut call = pin!(limiter.check("k"));
        poll_fn(|context| {
            let _ = call.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    });
    let other = runtime();
    for _ in 0..3 {
        assert!(other.block_on(is_answered(&limiter)));
    }
    let line = limiter.store().line_stats();
    assert_eq!((line.failed, line.timed_out), (0, 0), "{line:?}");
}

/// A half-open connection, and callers whose own timeout is shorter than the deadline of the store.
#[test]
fn a_half_open_connection_is_replaced_although_every_caller_gives_up_early() {
    let fixture = fixture();
    let server = fixture.block_on(Server::start(&[]));
    let proxy = fixture.block_on(Proxy::before(server.port));
    let limiter = fixture.block_on(daily(proxy.url(), DEADLINE));
    fixture.block_on(until_answered(&limiter));
    let before = proxy.connections();
    proxy.fall_silent();
    proxy.heal_for_new_connections();
    let recovers = async {
        // Impatient while the connection is silent, then as patient as a busy machine needs.
        while !limiter.store().line_stats().open {
            let _ = timeout(DEADLINE / 10, limiter.check("k")).await;
        }
        until_answered(&limiter).await;
    };
    let recovered = fixture.block_on(async { timeout(SOON, recovers).await });
    let line = limiter.store().line_stats();
    assert!(recovered.is_ok(), "{line:?}");
    assert!(proxy.connections() > before && line.timed_out >= 5, "{line:?}");
}

/// Every caller gives up before the response comes, and the server is healthy.
#[test]
fn impatient_callers_of_a_healthy_server_keep_the_circuit_breaker_closed() {
    let fixture = fixture();
    let server = fixture.block_on(Server::start(&[]));
    let proxy = fixture.block_on(Proxy::before(server.port));
    let limiter = fixture.block_on(daily(proxy.url(), SOON));
    fixture.block_on(until_answered(&limiter));
    proxy.delay(20 * MS);
    fixture.block_on(async {
        for _ in 0..50 {
            let _ = timeout(MS, limiter.check("k")).await;
        }
        until_answered(&limiter).await;
        while limiter.store().line_stats().in_flight > 0 {
            sleep(MS).await;
        }
    });
    let line = limiter.store().line_stats();
    assert_eq!((line.failed, line.timed_out, line.opened), (0, 0, 0), "{line:?}");
}

#[test]
fn dropping_the_last_handle_closes_its_connections() {
    let fixture = fixture();
    let server = fixture.block_on(Server::start(&[]));
    let clients = || fixture.block_on(server.ask::<String>("CLIENT LIST")).lines().count();
    let before = clients();
    let limiter = runtime().block_on(daily(server.url(), SOON));
    assert!(runtime().block_on(is_answered(&limiter)));
    assert!(clients() > before);
    drop(limiter);
    let begun = rig::now();
    while clients() > before {
        assert!(rig::now().since(begun) < SOON, "a connection is left");
        std::thread::sleep(5 * MS);
    }
}
