//! Silent engines: calls end at their deadline, the breaker keeps the outage cheap and small, and exact
//! responses resume as soon as the engine does.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::common::policy;
use crate::rig::{
    DAY, Heard, Limiter, Load, Proxy, RECOVERY_MAX, Server, ask, ask_once, exact_after, figure, is_own,
    labelled, now, open_files, p99, recovers, resident,
};
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use throttlekit::{Guarantee, Limit, OnOutage};
use throttlekit_redis::RedisStore;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

const DEADLINE: Duration = Duration::from_millis(100);
/// The maximum delay of a call beyond its deadline on a busy machine.
const SLACK: Duration = Duration::from_millis(250);
const LIMIT: u64 = 1_000_000;
const PAUSE: Duration = Duration::from_millis(2);
const MIB: usize = 1 << 20;

async fn daily(url: String, on_outage: OnOutage) -> Arc<Limiter> {
    let store = RedisStore::builder(url).deadline(DEADLINE).connect().await.unwrap();
    let limit = Limit::fixed_window(LIMIT, DAY).unwrap();
    Arc::new(Limiter::builder(store, &policy("silence"), limit).on_outage(on_outage).build().unwrap())
}

/// Sends requests until the breaker is open.
async fn until_open(limiter: &Limiter) {
    let key: Arc<str> = "alice".into();
    while !limiter.store().line_stats().open {
        let heard = ask_once(limiter, &key).await;
        assert!(heard.took <= DEADLINE + SLACK, "{heard:?}");
    }
}

