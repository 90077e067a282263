//! Guarantees `lease-coupled` and `lease-rolling` over real sockets: many clients spend units that one server
//! leases, under faults of the network and the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::rate::Timestamp;
use throttlekit::{Call, Guarantee, Limit, OnOutage, Rate, Retry, SharedLimiter};
use throttlekit_client::{Client, RemoteStore};
use throttlekit_proto::v1::fleet_client::FleetClient;
use throttlekit_proto::v1::{ReserveRequest, Returned};
use throttlekit_server::internals::engine::Backend;
use tonic::transport::{Channel, Endpoint};

use crate::common::{Proxy, Running, client_of, runtime};

const WINDOW: Duration = Duration::from_millis(500);
const LIMIT: u64 = 300;
const RUNS_MAX: usize = 3;
const CLIENTS: usize = 4;
const THREADS: usize = 3;
const POLICY: &str = "  api: {rate: {algorithm: fixed_window, limit: 300, per: 500ms}, fleet: {}}\n";

/// Units that certainly passed within each window, by the store's own clock, which is this machine's.
#[derive(Default)]
struct Book {
    windows: Mutex<BTreeMap<u64, u64>>,
    outages: AtomicU64,
}

impl Book {
    fn window(at: Timestamp) -> u64 {
        at.as_nanos() / WINDOW.as_nanos() as u64
    }

    /// Records a request that passed between two instants. One that spans an edge may belong to either
    /// window, and counts for none.
    fn passed(&self, units: u64, before: Timestamp, after: Timestamp) {
        if Self::window(before) == Self::window(after) {
            *self.windows.lock().unwrap().entry(Self::window(before)).or_default() += units;
        }
    }

    /// Returns the maximum that passed in one window, and the number of windows.
    fn most(&self) -> (u64, usize) {
        let windows = self.windows.lock().unwrap();
        (windows.values().copied().max().unwrap_or(0), windows.len())
    }
}

/// Creates a limiter that spends units of the policy `api`.
fn leased(client: &Client, limit: Limit, leasing: Leasing) -> SharedLimiter<RemoteStore> {
    SharedLimiter::builder(client.store(), "api", limit).leased_with(leasing).build().unwrap()
}

fn limiter(address: std::net::SocketAddr) -> SharedLimiter<RemoteStore> {
    let client = client_of(address).deadline(Duration::from_millis(200)).build().unwrap();
    let window = Limit::fixed_window(LIMIT, WINDOW).unwrap();
    let leasing = Leasing::new().batch(Batch::Fixed(20)).return_after(Some(Duration::from_millis(50)));
    leased(&client, window, leasing)
}

