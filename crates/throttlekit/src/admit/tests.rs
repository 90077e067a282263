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

#[cfg(all(feature = "store", not(loom)))]
mod shared {
    use super::*;
    use crate::leasing::{Batch, Leasing};
    use crate::store::MemoryStore;
    use crate::sync::Mutex;
    use crate::{Budget, SharedFairLimiter, SharedLimiter};

    #[tokio::test]
    async fn a_leased_limiter_reports_the_same_guarantee_at_once_and_after_a_round_trip() {
        let leasing = Leasing::new().batch(Batch::Fixed(4));
        let rate = Rate::per_minute(600).burst(10);
        let leased = SharedLimiter::builder(MemoryStore::new(), "api", rate).leased_with(leasing);
        let leased: Arc<dyn Admit> = Arc::new(leased.build().unwrap());
        let first = leased.admit(Call::by("alice")).await.unwrap();
        let second = at_once(&leased, Call::by("alice"));
        assert!(first.allowed && second.allowed);
        assert!(matches!(first.guarantee, Guarantee::Bounded(units) if units > 0));
        assert_eq!(first.guarantee, second.guarantee);
    }

    #[tokio::test]
    async fn each_limit_of_a_shared_limiter_counts_its_own_cost() {
        let limiter = SharedLimiter::builder(MemoryStore::new(), "api", Rate::per_minute(60))
            .limit("daily", Budget::per_day(100))
            .build()
            .unwrap();
        let admit: &dyn Admit = &limiter;
        assert!(admit.admit(Call::by("alice").costs(&[1, 100])).await.unwrap().allowed);
        assert!(!admit.admit(Call::by("alice").costs(&[1, 1])).await.unwrap().allowed);
    }

    #[tokio::test]
    async fn a_shared_fair_limiter_decides_at_once_with_fetched_units() {
        let limiter = SharedFairLimiter::builder(MemoryStore::new(), "fair", Budget::per_hour(4)).quantum(4);
        let limiter: Arc<dyn Admit> = Arc::new(limiter.build().unwrap());
        assert!(limiter.admit(Call::by("alice")).await.unwrap().allowed);
        assert!(at_once(&limiter, Call::by("alice").cost(3)).allowed);
        let denied = limiter.admit(Call::by("alice")).await.unwrap();
        assert_eq!(denied.denied_by(), Some(Axis::Fairness));
        assert_eq!((limiter.limits()[0].axis, limiter.limits()[0].units), (Axis::Fairness, 4));
        assert!(limiter.now() < denied.reset_at);
    }

    #[tokio::test]
    async fn an_observed_limiter_reports_each_decision_once_at_once_or_later() {
        #[derive(Default)]
        struct Seen(Mutex<Vec<(String, u64, Option<Axis>)>>);
        impl Observer for Seen {
            fn observe(&self, event: &Event<'_>) {
                let key = String::from_utf8_lossy(event.key).into_owned();
                self.0.lock().push((format!("{}/{key}", event.policy), event.cost, event.denied_by));
            }
        }
        let seen = Arc::new(Seen::default());
        let here = Observed::new("here", Limiter::new(Rate::per_minute(1)).unwrap(), seen.clone());
        assert!(at_once(&here, Call::by("alice")).allowed);
        assert!(!at_once(&here, Call::by("alice")).allowed);
        let shared = SharedLimiter::new(MemoryStore::new(), "api", Rate::per_minute(9)).unwrap();
        let shared = Observed::new("shared", shared, seen.clone());
        assert!(shared.admit(Call::by("bob").cost(7)).await.unwrap().allowed);
        let expected =
            [("here/alice", 1, None), ("here/alice", 1, Some(Axis::Rate)), ("shared/bob", 7, None)];
        let seen = seen.0.lock();
        assert!(seen.iter().map(|(name, cost, axis)| (name.as_str(), *cost, *axis)).eq(expected), "{seen:?}");
    }
}
