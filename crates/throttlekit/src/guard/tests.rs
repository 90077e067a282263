//! Guarantees of a guard, on one thread. Threads are in `loom_tests.rs`, random sequences in the conformance suite.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;
use crate::admit::Axis;
use crate::clock::ManualClock;
use crate::rate::Timestamp;
use crate::{BuildError, Call, Concurrency, Retry};

fn batch() -> Call<'static> {
    Call::from(()).priority(1)
}

type Waits<'a> = Pin<Box<dyn Future<Output = Result<GuardPermit<'a>, Denied>> + 'a>>;

fn wait<'a>(guard: &'a Guard, call: impl Into<Call<'static>> + 'a) -> Waits<'a> {
    Box::pin(guard.acquire(call))
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn is_waiting<F: Future + Unpin>(future: &mut F) -> bool {
    poll(future).is_pending()
}

fn held<T, E>(answer: Poll<Result<T, E>>) -> T {
    let Poll::Ready(Ok(permit)) = answer else { panic!("no slot") };
    permit
}

fn snapshot(guard: &Guard) -> (u32, u32) {
    let GuardStats { limit, in_flight, .. } = guard.stats();
    (limit, in_flight)
}

#[test]
fn the_last_slot_is_admitted_and_the_next_is_not() {
    let guard = Guard::new(2).unwrap();
    let _one = guard.try_acquire(()).unwrap();
    let two = guard.try_acquire(()).unwrap();
    let denied = guard.try_acquire(()).unwrap_err();
    assert_eq!((denied.axis, denied.decision), (Some(Axis::Concurrency), guard.peek(())));
    assert_eq!((denied.decision.limit, denied.decision.remaining), (2, 0));
    two.ignored();
    assert!(guard.try_acquire(()).is_ok());
}

#[test]
fn a_denial_is_retryable_after_a_release() {
    let decision = Guard::new(0).unwrap().try_acquire(()).unwrap_err().decision;
    assert!(!decision.allowed && decision.retry_after == Retry::OnRelease && decision.limit == 0);
}

#[test]
fn a_slot_is_released_once_however_its_permit_ends() {
    let guard = Guard::new(1).unwrap();
    guard.try_acquire(()).unwrap().success();
    guard.try_acquire(()).unwrap().success_after(Duration::from_millis(1));
    guard.try_acquire(()).unwrap().dropped();
    guard.try_acquire(()).unwrap().ignored();
    drop(guard.try_acquire(()).unwrap());
    let owned = || guard.try_acquire_owned(()).unwrap();
    owned().success();
    owned().success_after(Duration::from_millis(1));
    owned().dropped();
    owned().ignored();
    drop(owned());
    assert_eq!(snapshot(&guard), (1, 0));
    assert_eq!(guard.stats().dropped, 2);
}

#[test]
fn a_panic_is_a_drop_and_a_cancel_is_not() {
    let guard = Guard::new(Ceiling::between(1, 10)).unwrap();
    let panicked = std::thread::scope(|scope| {
        let panics = || {
            let _permit = guard.try_acquire(()).unwrap();
            panic!("while a permit is held");
        };
        scope.spawn(panics).join().is_err()
    });
    assert!(panicked);
    drop(guard.try_acquire(()).unwrap());
    let stats = guard.stats();
    assert_eq!((stats.dropped, stats.samples, stats.in_flight), (1, 0, 0));
}

#[test]
fn only_success_is_a_sample_and_all_are_while_they_are_few() {
    let clock = ManualClock::at(Timestamp::EPOCH);
    let guard = Guard::builder(Ceiling::between(1, 10)).clock(clock.clone()).build().unwrap();
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(1));
        guard.try_acquire(()).unwrap().success();
        guard.try_acquire(()).unwrap().success_after(Duration::from_millis(3));
        guard.try_acquire(()).unwrap().ignored();
    }
    assert_eq!(guard.stats().samples, 2_000);
}

#[test]
fn one_success_in_sixteen_is_a_sample_while_they_come_fast() {
    let clock = ManualClock::at(Timestamp::EPOCH);
    let guard = Guard::builder(Ceiling::between(1, 10)).clock(clock.clone()).build().unwrap();
    for _ in 0..256 + 16 * 1_000 {
        clock.advance(Duration::from_micros(10));
        guard.try_acquire(()).unwrap().success();
    }
    assert_eq!(guard.stats().samples, 256 + 1_000);
}

