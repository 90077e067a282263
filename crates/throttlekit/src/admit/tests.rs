use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;
use crate::guard::KeyedGuard;
use crate::{Guarantee, Guard, Limit, Limiter, Policy, Rate};

fn at_once(admit: &dyn Admit, call: Call<'_>) -> Admission {
    let Ok(result) = admit.admit(call).now_or_later() else { panic!("it has to wait") };
    result.unwrap()
}

#[test]
fn everything_in_process_decides_at_once_behind_one_trait() {
    let tokens = Limit::token_budget(1_000, Duration::from_secs(60)).unwrap();
    let policy = Policy::builder("chat").concurrency(1).tokens(tokens).build().unwrap();
    let all: [(Arc<dyn Admit>, Axis); 5] = [
        (Arc::new(Limiter::new(Rate::per_minute(1)).unwrap()), Axis::Rate),
        (Arc::new(Limiter::keyless(Rate::per_minute(1)).unwrap()), Axis::Rate),
        (Arc::new(Guard::new(1).unwrap()), Axis::Concurrency),
        (Arc::new(KeyedGuard::new(1).unwrap()), Axis::Concurrency),
        (Arc::new(Arc::new(policy)), Axis::Concurrency),
    ];
    for (admit, axis) in all {
        let first = at_once(&admit, Call::by("alice"));
        assert!(first.allowed && first.permit.is_some() && first.guarantee == Guarantee::Exact);
        let second = at_once(&admit, Call::by("alice"));
        assert!(!second.allowed && second.permit.is_none());
        assert_eq!(second.denied_by(), Some(axis));
        assert_eq!(admit.limits()[0].axis, axis);
        first.permit.unwrap().success();
        let held = axis == Axis::Concurrency;
        assert_eq!(at_once(&admit, Call::by("alice")).allowed, held, "{axis}: only slots are given back");
    }
    assert!(at_once(&Unlimited, Call::by("alice")).allowed && Unlimited.limits().is_empty());
}

#[test]
fn a_permit_of_a_policy_is_debited_and_settled_through_the_trait() {
    let tokens = Limit::token_budget(1_000, Duration::from_secs(60)).unwrap();
    let policy = Arc::new(Policy::builder("chat").tokens(tokens).build().unwrap());
    let mut permit = at_once(&policy, Call::by("acme").cost(300)).permit.unwrap();
    let debit = pin!(permit.debit(100)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(debit, Poll::Ready(Ok(decision)) if decision.allowed));
    assert_eq!((permit.used(), permit.reserved()), (100, 200));
    permit.settle(120);
    permit.success();
    assert_eq!(at_once(&policy, Call::by("acme").cost(0)).remaining, 880);
}

#[test]
fn a_call_waits_in_the_queue_of_a_guard_and_leaves_it_when_dropped() {
    let guard = Guard::builder(1).queue_max(1).build().unwrap();
    let held = at_once(&guard, Call::by("")).permit;
    let mut context = Context::from_waker(Waker::noop());
    let mut queued = guard.admit_queued(Call::by(""));
    assert!(pin!(&mut queued).poll(&mut context).is_pending());
    assert_eq!(guard.stats().waiting, 1);
    drop(queued);
    assert_eq!(guard.stats().waiting, 0);
    let mut queued = guard.admit_queued(Call::by(""));
    assert!(pin!(&mut queued).poll(&mut context).is_pending());
    drop(held);
    assert!(matches!(pin!(&mut queued).poll(&mut context), Poll::Ready(Ok(admission)) if admission.allowed));
}

#[test]
fn a_permit_that_holds_nothing_takes_two_words() {
    assert_eq!(size_of::<SharedPermit>(), 2 * size_of::<usize>());
}
