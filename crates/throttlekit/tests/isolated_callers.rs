//! One caller's runtime does not affect callers on others: it may be dropped, idle, blocked or missing.
//!
//! In real time, since runtimes are mixed: an event that must happen soon may take up to [`SOON`] on a busy
//! machine, and one that must not happen is given far longer than it would take.
#![cfg(feature = "store")]

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use throttlekit::budget::TokenBudget;
use throttlekit::guard::Ending;
use throttlekit::leasing::Leasing;
use throttlekit::store::{MemoryStore, StoreClient, StoreClientOptions, StoreError};
use throttlekit::{Axis, Budget, Limit, SharedFairLimiter, SharedGuard, SharedLimiter, SharedPolicy};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// The maximum of all deadlines under test.
const SOON: Duration = Duration::from_secs(30);
/// Far longer than the wait of a caller that does not depend on the blocked thread.
const BLOCKED: Duration = Duration::from_secs(3);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

const BUDGET: Budget = Budget::per_hour(1_000);

fn window() -> Limit {
    Limit::fixed_window(1_000, HOUR).unwrap()
}

fn leased() -> SharedLimiter<MemoryStore> {
    SharedLimiter::builder(MemoryStore::new(), "p", window()).leased().build().unwrap()
}

fn fair() -> SharedFairLimiter {
    SharedFairLimiter::new(MemoryStore::new(), "p", BUDGET).unwrap()
}

/// Polls once, then drops the future.
async fn give_up<T>(work: impl Future<Output = T>) {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _ = work.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

/// An executor without timers, tasks or I/O.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut work, until) = (pin!(work), Instant::now() + SOON);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "nothing for {SOON:?}");
        thread::park_timeout(left);
    }
}

fn eventually(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < until, "{what}: not within {SOON:?}");
        thread::sleep(MS);
    }
}

/// Creates a client of a store that is up or not.
fn line(up: &Arc<AtomicBool>) -> StoreClient {
    let up = up.clone();
    let options = StoreClientOptions { probe_every: 20 * MS, ..StoreClientOptions::default() };
    let probe = move || -> std::pin::Pin<Box<dyn Future<Output = _> + Send>> {
        let up = up.load(SeqCst);
        Box::pin(async move { if up { Ok(()) } else { Err(StoreError::unavailable("down")) } })
    };
    StoreClient::new(options, Box::new(probe))
}

async fn open_it(line: &StoreClient) {
    for _ in 0..5 {
        let _ = line.call(async { Err::<(), _>(StoreError::unavailable("down")) }).await;
    }
    assert!(line.stats().open);
}

#[test]
fn the_circuit_breaker_closes_after_the_runtime_that_opened_it_was_dropped() {
    let up = Arc::new(AtomicBool::new(false));
    let line = line(&up);
    runtime().block_on(open_it(&line));
    up.store(true, SeqCst);
    eventually("the circuit breaker closes", || !line.stats().open);
    assert_eq!(runtime().block_on(line.call(async { Ok(7) })), Ok(7));
}

#[test]
fn the_circuit_breaker_closes_while_the_runtime_that_opened_it_is_idle() {
    let up = Arc::new(AtomicBool::new(false));
    let line = line(&up);
    let idle = runtime();
    idle.block_on(open_it(&line));
    up.store(true, SeqCst);
    eventually("the circuit breaker closes", || !line.stats().open);
}

/// The prober ends with the runtime that the client was given. The next refused call starts another.
#[test]
fn a_call_that_is_refused_starts_a_prober_where_there_is_none() {
    let given = runtime();
    let probed = Arc::new(AtomicU64::new(0));
    let counts = probed.clone();
    let probe = move || -> std::pin::Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> {
        counts.fetch_add(1, SeqCst);
        panic!("of the probe's own");
    };
    let background = throttlekit::store::Background::default().on(given.handle().clone());
    let options = StoreClientOptions { probe_every: 5 * MS, ..StoreClientOptions::default() };
    let line = StoreClient::on(background, options, Box::new(probe));
    given.block_on(async {
        line.open();
        while probed.load(SeqCst) < 3 {
            let _ = line.call(async { Ok(()) }).await;
            sleep(MS).await;
        }
    });
    assert!(line.stats().open, "a probe that panics is no answer, and does not end the probing");
}

#[test]
fn calls_that_their_callers_gave_up_count_as_failures() {
    let line = StoreClient::new(StoreClientOptions::default(), Box::new(|| Box::pin(pending())));
    runtime().block_on(async {
        for _ in 0..5 {
            let call = line.call(pending::<Result<(), StoreError>>());
            assert!(timeout(MS, call).await.is_err());
        }
    });
    // A call is counted before its slot is free.
    eventually("every call ends", || line.stats().in_flight == 0);
    let stats = line.stats();
    assert_eq!((stats.timed_out, stats.opened, stats.open), (5, 1, true));
}