#[test]
fn a_backend_that_hangs_after_a_fast_time_is_noticed_drop_by_drop() {
    let clock = ManualClock::at(Timestamp::EPOCH);
    let ceiling = Ceiling::between(1, 100).starting_at(50);
    let guard = Guard::builder(ceiling).clock(clock.clone()).build().unwrap();
    for _ in 0..20_000 {
        clock.advance(Duration::from_micros(10));
        guard.try_acquire(()).unwrap().success_after(Duration::from_micros(5));
    }
    let before = guard.stats().limit;
    for _ in 0..40 {
        clock.advance(Duration::from_millis(10));
        guard.try_acquire(()).unwrap().dropped();
    }
    assert!(guard.stats().limit <= before / 2, "{before} before, {} after 40 drops", guard.stats().limit);
}

#[test]
fn the_limit_in_force_is_the_least_of_the_own_and_the_share() {
    let guard = Guard::new(5).unwrap();
    guard.cap(3);
    assert_eq!((guard.stats().limit, guard.stats().own_limit), (3, 5));
    guard.set_limit(2);
    assert_eq!(guard.stats().limit, 2);
    guard.set_limit(9);
    assert_eq!(guard.stats().limit, 3);
    guard.cap(u32::MAX);
    assert_eq!(guard.stats().limit, 9);
}

#[test]
fn a_lower_limit_revokes_nothing_and_admits_nothing() {
    let guard = Guard::new(3).unwrap();
    let mut permits: Vec<_> = (0..3).map(|_| guard.try_acquire(()).unwrap()).collect();
    guard.cap(1);
    assert_eq!(snapshot(&guard), (1, 3));
    for _ in 0..2 {
        permits.pop();
        assert!(guard.try_acquire(()).is_err());
    }
    permits.pop();
    assert!(guard.try_acquire(()).is_ok());
}

#[test]
fn a_class_leaves_the_reservation_of_higher_classes() {
    let guard = Guard::builder(10).priority_below(250).build().unwrap();
    let _batches: Vec<_> = (0..8).map(|_| guard.try_acquire(batch()).unwrap()).collect();
    assert_eq!(guard.try_acquire(batch()).unwrap_err().decision.remaining, 2);
    let _first: Vec<_> = (0..2).map(|_| guard.try_acquire(()).unwrap()).collect();
    assert!(guard.try_acquire(()).is_err());
}

#[test]
fn waiters_are_served_in_the_order_of_coming() {
    let guard = Guard::builder(1).queue_max(2).build().unwrap();
    let holder = guard.try_acquire(()).unwrap();
    let (mut one, mut two, mut three) = (wait(&guard, ()), wait(&guard, ()), wait(&guard, ()));
    assert!(is_waiting(&mut one) && is_waiting(&mut two));
    assert!(matches!(poll(&mut three), Poll::Ready(Err(_))), "two may wait");
    holder.success();
    assert!(is_waiting(&mut two), "the slot is the first one's");
    assert!(guard.try_acquire(()).is_err(), "nobody overtakes");
    held(poll(&mut one)).success();
    held(poll(&mut two)).success();
    assert_eq!(guard.stats().waiting + guard.stats().in_flight, 0);
}

#[test]
fn the_first_class_precedes_earlier_arrivals_of_others() {
    let guard = Guard::builder(1).priority_below(0).queue_max(1).build().unwrap();
    let holder = guard.try_acquire(()).unwrap();
    let (mut batch, mut first) = (wait(&guard, batch()), wait(&guard, ()));
    assert!(is_waiting(&mut batch) && is_waiting(&mut first));
    holder.success();
    assert!(is_waiting(&mut batch));
    held(poll(&mut first)).success();
    held(poll(&mut batch)).success();
}

#[test]
fn a_newcomer_passes_waiters_of_later_classes_only() {
    let guard = Guard::builder(4).priority_below(500).priority_below(500).queue_max(1).build().unwrap();
    let (one, two) = (guard.try_acquire(()).unwrap(), guard.try_acquire(()).unwrap());
    let mut batch = wait(&guard, batch());
    assert!(is_waiting(&mut batch));
    let first = guard.try_acquire(()).expect("two are kept for the first priority");
    drop((one, two));
    assert!(guard.try_acquire(Call::from(()).priority(2)).is_err(), "the slot is the waiter's");
    held(poll(&mut batch)).success();
    first.success();
    assert!(guard.try_acquire(Call::from(()).priority(2)).is_ok());
}

