//! Slots under loom: threads that enter, leave, wait, give up and change the limit, in every order of their steps.
//!
//! Wake-ups are counted, not run: a woken waiter polls again, one that was not woken must find nothing.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::task::{Poll, Wake, Waker};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize};
use loom::thread;
use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ceiling, Estimator};

use super::count::Entry;
use super::priority::{Kept, Priorities};
use super::slots::Slots;
use super::tuner::{Own, Tuner};
use super::wait_queue::Ticket;
use crate::Priority;

const BATCH: Priority = Priority::new(1);
const NOW: Timestamp = Timestamp::from_millis(1);

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

fn slots(limit: u32) -> Arc<Slots> {
    let mut priorities = Priorities::only();
    priorities.add(Kept::thousandths(500));
    Arc::new(Slots::new(limit, 0, priorities, 4))
}

/// Counts its wake-ups.
#[derive(Default)]
struct Bell(std::sync::atomic::AtomicUsize);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waiter in the queue.
struct Waiter {
    priority: Priority,
    bell: std::sync::Arc<Bell>,
    ticket: Option<Ticket>,
}

impl Waiter {
    fn of(priority: Priority) -> Self {
        Self { priority, bell: std::sync::Arc::default(), ticket: None }
    }

    /// Requests a slot. Returns `true` if one was free at once.
    fn ask(&mut self, slots: &Slots) -> bool {
        let waker = Waker::from(std::sync::Arc::clone(&self.bell));
        let answer = slots.poll_enter(self.priority, &mut self.ticket, &waker);
        matches!(answer, Poll::Ready(Ok(Entry { .. })))
    }

    fn was_woken(&self) -> bool {
        self.bell.0.load(SeqCst) > 0
    }

    /// Gives up, if it is in the queue.
    fn give_up(&mut self, slots: &Slots) {
        if let Some(ticket) = self.ticket.take() {
            slots.give_up(ticket);
        }
    }
}

/// Runs a closure on the slots on another thread.
fn beside<T: 'static>(
    slots: &Arc<Slots>,
    work: impl FnOnce(&Slots) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let slots = slots.clone();
    thread::spawn(move || work(&slots))
}

/// Asserts that nothing is in flight and the queue is empty, and that the word agrees.
fn assert_at_rest(slots: &Slots, limit: u32) {
    let seen = slots.count.seen();
    assert_eq!((seen.in_flight(), seen.limit(), seen.somebody_waits()), (0, limit, false));
    assert_eq!(slots.waiting(), 0);
}

#[test]
fn loom_admissions_never_exceed_the_limit_in_force() {
    explore(|| {
        let (slots, inside) = (slots(2), Arc::new(AtomicUsize::new(0)));
        let come_and_go = {
            let (slots, inside) = (slots.clone(), inside.clone());
            move || {
                if slots.enter(Priority::HIGHEST).is_ok() {
                    assert!(inside.fetch_add(1, AcqRel) < 2, "more than the limit");
                    inside.fetch_sub(1, AcqRel);
                    slots.leave();
                }
            }
        };
        let others: Vec<_> = (0..2).map(|_| thread::spawn(come_and_go.clone())).collect();
        come_and_go();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_at_rest(&slots, 2);
    });
}

#[test]
fn loom_a_lower_limit_holds_for_later_entries() {
    explore(|| {
        let slots = slots(2);
        let lowered = beside(&slots, |slots| {
            let _ = slots.set_limit(1);
            // Calls in flight continue; no further one may enter.
            let before = slots.count.seen().in_flight();
            let now = slots.enter(Priority::HIGHEST);
            assert!(before == 0 || now.is_err() || slots.count.seen().in_flight() <= 1);
            now.map(|entry| assert!(entry.in_flight <= 1 && entry.allowed == 1)).is_ok()
        });
        let entered = [slots.enter(Priority::HIGHEST), slots.enter(Priority::HIGHEST)];
        for entry in entered.iter().flatten() {
            assert!(entry.in_flight <= entry.allowed, "{entry:?}");
        }
        entered.iter().flatten().for_each(|_| slots.leave());
        if lowered.join().unwrap() {
            slots.leave();
        }
        assert_at_rest(&slots, 1);
    });
}

#[test]
fn loom_a_released_slot_reaches_a_waiter() {
    explore(|| {
        let slots = slots(1);
        slots.enter(Priority::HIGHEST).unwrap();
        let leaver = beside(&slots, Slots::leave);
        let mut waiter = Waiter::of(Priority::HIGHEST);
        let at_once = waiter.ask(&slots);
        leaver.join().unwrap();
        if !at_once {
            assert!(waiter.was_woken(), "a wake was lost");
            assert!(waiter.ask(&slots), "woken for nothing");
        }
        slots.leave();
        assert_at_rest(&slots, 1);
    });
}