/// Makes many decisions while the breaker is open: each is cheap, and none is retained.
async fn an_open_breaker_is_cheap(fault: &str, limiter: &Limiter, decisions: usize) {
    let key: Arc<str> = "alice".into();
    let mut took = Vec::with_capacity(decisions);
    ask_once(limiter, &key).await;
    let before = resident();
    for _ in 0..decisions {
        let heard = ask_once(limiter, &key).await;
        assert_eq!(heard.guarantee, Some(Guarantee::Closed), "{heard:?}");
        took.push(heard.took);
    }
    let grown = resident().saturating_sub(before);
    assert!(limiter.store().line_stats().open, "it was open all the time");
    let p99 = p99(took);
    figure(fault, "open_p99_us", format_args!("{} over {decisions} decisions", p99.as_micros()));
    figure(fault, "open_growth_kib", grown / 1_024);
    assert!(p99 <= Duration::from_millis(1), "{p99:?}");
    assert!(grown < 4 * MIB, "{grown} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_costs_each_caller_its_deadline_once_and_then_nothing() {
    let server = Server::start(&[]).await;
    recovers("client-pause", async |attempt| {
        let limiter = daily(server.url(), OnOutage::Closed).await;
        assert!(is_own(limiter.check("alice").await.unwrap().guarantee));
        let mut observer = server.connection().await.unwrap();
        server.ask::<()>(if attempt == 0 { "CLIENT PAUSE 3000 ALL" } else { "CLIENT PAUSE 1000 ALL" }).await;
        let over = tokio::spawn(async move {
            ask::<()>(&mut observer, "PING").await.unwrap();
            now()
        });
        until_open(&limiter).await;
        an_open_breaker_is_cheap("client-pause", &limiter, 20_000).await;
        let line = limiter.store().line_stats();
        assert!(line.timed_out >= 5 && line.opened == 1 && line.in_flight == 0, "{line:?}");
        recovery_of(&limiter, over).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_server_is_like_a_paused_one() {
    let server = Server::start(&[]).await;
    recovers("debug-sleep", async |_| {
        let limiter = daily(server.url(), OnOutage::Closed).await;
        assert!(is_own(limiter.check("alice").await.unwrap().guarantee));
        let mut sleeper = server.connection().await.unwrap();
        let over = tokio::spawn(async move {
            ask::<()>(&mut sleeper, "DEBUG SLEEP 1.5").await.unwrap();
            now()
        });
        sleep(Duration::from_millis(50)).await;
        until_open(&limiter).await;
        an_open_breaker_is_cheap("debug-sleep", &limiter, 10_000).await;
        recovery_of(&limiter, over).await
    })
    .await;
}

/// Returns the time from the end of an outage, which a task reports, to the first exact response.
async fn recovery_of(limiter: &Arc<Limiter>, over: tokio::task::JoinHandle<Timestamp>) -> Duration {
    let load = Load::start(limiter, &["alice"], 2, PAUSE);
    let over = over.await.unwrap();
    sleep(RECOVERY_MAX * 2).await;
    let heard = load.finish().await;
    labelled(&heard);
    let first = exact_after(&heard, Timestamp::default()).expect("it recovers");
    first.since(over)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_replaced_by_a_new_one() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::before(server.port).await;
    recovers("half-open", async |_| {
        proxy.forward();
        let limiter = daily(proxy.url(), OnOutage::Closed).await;
        assert!(is_own(limiter.check("alice").await.unwrap().guarantee));
        let connections = proxy.connections();
        proxy.fall_silent();
        until_open(&limiter).await;
        an_open_breaker_is_cheap("half-open", &limiter, 10_000).await;
        let files = open_files();
        sleep(Duration::from_millis(800)).await;
        // Each socket of an abandoned probe has its other end in the proxy, in this very process.
        assert!(open_files() < files + 40, "probes leave nothing behind on our side");
        let load = Load::start(&limiter, &["alice"], 2, PAUSE);
        proxy.heal_for_new_connections();
        let healed = now();
        sleep(RECOVERY_MAX * 2).await;
        let heard = load.finish().await;
        labelled(&heard);
        assert!(proxy.connections() > connections, "over a new connection");
        assert!(limiter.store().line_stats().timed_out >= 5);
        exact_after(&heard, healed).expect("it recovers").since(healed)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_replies_end_at_the_deadline_and_count_as_an_outage() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::before(server.port).await;
    let limiter = daily(proxy.url(), OnOutage::Closed).await;
    proxy.delay(DEADLINE * 3);
    until_open(&limiter).await;
    proxy.forward();
    proxy.reset_all();
    let reset = now();
    let load = Load::start(&limiter, &["alice"], 2, PAUSE);
    sleep(RECOVERY_MAX * 2).await;
    let heard = load.finish().await;
    labelled(&heard);
    assert!(exact_after(&heard, reset).is_some(), "it recovers");
}

const CALLERS: usize = 50_000;

#[tokio::test(flavor = "multi_thread")]
async fn callers_beyond_the_in_flight_limit_are_rejected_at_once() {
    let deadline = Duration::from_secs(1);
    let server = Server::start(&[]).await;
    let store = RedisStore::builder(server.url()).deadline(deadline).connect().await.unwrap();
    let limit = Limit::fixed_window(LIMIT, DAY).unwrap();
    let limiter = Arc::new(Limiter::new(store, &policy("flood"), limit).unwrap());
    server.ask::<()>("CLIENT PAUSE 20000 ALL").await;
    let (heard, grown) = flood(&limiter).await;
    let line = limiter.store().line_stats();
    // Callers rejected by a full connection have no information about the server: no fallback applies to
    // them.
    let is_refused = |answer: &Heard| answer.error == Some(StoreError::Overloaded);
    let (refused, others): (Vec<_>, Vec<_>) = heard.iter().cloned().partition(is_refused);
    assert_eq!(refused.len() as u64, line.refused_full);
    labelled(&others);
    let slowest = heard.iter().map(|answer| answer.took).max().unwrap_or_default();
    figure("in-flight", "refused_full", format_args!("{} of {CALLERS}", line.refused_full));
    figure(
        "in-flight",
        "slowest_ms",
        format_args!("{} at a deadline of {}", slowest.as_millis(), deadline.as_millis()),
    );
    figure("in-flight", "growth_mib", grown / MIB);
    assert!(line.refused_full >= CALLERS as u64 / 4, "{line:?}");
    assert_eq!(line.refused_full + line.refused_open + line.timed_out, CALLERS as u64, "{line:?}");
    assert_eq!(line.in_flight, 0);
    // Ten thousand callers are woken one after the other.
    assert!(slowest <= deadline * 2, "{slowest:?}");
    assert!(grown < 64 * MIB, "{grown} bytes for 10,000 in flight");
}

/// Sends all requests at once. Returns their responses, and the growth of memory beyond that of the callers
/// themselves.
async fn flood(limiter: &Arc<Limiter>) -> (Vec<Heard>, usize) {
    let gate = Arc::new(Semaphore::new(0));
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        let (limiter, gate) = (limiter.clone(), gate.clone());
        calls.spawn(async move {
            gate.acquire().await.unwrap().forget();
            ask_once(&limiter, &"alice".into()).await
        });
    }
    sleep(Duration::from_millis(300)).await;
    let before = resident();
    gate.add_permits(CALLERS);
    let heard = calls.join_all().await;
    (heard, resident().saturating_sub(before))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_uses_the_configured_fallback_and_label() {
    const L: u64 = 103;
    let mut server = Server::start(&[]).await;
    let nodes = NonZeroU32::new(4).unwrap();
    let policies = [OnOutage::Local { nodes }, OnOutage::Open, OnOutage::Closed];
    let mut limiters = Vec::new();
    for on_outage in policies {
        let store = RedisStore::builder(server.url()).connect().await.unwrap();
        let limit = Limit::fixed_window(L, DAY).unwrap();
        limiters
            .push(Limiter::builder(store, &policy("policy"), limit).on_outage(on_outage).build().unwrap());
    }
    for limiter in &limiters {
        assert!(is_own(limiter.check("alice").await.unwrap().guarantee));
    }
    server.kill();
    let expected = [(L / 4, Guarantee::Local), (400, Guarantee::Open), (0, Guarantee::Closed)];
    for (limiter, (passes, label)) in limiters.iter().zip(expected) {
        let mut passed = 0;
        for _ in 0..400 {
            let answer = limiter.check("alice").await.unwrap();
            assert_eq!(answer.guarantee, label, "{answer:?}");
            assert!(answer.outage.is_some() && answer.receipt.is_none());
            passed += u64::from(answer.decision.allowed);
        }
        let tally = limiter.stats().answers;
        figure("outage-policy", label.label(), format_args!("{passed} of 400 passed, limit {L}, 4 nodes"));
        assert_eq!(passed, passes, "{label}");
        let own = tally.exact + tally.bounded;
        assert_eq!((own, tally.local + tally.open + tally.closed, tally.errors), (1, 400, 0));
    }
    let counts = |limiter: &Limiter| {
        let tally = limiter.stats().answers;
        [tally.local, tally.open, tally.closed]
    };
    assert_eq!(limiters.iter().map(counts).collect::<Vec<_>>(), [[400, 0, 0], [0, 400, 0], [0, 0, 400]]);
}