#[test]
fn a_cancelled_waiter_passes_its_slot_on() {
    let guard = Guard::builder(1).queue_max(3).build().unwrap();
    let holder = guard.try_acquire(()).unwrap();
    let mut line: Vec<_> = (0..3).map(|_| wait(&guard, ())).collect();
    assert!(line.iter_mut().all(is_waiting));
    drop(line.remove(1));
    holder.success();
    drop(line.remove(0));
    held(poll(&mut line[0])).success();
    drop(line);
    assert_eq!((snapshot(&guard), guard.stats().waiting), ((1, 0), 0));
    assert!(guard.try_acquire(()).is_ok(), "the word says that nobody waits");
}

#[test]
fn a_limit_that_rises_wakes_several() {
    let guard = Guard::builder(0).queue_max(3).build().unwrap();
    let mut line: Vec<_> = (0..3).map(|_| wait(&guard, ())).collect();
    assert!(line.iter_mut().all(is_waiting));
    guard.set_limit(2);
    let permits = [held(poll(&mut line[0])), held(poll(&mut line[1]))];
    assert!(is_waiting(&mut line[2]));
    drop(permits);
    held(poll(&mut line[2])).success();
}

#[cfg(feature = "wait")]
#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline_and_not_before() {
    let guard = Guard::builder(1).queue_max(1).build().unwrap();
    let holder = guard.try_acquire(()).unwrap();
    let wait = Duration::from_millis(50);
    let (answer, ()) = tokio::join!(guard.acquire_timeout((), wait), async {
        tokio::time::sleep(wait - Duration::from_millis(1)).await;
        assert_eq!(guard.stats().waiting, 1);
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(guard.stats().waiting, 0);
    });
    let decision = answer.unwrap_err().decision;
    assert_eq!((decision.limit, decision.remaining, decision.retry_after), (1, 0, Retry::OnRelease));
    holder.success();
    let owned = guard.acquire_owned(()).await.unwrap();
    owned.success();
}

#[test]
fn waiting_for_a_total_slot_is_not_counted_as_latency_of_the_key() {
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    let limit = Concurrency::per_key(Concurrency::adaptive(4..=100)).total(1);
    let keyed = Guard::builder(limit).queue_max(4).clock(clock.clone()).build_per_key().unwrap();
    let first = keyed.try_acquire("a").unwrap();
    let mut second = Box::pin(keyed.acquire("b"));
    assert!(is_waiting(&mut second));
    clock.advance(Duration::from_secs(5));
    first.ignored();
    let second = held(poll(&mut second));
    clock.advance(Duration::from_millis(10));
    assert_eq!(second.elapsed(), Some(Duration::from_millis(10)));
}

#[test]
fn in_the_guard_that_newcomers_share_a_key_has_no_more_than_its_own_limit() {
    let limit_of = |key: &[u8]| if key == b"banned" { 0.into() } else { 2.into() };
    let keyed = Guard::builder(64).limit_of(limit_of).keys_max(1).build_per_key().unwrap();
    let _busy = keyed.try_acquire("busy").unwrap();
    assert_eq!(keyed.try_acquire("banned").unwrap_err().decision.limit, 0);
    let _held = [keyed.try_acquire("new").unwrap(), keyed.try_acquire("new").unwrap()];
    assert!(keyed.try_acquire("new").is_err());
    assert!(keyed.try_acquire("newer").is_ok());
}

#[test]
fn a_peek_equals_the_decision_of_a_call() {
    let guard = KeyedGuard::new(Concurrency::per_key(2).total(3)).unwrap();
    assert_eq!((guard.peek("a").limit, guard.peek("a").remaining), (2, 2));
    let _held = [guard.try_acquire("a").unwrap(), guard.try_acquire("a").unwrap()];
    assert!(!guard.peek("a").allowed && guard.peek("b").allowed);
    assert_eq!(guard.peek("b").remaining, 1, "of all keys");
    assert_eq!((guard.stats().keys, guard.stats().in_flight), (1, 2));
}

#[test]
fn limits_that_cannot_be_are_refused() {
    let (low, high) = (9, 4);
    for limit in
        [Concurrency::adaptive(low..=high), Concurrency::adaptive(0..=1), Concurrency::fixed(1).total(2)]
    {
        assert_eq!(Guard::new(limit).unwrap_err(), BuildError::InvalidConcurrency);
    }
    for per_key in [Guard::builder(4).limit_of(|_| 2.into()), Guard::builder(Concurrency::per_key(4))] {
        assert!(matches!(per_key.build(), Err(BuildError::OutOfRange { .. })));
    }
}
