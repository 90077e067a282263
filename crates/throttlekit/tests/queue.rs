//! Queues of callers on several runtimes, and over stores. In real time: an expected event may take up to
//! [`SOON`] on a busy machine.
#![cfg(feature = "store")]

use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use throttlekit::admit::{Admission, Admit};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::store::MemoryStore;
use throttlekit::wait::{NotReady, Queue};
use throttlekit::{Concurrency, Limiter, Rate, SharedLimiter, SharedPolicy};
use throttlekit_core::turn::STALLED_AFTER;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

const MS: Duration = Duration::from_millis(1);
const SOON: Duration = Duration::from_secs(30);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Creates a queue over a limit of ten per second that has just been exhausted.
fn queue() -> Queue<Limiter> {
    let queue = Queue::new(Limiter::new(Rate::per_second(10).burst(1)).unwrap());
    assert!(queue.admit("key".into()).now_or_later().unwrap().unwrap().allowed);
    queue
}

type Waiting = Pin<Box<dyn Future<Output = Result<Admission, NotReady>> + Send>>;

/// Polls a wait once, so that it is in the queue.
async fn begin(queue: &Queue<Limiter>) -> Waiting {
    let (queue, before) = (queue.clone(), queue.waiting());
    let waits = queue.clone();
    let mut waiting: Waiting = Box::pin(async move { waits.until_ready("key").await });
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(queue.waiting(), before + 1);
    waiting
}

/// Waits for a call on a runtime of its own.
fn admitted(queue: &Queue<Limiter>) -> bool {
    let ready = async { timeout(SOON, queue.until_ready("key")).await };
    matches!(runtime().block_on(ready), Ok(Ok(admission)) if admission.allowed)
}

#[test]
fn waiters_of_a_blocked_runtime_do_not_block_others_and_are_served_when_it_continues() {
    let (queue, start) = (queue(), Instant::now());
    let (blocked, is_blocked) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let theirs = queue.clone();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            let waits = [begin(&theirs).await, begin(&theirs).await, begin(&theirs).await];
            blocked.send(()).unwrap();
            released.recv().unwrap();
            let mut ended = Vec::new();
            for wait in waits {
                ended.push(wait.await.is_ok());
            }
            ended
        })
    });
    is_blocked.recv().unwrap();
    assert!(admitted(&queue), "the turn stays with one whose runtime is blocked");
    assert!(start.elapsed() >= STALLED_AFTER, "nobody is passed over before it has stalled");
    assert_eq!(queue.waiting(), 3, "those of the blocked runtime keep their positions");
    release.send(()).unwrap();
    assert_eq!(thread.join().unwrap(), [true; 3]);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn waiters_of_an_idle_runtime_do_not_block_others() {
    let (queue, idle) = (queue(), runtime());
    let waits = idle.block_on(async { [begin(&queue).await, begin(&queue).await] });
    assert!(admitted(&queue));
    drop(waits);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn waiters_of_a_runtime_that_is_dropped_leave_at_once() {
    let (queue, dropped) = (queue(), runtime());
    for _ in 0..2 {
        let waits = queue.clone();
        dropped.spawn(async move { waits.until_ready("key").await.map(drop) });
    }
    dropped.block_on(async {
        while queue.waiting() < 2 {
            yield_now().await;
        }
    });
    drop(dropped);
    assert_eq!(queue.waiting(), 0);
    assert!(admitted(&queue));
}

/// Returns the nanoseconds of one call, in the fastest of several batches: other load on the machine only
/// adds.
fn nanos_of(mut call: impl FnMut()) -> u64 {
    const CALLS: u64 = 10_000;
    let clock = PreciseClock::new();
    let batches = (0..20).map(|_| {
        let start = clock.now();
        (0..CALLS).for_each(|_| call());
        clock.now().since(start).as_nanos() as u64 / CALLS
    });
    batches.min().unwrap()
}

/// Polls a call that must be ready at once.
fn at_once(queue: &Queue<Limiter>, key: &str) {
    let ready = pin!(queue.until_ready(key)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(Ok(_))));
}

#[test]
fn a_call_that_need_not_wait_takes_less_than_a_microsecond_longer() {
    let queue = Queue::new(Limiter::new(Rate::per_second(1_000_000).burst(1 << 40)).unwrap());
    let alone = nanos_of(|| assert!(queue.limiter().admit("key".into()).now_or_later().unwrap().is_ok()));
    let queued = nanos_of(|| at_once(&queue, "key"));
    assert!(queue.limiter().check(("waits", 1 << 40)).allowed);
    let waits = pin!(queue.until_ready(("waits", 1 << 24)));
    let beside = runtime().block_on(async {
        assert!(waits.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        nanos_of(|| at_once(&queue, "key"))
    });
    println!("limiter {alone} ns, queue {queued} ns, queue while another key waits {beside} ns");
    assert!(queued < alone + 1_000 && beside < alone + 1_000, "{alone}, {queued}, {beside}");
}

/// Starts five calls, each after those before it were admitted or have joined. Returns the order of their admissions.
async fn order_of_five<A: Admit>(queue: &Queue<A>) -> Vec<usize> {
    let (sender, mut admitted) = tokio::sync::mpsc::unbounded_channel();
    let mut order = Vec::new();
    for number in 0..5 {
        while queue.waiting() + order.len() < number {
            order.extend(timeout(MS, admitted.recv()).await.ok().flatten());
        }
        let (waits, sender) = (queue.clone(), sender.clone());
        tokio::spawn(async move {
            let permit = waits.until_ready("key").await.unwrap().into_permit().unwrap();
            sender.send(number).unwrap();
            permit.success();
        });
    }
    while order.len() < 5 {
        order.push(timeout(SOON, admitted.recv()).await.unwrap().unwrap());
    }
    order
}

#[tokio::test]
async fn callers_of_a_shared_limiter_wait_in_order() {
    let limiter = SharedLimiter::new(MemoryStore::new(), "api", Rate::per_second(10).burst(1)).unwrap();
    let (queue, start) = (Queue::new(limiter), Instant::now());
    assert_eq!(order_of_five(&queue).await, [0, 1, 2, 3, 4]);
    assert!(start.elapsed() >= 399 * MS, "{:?}", start.elapsed());
    assert_eq!(queue.waiting(), 0);
}

#[tokio::test]
async fn callers_of_a_shared_policy_wait_for_slots_and_for_the_rate() {
    let policy = SharedPolicy::builder(MemoryStore::new(), "chat")
        .concurrency(Concurrency::per_key(1))
        .rate(Rate::per_second(10).burst(1))
        .build()
        .unwrap();
    let queue = Queue::new(Arc::new(policy));
    assert_eq!(order_of_five(&queue).await, [0, 1, 2, 3, 4]);
}