/// Sends requests at costs of 1 to 7 until stopped.
async fn spend(limiter: SharedLimiter<RemoteStore>, seed: u64, book: Arc<Book>, stop: Arc<AtomicBool>) {
    let mut dice = seed;
    while !stop.load(Relaxed) {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let cost = 1 + (dice >> 33) % 7;
        let before = WallClock.now();
        let answer = limiter.check(Call::by("k").cost(cost)).await.unwrap();
        let after = WallClock.now();
        if answer.allowed {
            assert_eq!(answer.guarantee, Guarantee::Exact);
            book.passed(cost, before, after);
            // So that units are in local leases when windows end.
            tokio::time::sleep(Duration::from_micros((dice >> 40) % 2_000)).await;
        } else {
            book.outages.fetch_add(u64::from(answer.outage.is_some()), Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Crew {
    book: Arc<Book>,
    stop: Arc<AtomicBool>,
    spenders: Vec<tokio::task::JoinHandle<()>>,
}

impl Crew {
    fn start(address: std::net::SocketAddr) -> Self {
        let (book, stop) = (Arc::new(Book::default()), Arc::new(AtomicBool::new(false)));
        let mut spenders = Vec::new();
        for client in 0..CLIENTS {
            let limiter = limiter(address);
            for thread in 0..THREADS {
                let seed = (client * THREADS + thread) as u64;
                spenders.push(tokio::spawn(spend(limiter.clone(), seed, book.clone(), stop.clone())));
            }
        }
        Self { book, stop, spenders }
    }

    async fn stop(self) -> Arc<Book> {
        self.stop.store(true, Relaxed);
        for spender in self.spenders {
            spender.await.unwrap();
        }
        self.book
    }
}

#[test]
fn lease_coupled_many_clients_admit_exactly_the_limit_in_a_window() {
    let server = Running::start(POLICY, Backend::memory());
    let book = runtime().block_on(async {
        let crew = Crew::start(server.address());
        tokio::time::sleep(WINDOW * 8).await;
        crew.stop().await
    });
    let (most, windows) = book.most();
    assert!(most <= LIMIT, "{most} of {LIMIT}");
    assert!(most * 10 >= LIMIT * 9, "{most} of {LIMIT} is not tight");
    assert!(windows >= 6, "{windows} windows");
}

/// The limit holds on every run. On a busy machine little may pass in one of them.
#[test]
fn lease_coupled_holds_while_responses_are_late_and_connections_break() {
    let examines = |_| {
        let (most, windows) = late_and_broken();
        windows >= 6 && most > LIMIT / 4
    };
    assert!((0..RUNS_MAX).any(examines), "nothing was examined in {RUNS_MAX} runs");
}

/// Returns the maximum that passed in one window, and the number of windows.
fn late_and_broken() -> (u64, usize) {
    let server = Running::start(POLICY, Backend::memory());
    let book = runtime().block_on(async {
        let proxy = Proxy::to(server.address(), 60, 40).await;
        let crew = Crew::start(proxy.address);
        tokio::time::sleep(WINDOW * 8).await;
        proxy.heal();
        tokio::time::sleep(WINDOW * 3).await;
        crew.stop().await
    });
    let (most, windows) = book.most();
    println!("{most} of {LIMIT} in {windows} windows");
    assert!(most <= LIMIT, "{most} of {LIMIT}");
    assert!(book.outages.load(Relaxed) > 0, "the network did not misbehave");
    (most, windows)
}

#[test]
fn lease_coupled_holds_while_the_server_is_killed_and_started_again() {
    // The state of a store outlives the server.
    let mut server = Running::start(POLICY, Backend::memory());
    let clients = runtime();
    let _on = clients.enter();
    let crew = Crew::start(server.address());
    for _ in 0..3 {
        std::thread::sleep(WINDOW * 2);
        server.kill();
        std::thread::sleep(WINDOW / 2);
        server.restart();
    }
    std::thread::sleep(WINDOW * 3);
    let book = clients.block_on(crew.stop());
    let (most, windows) = book.most();
    assert!(most <= LIMIT, "{most} of {LIMIT}");
    assert!(windows >= 8 && most > LIMIT / 2, "{most} in {windows} windows: nothing was examined");
    assert!(book.outages.load(Relaxed) > 0, "the server was never away");
}

/// Two hundred per second, fifty at once, leased for a second: admitted(Δ) ≤ burst + rate·Δ + rate·h.
#[test]
fn lease_rolling_many_clients_admit_at_most_the_rate_and_the_units_leased_for_a_second() {
    let server =
        Running::start("  api: {rate: {limit: 200, per: 1s, burst: 50}, fleet: {}}\n", Backend::memory());
    runtime().block_on(async {
        let (passed, begun) = (Arc::new(AtomicU64::new(0)), WallClock.now());
        let mut spenders = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let client = server.client().build().unwrap();
            let rate = Limit::gcra(Rate::per_second(200).burst(50)).unwrap();
            let leasing = Leasing::new().batch(Batch::Fixed(10)).hold(Duration::from_secs(1));
            let limiter = leased(&client, rate, leasing);
            let passed = passed.clone();
            spenders.spawn(async move {
                let mut turn = 0;
                while WallClock.now().since(begun) < Duration::from_secs(2) {
                    turn += 1;
                    let cost = if turn % 8 == 0 { 2 } else { 1 };
                    let answer = limiter.check(Call::by("k").cost(cost)).await.unwrap();
                    passed.fetch_add(cost * u64::from(answer.allowed), Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        spenders.join_all().await;
        let (passed, took) = (passed.load(Relaxed), WallClock.now().since(begun).as_secs_f64());
        assert!(passed as f64 <= 50.0 + 200.0 * took + 200.0, "{passed} in {took} s");
        assert!(passed >= 200, "{passed} in {took} s: nothing was examined");
    });
}

const HOURLY: &str = "  api: {rate: {algorithm: fixed_window, limit: 100, per: 1h}, fleet: {}}\n";

fn hour() -> Limit {
    Limit::fixed_window(100, Duration::from_secs(3_600)).unwrap()
}

async fn raw_client(server: &Running) -> FleetClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
    FleetClient::new(endpoint.connect().await.unwrap())
}

fn ask(wants: i64) -> ReserveRequest {
    ReserveRequest { policy: "api".into(), key: "k".into(), wants, ..ReserveRequest::default() }
}

/// Returned units are available to others; a repeated return is not counted.
#[test]
fn a_return_counts_once_however_often_it_arrives() {
    let server = Running::start(HOURLY, Backend::memory());
    runtime().block_on(async {
        let mut raw = raw_client(&server).await;
        let ask = |wants, returned| ReserveRequest { returned, ..ask(wants) };
        let first = raw.reserve(ask(80, None)).await.unwrap().into_inner().lease.unwrap();
        assert_eq!(first.capacity, 80);
        let back = Returned { return_id: first.return_id, units: 50, epoch: first.epoch };
        for _ in 0..3 {
            raw.reserve(ask(0, Some(back.clone()))).await.unwrap();
        }
        let second = raw.reserve(ask(1_000, None)).await.unwrap().into_inner().lease.unwrap();
        assert_eq!(second.capacity, 70, "20 that were left, and 50 that came back once");
    });
}

#[test]
fn the_units_of_a_limiter_are_returned_when_it_closes() {
    let server = Running::start(HOURLY, Backend::memory());
    runtime().block_on(async {
        let (client, hour) = (server.client().build().unwrap(), hour());
        let leasing = Leasing::new().batch(Batch::Fixed(60)).return_after(None);
        let limiter = leased(&client, hour, leasing);
        assert!(limiter.check(Call::by("a key: {1}").cost(10)).await.unwrap().allowed);
        assert_eq!(limiter.stats().leasing.units_lent, 60);
        let strict = client.policy("api");
        assert_eq!(strict.peek("a key: {1}").await.unwrap().remaining, 40);
        limiter.close().await.unwrap();
        assert_eq!(strict.peek("a key: {1}").await.unwrap().remaining, 90);
        assert!(limiter.try_check("a key: {1}").is_none());
    });
}

/// The next batch is leased when one runs low, so unused units may belong to several leases.
#[test]
fn unused_units_of_several_leases_are_all_returned() {
    let server = Running::start(HOURLY, Backend::memory());
    runtime().block_on(async {
        let (client, hour) = (server.client().build().unwrap(), hour());
        let leasing = Leasing::new().batch(Batch::Fixed(20)).refill_at_percent(90).return_after(None);
        let limiter = leased(&client, hour, leasing);
        let mut spent = 0;
        while limiter.stats().leasing.units_lent < 40 {
            assert!(limiter.check("k").await.unwrap().allowed);
            spent += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(spent < 20, "{spent}: of the first lease something is left");
        limiter.close().await.unwrap();
        let left = client.policy("api").peek("k").await.unwrap().remaining;
        assert_eq!(left, 100 - spent);
    });
}

/// A few units that do not cover the request would be idle here, and others would miss them.
#[test]
fn fewer_units_than_a_request_needs_are_left_to_others() {
    let server = Running::start(HOURLY, Backend::memory());
    runtime().block_on(async {
        let (client, hour) = (server.client().build().unwrap(), hour());
        let leasing = Leasing::new().batch(Batch::Fixed(20)).return_after(None);
        let limiter = leased(&client, hour, leasing);
        let strict = client.policy("api");
        assert!(strict.check(Call::by("k").cost(95)).await.unwrap().allowed);
        assert!(!limiter.check(Call::by("k").cost(10)).await.unwrap().allowed);
        assert_eq!(strict.peek("k").await.unwrap().remaining, 5);
        assert!(limiter.check(Call::by("k").cost(5)).await.unwrap().allowed);
    });
}

#[test]
fn a_lease_has_at_least_its_minimum_or_nothing() {
    let policy = "  api: {rate: {algorithm: fixed_window, limit: 100, per: 1h}, fleet: {lease_max: 30}}\n";
    let server = Running::start(policy, Backend::memory());
    runtime().block_on(async {
        let mut raw = raw_client(&server).await;
        let ask = |wants, least| ReserveRequest { least, ..ask(wants) };
        for (wants, least, lent) in [(50, 40, 30), (30, 30, 30), (30, 0, 30), (30, 11, 0), (30, 10, 10)] {
            let lease = raw.reserve(ask(wants, least)).await.unwrap().into_inner().lease.unwrap();
            assert_eq!(lease.capacity, lent, "{wants}, at least {least}");
            assert_eq!(lease.retry_after_ms > 0, lent == 0);
        }
        assert_eq!(raw.reserve(ask(3, 4)).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    });
}

/// A cost that no lease covers does not empty the window for others.
#[test]
fn a_cost_above_the_limit_is_never_admitted_and_reserves_nothing() {
    let server = Running::start(HOURLY, Backend::memory());
    runtime().block_on(async {
        let (client, hour) = (server.client().build().unwrap(), hour());
        let limiter = leased(&client, hour, Leasing::auto());
        let answer = limiter.check(Call::by("k").cost(101)).await.unwrap();
        assert_eq!(answer.retry_after, Retry::Never);
        assert_eq!((limiter.stats().leasing.leases, answer.remaining), (0, 100));
        let long = "k".repeat(300);
        assert_eq!(limiter.check(&long).await.unwrap().remaining, 99);
        assert_eq!(client.policy("api").peek(&long).await.unwrap().remaining, 99);
    });
}

/// Units of a smooth rate do not add up across leases, and a lease may be smaller than the request.
#[test]
fn requests_that_cost_more_than_one_unit_of_a_smooth_rate_go_to_the_server() {
    let policy = "  api: {rate: {limit: 100, per: 1h}, fleet: {lease_max: 3}}\n";
    let server = Running::start(policy, Backend::memory());
    runtime().block_on(async {
        let client = server.client().build().unwrap();
        let rate = Limit::gcra(Rate::per(100, Duration::from_secs(3_600))).unwrap();
        let limiter = leased(&client, rate, Leasing::new());
        assert!(limiter.check(("k", 50)).await.unwrap().allowed);
        assert_eq!(limiter.stats().leasing.leases, 0);
        assert!(limiter.check("k").await.unwrap().allowed);
        assert!(limiter.stats().leasing.leases > 0);
    });
}

/// The name of a limiter is that of the policy, so one store serves several.
#[test]
fn limiters_of_several_policies_share_a_store() {
    let window = |name, limit| {
        format!("  {name}: {{rate: {{algorithm: fixed_window, limit: {limit}, per: 1h}}, fleet: {{}}}}\n")
    };
    let server = Running::start(&(window("small", 10) + &window("large", 1_000)), Backend::memory());
    runtime().block_on(async {
        let client = server.client().build().unwrap();
        let store = client.store();
        for (name, limit) in [("small", 10), ("large", 1_000)] {
            let window = Limit::fixed_window(limit, Duration::from_secs(3_600)).unwrap();
            let leasing = Leasing::new().batch(Batch::Fixed(5)).refill_at_percent(0).return_after(None);
            let builder = SharedLimiter::builder(store.clone(), name, window);
            let limiter = builder.leased_with(leasing).build().unwrap();
            assert!(limiter.check("k").await.unwrap().allowed);
            assert_eq!(client.policy(name).peek("k").await.unwrap().remaining, limit - 5);
            limiter.close().await.unwrap();
            assert_eq!(client.policy(name).peek("k").await.unwrap().remaining, limit - 1);
        }
    });
}

#[test]
fn outages_are_decided_by_the_fallback_of_the_limiter() {
    let mut server = Running::start(HOURLY, Backend::memory());
    let clients = runtime();
    let client = server.client().deadline(Duration::from_millis(300)).build().unwrap();
    let [open, local] = [OnOutage::Open, OnOutage::Local { nodes: std::num::NonZeroU32::new(50).unwrap() }]
        .map(|choice| {
            SharedLimiter::builder(client.store(), "api", hour()).leased().on_outage(choice).build()
        });
    server.kill();
    clients.block_on(async {
        let answer = open.unwrap().check("k").await.unwrap();
        assert!(answer.allowed && answer.outage.is_some() && answer.guarantee == Guarantee::Open);
        let local = local.unwrap();
        let mut passed = 0;
        for _ in 0..5 {
            passed += u32::from(local.check("k").await.unwrap().allowed);
        }
        assert_eq!(passed, 2, "a fiftieth of a hundred");
    });
}