#[test]
fn loom_a_slot_granted_to_a_cancelled_waiter_goes_to_the_next() {
    explore(|| {
        let slots = slots(1);
        slots.enter(Priority::HIGHEST).unwrap();
        let (mut one, mut two) = (Waiter::of(Priority::HIGHEST), Waiter::of(BATCH));
        assert!(!one.ask(&slots) && !two.ask(&slots));
        let leaver = beside(&slots, Slots::leave);
        one.give_up(&slots);
        leaver.join().unwrap();
        assert!(two.was_woken() && two.ask(&slots), "a slot was lost with the waiter");
        slots.leave();
        assert_at_rest(&slots, 1);
    });
}

#[test]
fn loom_no_waiter_is_overtaken_or_lost() {
    explore(|| {
        let slots = slots(1);
        slots.enter(Priority::HIGHEST).unwrap();
        let mut waiter = Waiter::of(Priority::HIGHEST);
        assert!(!waiter.ask(&slots));
        let leaver = beside(&slots, Slots::leave);
        let newcomer = beside(&slots, |slots| slots.enter(Priority::HIGHEST).is_ok());
        leaver.join().unwrap();
        assert!(!newcomer.join().unwrap(), "a newcomer overtook");
        assert!(waiter.was_woken() && waiter.ask(&slots));
        slots.leave();
        assert_at_rest(&slots, 1);
    });
}

#[test]
fn loom_coming_going_and_giving_up_at_once_leak_nothing() {
    explore(|| {
        let slots = slots(1);
        slots.enter(Priority::HIGHEST).unwrap();
        let leaver = beside(&slots, Slots::leave);
        let quitter = beside(&slots, |slots| {
            let mut waiter = Waiter::of(BATCH);
            if waiter.ask(slots) {
                slots.leave();
            }
            waiter.give_up(slots);
        });
        let mut waiter = Waiter::of(Priority::HIGHEST);
        let at_once = waiter.ask(&slots);
        leaver.join().unwrap();
        quitter.join().unwrap();
        if !at_once {
            assert!(waiter.was_woken() && waiter.ask(&slots), "a wake was lost");
        }
        slots.leave();
        assert_at_rest(&slots, 1);
    });
}

#[test]
fn loom_a_limit_that_rises_wakes_as_many_as_fit() {
    explore(|| {
        let slots = slots(0);
        let raiser = beside(&slots, |slots| {
            if slots.set_limit(2) {
                slots.hand_over();
            }
        });
        let mut waiters = [Waiter::of(Priority::HIGHEST), Waiter::of(Priority::HIGHEST)];
        let at_once: Vec<bool> = waiters.iter_mut().map(|waiter| waiter.ask(&slots)).collect();
        raiser.join().unwrap();
        for (waiter, at_once) in waiters.iter_mut().zip(at_once) {
            assert!(at_once || waiter.was_woken() && waiter.ask(&slots), "a wake was lost");
            slots.leave();
        }
        assert_at_rest(&slots, 2);
    });
}

#[test]
fn loom_no_drop_is_lost_and_the_limit_is_the_last_decided() {
    explore(|| {
        let own = Own::Inferred(Box::new(Estimator::new(Ceiling::between(2, 10))));
        let (slots, tuner) = (slots(2), Arc::new(Tuner::new(own)));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (slots, tuner) = (slots.clone(), tuner.clone());
                thread::spawn(move || tuner.dropped(NOW, &slots))
            })
            .collect();
        tuner.cap(1, NOW, &slots);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(tuner.unlearnt(), 0, "a drop was left lying");
        assert_eq!((tuner.learnt(NOW, &slots).dropped, slots.count.seen().limit()), (2, 1));
    });
}

/// A seeded bug: `enter` in two steps instead of one.
fn enter_in_two_steps(count: &AtomicU32, limit: u32) -> bool {
    let room = count.load(Acquire) < limit;
    if room {
        count.fetch_add(1, Relaxed);
    }
    room
}

#[test]
#[should_panic(expected = "more than the limit")]
fn loom_finds_the_seeded_bug_of_a_check_before_the_count() {
    explore(|| {
        let count = Arc::new(AtomicU32::new(0));
        let there = count.clone();
        let other = thread::spawn(move || enter_in_two_steps(&there, 1));
        let here = enter_in_two_steps(&count, 1);
        assert!(!(here && other.join().unwrap()), "more than the limit");
    });
}

/// A seeded bug: checks first, sets the flag afterwards.
fn wait_without_a_second_look(slots: &Slots, waiter: &mut Waiter) -> bool {
    if slots.enter(waiter.priority).is_ok() {
        return true;
    }
    slots.wait_blindly(&mut waiter.ticket, &Waker::from(std::sync::Arc::clone(&waiter.bell)));
    false
}

#[test]
#[should_panic(expected = "a wake was lost")]
fn loom_finds_the_seeded_bug_of_a_waiter_that_does_not_check_again() {
    explore(|| {
        let slots = slots(1);
        slots.enter(Priority::HIGHEST).unwrap();
        let leaver = beside(&slots, Slots::leave);
        let mut waiter = Waiter::of(Priority::HIGHEST);
        let at_once = wait_without_a_second_look(&slots, &mut waiter);
        leaver.join().unwrap();
        assert!(at_once || waiter.was_woken(), "a wake was lost");
    });
}
