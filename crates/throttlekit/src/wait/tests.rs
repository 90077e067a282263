//! Queues over limiters whose clock is that of tokio, which stands still unless everything waits.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use throttlekit_core::{Decision, Timestamp};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use super::*;
use crate::admit::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit, StoreError, Unlimited};
use crate::clock::Clock;
use crate::sync::Mutex;
use crate::{Call, Concurrency, Guard, Limit, Limiter, Policy, Rate, Retry};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Reads tokio's time.
#[derive(Clone, Copy)]
struct TokioClock(Instant);

impl TokioClock {
    fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000) + self.0.elapsed()
    }
}

fn limiter(limit: Limit) -> Limiter<TokioClock> {
    Limiter::builder(limit).clock(TokioClock::new()).build().unwrap()
}

/// One unit each 100 ms, and a burst of this many.
fn tenth(burst: u64) -> Limiter<TokioClock> {
    limiter(Limit::gcra(Rate::per_second(10).burst(burst)).unwrap())
}

/// Counts the requests to a limiter.
#[derive(Clone)]
struct Counted<A>(A, Arc<AtomicUsize>);

impl<A: Admit> Admit for Counted<A> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        self.1.fetch_add(1, SeqCst);
        self.0.admit(call)
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.0.limits()
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// The admitted callers, with the milliseconds since the start.
#[derive(Clone)]
struct Log(Arc<Mutex<Vec<(&'static str, u128)>>>, Instant);

impl Log {
    fn new() -> Self {
        Self(Arc::default(), Instant::now())
    }

    /// Starts a call, which joins the queue before this returns.
    async fn call<A: Admit>(
        &self,
        queue: &Queue<A>,
        name: &'static str,
        call: Call<'static>,
    ) -> JoinHandle<Result<(), NotReady>> {
        let (log, queue) = (self.clone(), queue.clone());
        let task = tokio::spawn(async move {
            let admission = queue.until_ready(call).await?;
            log.0.lock().push((name, log.1.elapsed().as_millis()));
            admission.into_permit().unwrap().success();
            Ok(())
        });
        yield_now().await;
        task
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.lock().iter().map(|(name, _)| *name).collect()
    }

    fn entries(&self) -> Vec<(&'static str, u128)> {
        self.0.lock().clone()
    }
}

async fn all(tasks: impl IntoIterator<Item = JoinHandle<Result<(), NotReady>>>) {
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[test]
fn a_call_that_need_not_wait_needs_no_runtime_and_does_not_suspend() {
    let queue = Queue::new(Limiter::new(Rate::per_minute(60)).unwrap());
    let ready = pin!(queue.until_ready("alice")).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(Ok(admission)) if admission.allowed));
    assert!(queue.admit(Call::by("alice")).now_or_later().is_ok());
}

#[tokio::test(start_paused = true)]
async fn waiters_are_admitted_at_the_exact_instants_in_the_order_of_arrival() {
    let (queue, log) = (Queue::new(tenth(1)), Log::new());
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "d"] {
        tasks.push(log.call(&queue, name, Call::by("key")).await);
    }
    assert_eq!(queue.waiting(), 3);
    all(tasks).await;
    assert_eq!(log.entries(), [("a", 0), ("b", 100), ("c", 200), ("d", 300)]);
    assert_eq!(queue.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_the_waiter_whose_turn_it_is_requests_the_limiter() {
    let requests = Arc::new(AtomicUsize::new(0));
    let (queue, log) = (Queue::new(Counted(tenth(1), requests.clone())), Log::new());
    let mut tasks = Vec::new();
    for _ in 0..50 {
        tasks.push(log.call(&queue, "a", Call::by("key")).await);
    }
    assert_eq!(requests.load(SeqCst), 2, "48 joined without a request");
    sleep(20 * SECOND).await;
    all(tasks).await;
    assert_eq!(requests.load(SeqCst), 99, "one when its turn begins, one when it is admitted");
}

#[tokio::test(start_paused = true)]
async fn a_cheap_request_does_not_overtake_an_expensive_one() {
    let (queue, log) = (Queue::new(tenth(10)), Log::new());
    let mut tasks = Vec::new();
    for (name, cost) in [("first", 10), ("expensive", 8), ("cheap", 1)] {
        tasks.push(log.call(&queue, name, Call::by("key").cost(cost)).await);
    }
    all(tasks).await;
    assert_eq!(log.entries(), [("first", 0), ("expensive", 800), ("cheap", 900)]);
}

#[tokio::test(start_paused = true)]
async fn an_urgent_call_takes_the_turn_of_a_sleeping_one_and_one_turn_in_four_goes_by_age() {
    let (queue, log) = (Queue::new(tenth(1)), Log::new());
    let (batch, urgent) = (Call::by("key").priority(1), Call::by("key"));
    let mut tasks = vec![log.call(&queue, "first", urgent).await, log.call(&queue, "batch", batch).await];
    for name in ["u1", "u2", "u3", "u4"] {
        tasks.push(log.call(&queue, name, urgent).await);
    }
    all(tasks).await;
    assert_eq!(log.names(), ["first", "u1", "u2", "u3", "batch", "u4"]);
    assert_eq!(log.entries()[5].1, 500, "changes of the turn cost no time");
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_each_other_unless_they_are_ignored() {
    let (queue, log) = (Queue::new(tenth(1)), Log::new());
    let tasks = [
        log.call(&queue, "a1", Call::by("a")).await,
        log.call(&queue, "a2", Call::by("a")).await,
        log.call(&queue, "b1", Call::by("b")).await,
    ];
    assert_eq!(log.names(), ["a1", "b1"]);
    all(tasks).await;
    let queue = Queue::builder(tenth(1)).ignore_keys().build().unwrap();
    let tasks = [
        log.call(&queue, "c1", Call::by("c")).await,
        log.call(&queue, "c2", Call::by("c")).await,
        log.call(&queue, "d1", Call::by("d")).await,
    ];
    all(tasks).await;
    assert_eq!(log.names()[3..], ["c1", "c2", "d1"], "though the limiter would admit d1 at once");
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_limit_fails_at_once() {
    let (queue, start) = (Queue::new(tenth(5)), Instant::now());
    let Err(NotReady::Never(denied)) = queue.until_ready(("key", 6)).await else { panic!("not never") };
    assert_eq!((denied.decision.retry_after, start.elapsed()), (Retry::Never, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_wait_known_to_exceed_the_deadline_fails_at_once_and_one_that_fits_exactly_is_waited_for() {
    let (queue, start) = (Queue::new(tenth(1)), Instant::now());
    let _ = queue.until_ready("key").await.unwrap();
    let late = queue.until_ready_timeout("key", 100 * MS - Duration::from_nanos(1)).await;
    let Err(NotReady::Timeout(denied)) = late else { panic!("{late:?}") };
    assert_eq!((denied.decision.retry_after, start.elapsed()), (Retry::After(100 * MS), Duration::ZERO));
    assert!(queue.until_ready_timeout("key", 100 * MS).await.unwrap().allowed);
    assert_eq!(start.elapsed(), 100 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_a_turn_times_out_with_the_last_denial_of_its_key() {
    let (queue, log) = (Queue::new(tenth(10)), Log::new());
    let first = log.call(&queue, "first", Call::by("key").cost(10)).await;
    let long = log.call(&queue, "long", Call::by("key").cost(10)).await;
    let start = Instant::now();
    let late = queue.until_ready_timeout(("key", 1), 300 * MS).await;
    let Err(NotReady::Timeout(denied)) = late else { panic!("{late:?}") };
    assert_eq!((start.elapsed(), denied.decision.retry_after), (300 * MS, Retry::After(SECOND)));
    all([first, long]).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_rejects_at_once_and_has_capacity_after_a_waiter_left() {
    let (queue, log) = (Queue::builder(tenth(1)).max_waiters(2).build().unwrap(), Log::new());
    let mut tasks = Vec::new();
    for name in ["a", "b", "c"] {
        tasks.push(log.call(&queue, name, Call::by("key")).await);
    }
    assert!(matches!(queue.until_ready("key").await, Err(NotReady::Full(_))));
    assert!(queue.until_ready("other").await.is_ok(), "no place is needed without a wait");
    assert!(matches!(queue.until_ready("other").await, Err(NotReady::Full(_))));
    tasks.remove(2).abort();
    yield_now().await;
    tasks.push(log.call(&queue, "d", Call::by("key")).await);
    all(tasks).await;
    assert_eq!(log.names(), ["a", "b", "d"]);
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_a_cancelled_waiter_passes_on_and_nothing_is_left_behind() {
    let (queue, log) = (Queue::new(tenth(1)), Log::new());
    let first = log.call(&queue, "a", Call::by("key")).await;
    let holder = log.call(&queue, "b", Call::by("key")).await;
    let middle = log.call(&queue, "c", Call::by("key")).await;
    let last = log.call(&queue, "d", Call::by("key")).await;
    sleep(50 * MS).await;
    holder.abort();
    middle.abort();
    all([first, last]).await;
    assert_eq!(log.entries(), [("a", 0), ("d", 100)]);
    assert_eq!(queue.waiting(), 0);
    sleep(SECOND).await;
    assert!(queue.admit(Call::by("key")).now_or_later().is_ok(), "nobody is in the way");
}

/// Admits after I/O, or fails.
struct Remote {
    limiter: Limiter<TokioClock>,
    takes: Duration,
    fails: AtomicUsize,
}

impl Admit for Arc<Remote> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let (remote, key, cost) = (self.clone(), call.key().to_vec(), call.units());
        Admitting::pending(async move {
            sleep(remote.takes).await;
            if remote.fails.load(SeqCst) > 0 {
                remote.fails.fetch_sub(1, SeqCst);
                return Err(StoreError::Overloaded);
            }
            remote.limiter.admit(Call::by(&key).cost(cost)).await
        })
    }

    fn limits(&self) -> Vec<LimitInfo> {
        Vec::new()
    }

    fn now(&self) -> Timestamp {
        self.limiter.now()
    }
}

fn remote(takes: Duration) -> Arc<Remote> {
    Arc::new(Remote { limiter: tenth(1), takes, fails: AtomicUsize::new(0) })
}

#[tokio::test(start_paused = true)]
async fn a_store_error_ends_one_wait_and_the_turn_passes_on() {
    let remote = remote(MS);
    let (queue, log) = (Queue::new(remote.clone()), Log::new());
    let first = log.call(&queue, "a", Call::by("key")).await;
    sleep(10 * MS).await;
    let fails = log.call(&queue, "b", Call::by("key")).await;
    sleep(10 * MS).await;
    let next = log.call(&queue, "c", Call::by("key")).await;
    remote.fails.store(1, SeqCst);
    assert_eq!(fails.await.unwrap(), Err(NotReady::Store(StoreError::Overloaded)));
    all([first, next]).await;
    assert_eq!((log.names(), queue.waiting()), (vec!["a", "c"], 0));
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_does_not_respond_ends_the_wait_at_its_deadline() {
    let (queue, start) = (Queue::new(remote(SECOND)), Instant::now());
    let nothing = queue.until_ready_timeout("key", 200 * MS).await;
    assert_eq!(nothing.unwrap_err(), NotReady::Store(StoreError::Deadline(200 * MS)));
    assert_eq!(start.elapsed(), 200 * MS);
}

#[tokio::test(start_paused = true)]
async fn jitter_delays_and_never_hastens_a_request() {
    let jittered = Queue::builder(tenth(1)).jitter(50 * MS).build().unwrap();
    let (exact, shared) = (Queue::new(tenth(1)), Queue::new(remote(Duration::ZERO)));
    let mut delayed = 0;
    for _ in 0..20 {
        let start = Instant::now();
        let (one, two, three) =
            tokio::join!(jittered.until_ready("key"), exact.until_ready("key"), shared.until_ready("key"));
        let _ = (one.unwrap(), two.unwrap(), three.unwrap());
        let waited = start.elapsed();
        assert!(waited.is_zero() || (100 * MS..=152 * MS).contains(&waited), "{waited:?}");
        delayed += usize::from(waited > 101 * MS);
    }
    assert!(delayed > 0, "no wait of 20 was delayed");
}

#[tokio::test(start_paused = true)]
async fn slots_that_are_released_reach_waiters_in_order() {
    let guard = Guard::new(1).unwrap();
    let (queue, log) = (Queue::builder(guard.clone()).ignore_keys().build().unwrap(), Log::new());
    let held = queue.until_ready("x").await.unwrap();
    let mut tasks = Vec::new();
    for name in ["a", "b", "c"] {
        tasks.push(log.call(&queue, name, Call::by(name)).await);
    }
    sleep(SECOND).await;
    assert!(log.names().is_empty() && queue.waiting() == 3);
    drop(held);
    all(tasks).await;
    assert_eq!(log.names(), ["a", "b", "c"]);
    assert!(log.entries()[2].1 <= 1_000 + 8, "a free slot is noticed within 8 ms: {:?}", log.entries());
    assert_eq!(guard.stats().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_policy_admits_a_waiter_with_a_permit_over_all_axes() {
    let builder = Policy::builder("chat").concurrency(Concurrency::per_key(1)).clock(TokioClock::new());
    let policy = Arc::new(builder.rate(Rate::per_second(10).burst(1)).build().unwrap());
    let (queue, start) = (Queue::new(policy), Instant::now());
    let permit = queue.until_ready("acme").await.unwrap().into_permit().unwrap();
    let (next, ()) = tokio::join!(queue.until_ready("acme"), async {
        sleep(20 * MS).await;
        permit.success();
    });
    assert!(next.unwrap().allowed && start.elapsed() == 100 * MS, "first the slot, then the rate");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_shaper_delays_starts_when_it_may() {
    let shaper = Limit::leaky_bucket(Rate::per_second(10), 250 * MS).unwrap();
    let (queue, log) = (Queue::new(limiter(shaper)), Log::new());
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        tasks.push(log.call(&queue, name, Call::by("key")).await);
    }
    all(tasks).await;
    assert_eq!(log.entries(), [("a", 0), ("b", 100), ("c", 200), ("d", 300), ("e", 400)]);
    let queue = Queue::builder(limiter(shaper)).max_wait(50 * MS).build().unwrap();
    assert!(queue.until_ready("key").await.is_ok());
    assert!(matches!(queue.until_ready("key").await, Err(NotReady::Timeout(_))));
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_an_admit_that_waits_and_a_timeout_is_a_denial() {
    let queue = Queue::builder(tenth(1)).max_wait(150 * MS).build().unwrap();
    let (admit, start): (Arc<dyn Admit>, _) = (Arc::new(queue), Instant::now());
    assert!(admit.admit(Call::by("key")).now_or_later().unwrap().unwrap().allowed);
    let (one, two) = tokio::join!(admit.admit(Call::by("key")), admit.admit(Call::by("key")));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one.allowed && !two.allowed && two.permit.is_none());
    assert_eq!((two.denied_by(), start.elapsed()), (Some(Axis::Rate), 100 * MS));
    assert_eq!(admit.limits().len(), 1);
}

/// Denies everything because of its price.
struct Priced;

impl Admit for Priced {
    fn admit(&self, _: Call<'_>) -> Admitting {
        let decision = Decision {
            allowed: false,
            limit: 1,
            remaining: 0,
            reset_at: Timestamp::EPOCH,
            retry_after: Retry::Now,
        };
        Admitting::ready(Ok(Admission::of(Axis::Price, decision, SharedPermit::none())))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        Vec::new()
    }

    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_below_the_price_is_not_waited_for() {
    let queue = Queue::new(Priced);
    assert!(
        matches!(queue.until_ready("key").await, Err(NotReady::Never(denied)) if denied.axis == Some(Axis::Price))
    );
    let denied = queue.admit(Call::by("key")).await.unwrap();
    assert_eq!((denied.allowed, denied.denied_by()), (false, Some(Axis::Price)));
}

#[test]
fn settings_out_of_range_are_rejected() {
    let of = || Queue::builder(Unlimited);
    assert!(of().max_waiters(0).build().is_err() && of().max_waiters((1 << 20) + 1).build().is_err());
    assert!(of().max_wait(Duration::MAX).build().is_err() && of().jitter(61 * SECOND).build().is_err());
    assert!(of().max_waiters(1).max_wait(Duration::ZERO).jitter(60 * SECOND).build().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_released_slot_reaches_the_waiter_whose_turn_it_is_at_once() {
    let guard = Guard::builder(1).queue_max(8).build().unwrap();
    let (queue, log) = (Queue::builder(guard.clone()).ignore_keys().build().unwrap(), Log::new());
    let held = queue.until_ready("x").await.unwrap();
    let first = log.call(&queue, "first", Call::by("a").priority(1)).await;
    let second = log.call(&queue, "second", Call::by("b").priority(1)).await;
    sleep(10 * MS).await;
    let urgent = log.call(&queue, "urgent", Call::by("c")).await;
    sleep(SECOND).await;
    assert_eq!((guard.stats().waiting, queue.waiting()), (1, 3), "one waits for the slot, the others for it");
    drop(held);
    all([first, second, urgent]).await;
    assert_eq!(log.entries(), [("first", 1_010), ("urgent", 1_010), ("second", 1_010)], "no pause");
    assert_eq!((guard.stats().in_flight, guard.stats().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_a_waiter_that_leaves_goes_to_the_next() {
    let guard = Guard::builder(1).queue_max(8).build().unwrap();
    let queue = Queue::builder(guard.clone()).ignore_keys().build().unwrap();
    let held = queue.until_ready("x").await.unwrap();
    let waits = |name: &'static str| {
        let queue = queue.clone();
        tokio::spawn(async move { queue.until_ready(name).await.map(drop) })
    };
    let (leaves, next) = (waits("a"), waits("b"));
    sleep(10 * MS).await;
    // The slot is granted to the first, which leaves before it takes it.
    drop(held);
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    next.await.unwrap().unwrap();
    assert_eq!((guard.stats().in_flight, queue.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_a_call_is_decided_once_and_never_ahead_of_those_who_wait() {
    let queue = Queue::new(remote(10 * MS));
    let at_once = async || queue.until_ready_timeout("key", Duration::ZERO).await;
    assert!(at_once().await.unwrap().allowed, "a limiter may take longer than no time");
    assert!(matches!(at_once().await, Err(NotReady::Timeout(denied)) if !denied.decision.allowed));
    assert_eq!(queue.waiting(), 0);
    let first = tokio::spawn({
        let queue = queue.clone();
        async move { queue.until_ready("key").await.map(drop) }
    });
    sleep(50 * MS).await;
    assert_eq!(queue.waiting(), 1);
    let start = Instant::now();
    assert!(matches!(at_once().await, Err(NotReady::Timeout(_))), "others wait");
    assert_eq!(start.elapsed(), Duration::ZERO);
    first.await.unwrap().unwrap();
}