#[test]
fn short_timeouts_of_callers_of_a_healthy_engine_keep_the_circuit_breaker_closed() {
    // A deadline that a busy machine does not miss.
    let options = StoreClientOptions { deadline: SOON, ..StoreClientOptions::default() };
    let line = StoreClient::new(options, Box::new(|| Box::pin(pending())));
    runtime().block_on(async {
        for _ in 0..50 {
            let call = line.call(async {
                sleep(10 * MS).await;
                Ok(())
            });
            let _ = timeout(MS, call).await;
        }
    });
    eventually("every call ends", || line.stats().in_flight == 0);
    let stats = line.stats();
    assert_eq!((stats.calls, stats.timed_out, stats.failed, stats.open), (50, 0, 0, false));
}

#[test]
fn a_call_that_panics_counts_and_leaks_no_slot() {
    let line = StoreClient::new(StoreClientOptions::default(), Box::new(|| Box::pin(pending())));
    let broken = || -> Result<(), StoreError> { panic!("of the test's own") };
    let call = || runtime().block_on(line.call(async move { broken() }));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    assert!(panicked.is_err(), "the caller hears of it");
    let stats = line.stats();
    assert_eq!((stats.failed, stats.in_flight), (1, 0));
}

#[test]
fn a_leased_limiter_responds_while_the_runtime_of_a_cancelled_caller_is_idle() {
    let limiter = leased();
    let idle = runtime();
    idle.block_on(give_up(limiter.check("k")));
    let answer = runtime().block_on(async { timeout(SOON, limiter.check("k")).await });
    assert!(answer.expect("nobody waits for the idle runtime").unwrap().decision.allowed);
}

#[test]
fn a_fair_limiter_responds_while_the_runtime_of_a_cancelled_caller_is_idle() {
    let fair = fair();
    let idle = runtime();
    idle.block_on(give_up(fair.check("t")));
    for tenant in ["t", "another"] {
        let answer = runtime().block_on(async { timeout(SOON, fair.check(tenant)).await });
        assert!(answer.expect("nobody waits for the idle runtime").unwrap().decision.allowed);
    }
}

/// A thread-per-core server: one request has been sent when another on the same worker starts to compute.
fn while_a_worker_is_blocked<F: Future + Send + 'static>(first: F, then: impl FnOnce()) {
    let (blocks, blocked) = mpsc::channel();
    let worker = thread::spawn(move || {
        runtime().block_on(async move {
            give_up(first).await;
            blocks.send(()).unwrap();
            thread::sleep(BLOCKED);
        });
    });
    blocked.recv().unwrap();
    let began = Instant::now();
    then();
    let took = began.elapsed();
    assert!(took < BLOCKED - Duration::from_secs(1), "it waited for the blocked worker: {took:?}");
    worker.join().unwrap();
}

#[test]
fn a_leased_limiter_responds_while_the_first_callers_worker_is_blocked() {
    let (limiter, other) = (leased(), runtime());
    let first = limiter.clone();
    while_a_worker_is_blocked(async move { first.check("k").await }, || {
        assert!(other.block_on(limiter.check("k")).unwrap().decision.allowed);
    });
}

#[test]
fn a_fair_limiter_responds_while_the_first_callers_worker_is_blocked() {
    let (fair, other) = (fair(), runtime());
    let first = fair.clone();
    while_a_worker_is_blocked(async move { first.check("t").await }, || {
        assert!(other.block_on(fair.check("t")).unwrap().decision.allowed);
    });
}

#[test]
fn slots_are_kept_while_the_runtime_of_the_first_call_is_idle() {
    let lives = Duration::from_secs(2);
    let slots = SharedGuard::builder(MemoryStore::new(), "gpu", 2).lease(lives).build().unwrap();
    let idle = runtime();
    let first = idle.block_on(slots.acquire("k")).unwrap();
    idle.block_on(first.permit.unwrap().close(Ending::Success)).unwrap();
    let worked = runtime().block_on(async {
        let slot = slots.acquire("k").await.unwrap().permit.unwrap();
        slot.run(sleep(lives + lives / 2)).await
    });
    let stats = slots.stats().slots.unwrap();
    assert!(worked.is_ok() && stats.heartbeats > 0 && stats.renewer_alive, "{worked:?}, {stats:?}");
}

#[test]
fn slots_that_are_dropped_on_no_runtime_go_back() {
    let slots = SharedGuard::builder(MemoryStore::new(), "gpu", 1).build().unwrap();
    let held = runtime().block_on(slots.acquire("k")).unwrap();
    drop(held);
    eventually("the slot is free", || block_on(slots.peek("k")).unwrap().remaining == 1);
}

