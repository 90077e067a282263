//! Queues under loom: threads that join, look, are denied and leave, in every order of their steps.
//!
//! Wake-ups are counted, not run: a woken waiter looks again, one that was not woken must find that it is not its turn.

use std::sync::atomic::Ordering::SeqCst;
use std::task::{Wake, Waker};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use throttlekit_core::turn::Departure::{Admitted, GaveUp};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::key_queues::{KeyQueues, Spot};
use crate::admit::Denied;

const NOW: Timestamp = Timestamp::from_millis(1);
const KEY: &[u8] = b"key";

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

fn denied() -> Denied {
    let (reset_at, retry_after) = (Timestamp::EPOCH, Retry::OnRelease);
    Denied::on_concurrency(Decision { allowed: false, limit: 1, remaining: 0, reset_at, retry_after })
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(std::sync::atomic::AtomicUsize);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waiter in the queue of the key.
struct Waiter {
    spot: Spot,
    bell: std::sync::Arc<Bell>,
}

impl Waiter {
    fn join(queues: &KeyQueues, class: u8) -> Self {
        let spot = queues.join(KEY, class, denied(), NOW).expect("not full");
        Self { spot, bell: std::sync::Arc::default() }
    }

    /// Checks whether it has the turn, and requests if so.
    fn looks(&self, queues: &KeyQueues) -> bool {
        queues.poll_turn(self.spot, Waker::from(self.bell.clone()), true, NOW)
    }

    fn was_woken(&self) -> bool {
        self.bell.0.load(SeqCst) > 0
    }
}

/// Runs a closure on the queues on another thread.
fn beside<T: 'static>(
    queues: &Arc<KeyQueues>,
    work: impl FnOnce(&KeyQueues) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let queues = queues.clone();
    thread::spawn(move || work(&queues))
}

fn queues() -> Arc<KeyQueues> {
    Arc::new(KeyQueues::new(4))
}

/// Asserts that no waiter and no queue is left.
fn assert_at_rest(queues: &KeyQueues) {
    assert_eq!(queues.waiting(), 0);
    assert!(matches!(queues.join_waiting(KEY, 0, || NOW), Ok(None)));
}

#[test]
fn loom_the_turn_of_a_leaving_waiter_reaches_the_next() {
    for departure in [Admitted, GaveUp] {
        explore(move || {
            let queues = queues();
            let first = Waiter::join(&queues, 0);
            assert!(first.looks(&queues));
            let second = Waiter::join(&queues, 0);
            let leaver = beside(&queues, move |queues| queues.leave(first.spot, departure, NOW));
            let at_once = second.looks(&queues);
            leaver.join().unwrap();
            assert!(at_once || second.was_woken(), "a wake was lost");
            assert!(at_once || second.looks(&queues), "woken for nothing");
            queues.leave(second.spot, Admitted, NOW);
            assert_at_rest(&queues);
        });
    }
}

#[test]
fn loom_the_turn_of_a_cancelled_waiter_goes_to_the_next() {
    explore(|| {
        let queues = queues();
        let [first, second, third] = [(); 3].map(|()| Waiter::join(&queues, 0));
        assert!(first.looks(&queues) && !second.looks(&queues) && !third.looks(&queues));
        let leaver = beside(&queues, move |queues| queues.leave(first.spot, Admitted, NOW));
        queues.leave(second.spot, GaveUp, NOW);
        leaver.join().unwrap();
        assert!(third.was_woken() && third.looks(&queues), "the turn was lost with the waiter");
        queues.leave(third.spot, GaveUp, NOW);
        assert_at_rest(&queues);
    });
}

#[test]
fn loom_one_request_is_in_flight_at_a_time_and_no_waiter_is_lost() {
    explore(|| {
        let (queues, requests) = (queues(), Arc::new(AtomicUsize::new(0)));
        let call = {
            let (queues, requests) = (queues.clone(), requests.clone());
            move |class: u8| {
                let waiter = Waiter::join(&queues, class);
                let requested = waiter.looks(&queues);
                if requested {
                    assert_eq!(requests.fetch_add(1, Ordering::AcqRel), 0, "two requests at once");
                    requests.fetch_sub(1, Ordering::AcqRel);
                    queues.leave(waiter.spot, Admitted, NOW);
                }
                (!requested).then_some(waiter)
            }
        };
        let other = thread::spawn({
            let call = call.clone();
            move || call(0)
        });
        let here = call(1);
        let waits = [here, other.join().unwrap()];
        let waits: Vec<_> = waits.into_iter().flatten().collect();
        assert!(waits.len() < 2, "nobody has the turn");
        for waiter in waits {
            assert!(waiter.was_woken() && waiter.looks(&queues), "a wake was lost");
            queues.leave(waiter.spot, Admitted, NOW);
        }
        assert_at_rest(&queues);
    });
}

#[test]
fn loom_an_urgent_newcomer_takes_the_turn_after_the_request_in_flight() {
    explore(|| {
        let queues = queues();
        let batch = Waiter::join(&queues, 1);
        assert!(batch.looks(&queues));
        let newcomer = beside(&queues, |queues| {
            let spot = queues.join_waiting(KEY, 0, || NOW).expect("not full").expect("one waits");
            let waiter = Waiter { spot, bell: std::sync::Arc::default() };
            let at_once = waiter.looks(queues);
            (waiter, at_once)
        });
        queues.denied(batch.spot, denied(), NOW);
        let (urgent, at_once) = newcomer.join().unwrap();
        assert!(at_once || urgent.was_woken() && urgent.looks(&queues), "a wake was lost");
        assert!(!batch.looks(&queues), "two have the turn");
        queues.leave(urgent.spot, Admitted, NOW);
        assert!(batch.was_woken() && batch.looks(&queues));
        queues.leave(batch.spot, GaveUp, NOW);
        assert_at_rest(&queues);
    });
}

#[test]
fn loom_no_more_wait_than_the_maximum() {
    explore(|| {
        let queues = Arc::new(KeyQueues::new(1));
        let join = |queues: &KeyQueues, key: &[u8]| queues.join(key, 0, denied(), NOW).ok();
        let other = beside(&queues, move |queues| join(queues, b"other"));
        let here = join(&queues, KEY);
        let joined: Vec<_> = [here, other.join().unwrap()].into_iter().flatten().collect();
        assert_eq!((joined.len(), queues.waiting()), (1, 1));
        joined.into_iter().for_each(|spot| queues.leave(spot, GaveUp, NOW));
        assert_at_rest(&queues);
    });
}

/// A seeded bug: checks first, and stores the waker afterwards, in two steps.
fn looks_in_two_steps(waiter: &Waiter, queues: &KeyQueues) -> bool {
    let silent = Waker::from(std::sync::Arc::new(Bell::default()));
    if queues.poll_turn(waiter.spot, silent, true, NOW) {
        return true;
    }
    queues.poll_turn(waiter.spot, Waker::from(waiter.bell.clone()), false, NOW);
    false
}

#[test]
#[should_panic(expected = "a wake was lost")]
fn loom_finds_the_planted_bug_of_a_waker_that_is_stored_too_late() {
    explore(|| {
        let queues = queues();
        let (first, second) = (Waiter::join(&queues, 0), Waiter::join(&queues, 0));
        assert!(first.looks(&queues));
        let leaver = beside(&queues, move |queues| queues.leave(first.spot, Admitted, NOW));
        let at_once = looks_in_two_steps(&second, &queues);
        leaver.join().unwrap();
        assert!(at_once || second.was_woken(), "a wake was lost");
    });
}