/// The renewer has stopped: `renewer_alive` returns `false` although its task exists.
#[test]
fn a_renewer_that_is_not_driven_is_not_alive() {
    let given = runtime();
    let store = MemoryStore::new().runtime(given.handle().clone());
    let lives = Duration::from_millis(200);
    let slots = SharedGuard::builder(store, "gpu", 1).lease(lives).build().unwrap();
    let held = given.block_on(slots.acquire("k")).unwrap();
    assert!(slots.stats().slots.unwrap().renewer_alive);
    thread::sleep(lives);
    assert!(!slots.stats().slots.unwrap().renewer_alive);
    drop(held);
}

#[test]
fn unused_tokens_are_returned_while_the_runtime_of_the_first_stream_is_idle() {
    let limit = Limit::token_budget(1_000, HOUR).unwrap();
    let budget = TokenBudget::builder(MemoryStore::new(), "tokens", limit).build().unwrap();
    let left = || block_on(budget.shared().peek("k")).unwrap().remaining;
    let (idle, other) = (runtime(), runtime());
    drop(idle.block_on(budget.open("k", Some(10))).unwrap());
    let second = other.block_on(budget.open("k", Some(10))).unwrap().stream.unwrap();
    assert!(left() < 1_000);
    drop(second);
    eventually("it goes back", || left() == 1_000);
}

#[test]
fn a_divided_guard_keeps_its_grant_while_the_runtime_that_built_it_is_idle() {
    let idle = runtime();
    let lives = Duration::from_millis(500);
    let build = async { SharedGuard::builder(MemoryStore::new(), "api", 4).divided().lease(lives).build() };
    let guard = idle.block_on(build).unwrap();
    eventually("it is granted a share", || guard.try_acquire(()).unwrap().is_ok());
    let grants = guard.stats().division.unwrap().grants;
    eventually("the grant is renewed", || guard.stats().division.unwrap().grants > grants + 2);
}

/// Everything that waits for a store works on any executor.
#[test]
fn a_caller_without_a_runtime_gets_a_response() {
    let store = Arc::new(MemoryStore::new());
    let strict = SharedLimiter::new(store.clone(), "strict", window()).unwrap();
    assert!(block_on(strict.check("k")).unwrap().decision.allowed);
    assert!(block_on(leased().check("k")).unwrap().decision.allowed);
    assert!(block_on(fair().check("k")).unwrap().decision.allowed);

    let slots = SharedGuard::builder(store.clone(), "gpu", 1).build().unwrap();
    let slot = block_on(slots.acquire("k")).unwrap().permit.unwrap();
    assert_eq!(block_on(slot.run(async { 7 })), Ok(7));
    assert_eq!(block_on(slot.close(Ending::Success)), Ok(true));

    let budget = Limit::token_budget(1_000, HOUR).unwrap();
    let budget = TokenBudget::builder(store.clone(), "tokens", budget).build().unwrap();
    let mut stream = block_on(budget.open("k", Some(10))).unwrap().stream.unwrap();
    assert!(block_on(stream.debit(5)).unwrap().decision.allowed);
    assert_eq!(block_on(stream.settle()), Ok(()));

    let policy = SharedPolicy::builder(store.clone(), "policy").with(Axis::Rate, strict).build().unwrap();
    let permit = block_on(policy.admit("k")).unwrap().permit.unwrap();
    assert_eq!(block_on(permit.close(Ending::Success)), Ok(()));

    let line = line(&Arc::default());
    assert_eq!(block_on(line.call(async { Ok(7) })), Ok(7));
}

/// Tasks end with the last handle. Counted on a runtime of the test.
#[test]
fn nothing_is_left_when_the_last_handle_is_dropped() {
    let given = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = Arc::new(MemoryStore::new().runtime(given.handle().clone()));
    let tasks = || Handle::metrics(given.handle()).num_alive_tasks();
    {
        let leasing = Leasing::new().return_after(Some(MS));
        let leased = SharedLimiter::builder(store.clone(), "leased", window()).leased_with(leasing);
        let leased = leased.build().unwrap();
        let fair = SharedFairLimiter::new(store.clone(), "fair", BUDGET).unwrap();
        let slots = SharedGuard::builder(store.clone(), "gpu", 1).build().unwrap();
        let limit = Limit::token_budget(1_000, HOUR).unwrap();
        let budget = TokenBudget::builder(store.clone(), "tokens", limit);
        let budget = budget.idle_timeout(20 * MS).build().unwrap();
        let guard = SharedGuard::builder(store.clone(), "api", 4).divided().build().unwrap();
        let line = line(&Arc::default());
        block_on(async {
            assert!(leased.check("k").await.unwrap().decision.allowed);
            assert!(fair.check("k").await.unwrap().decision.allowed);
            let slot = slots.acquire("k").await.unwrap().permit;
            let stream = budget.open("k", None).await.unwrap().stream;
            line.open();
            assert!(slot.is_some() && stream.is_some() && line.stats().open);
        });
        assert!(tasks() > 0);
        drop((leased, fair, slots, budget, guard, line));
    }
    eventually("every task ends", || tasks() == 0);
    eventually("nobody holds the store", || Arc::strong_count(&store) == 1);
}
