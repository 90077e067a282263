//! Several limits over a store in memory, and the errors of builders.
#![cfg(feature = "store")]

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::leasing::Leasing;
use throttlekit::limiter::SharedLimiterBuilder;
use throttlekit::rate::{LimitError, Timestamp};
use throttlekit::store::{DebitId, MemoryStore};
use throttlekit::{BuildError, Call, Limit, Rate, SharedLimiter};

const MINUTE: Duration = Duration::from_secs(60);

type Memory = MemoryStore<ManualClock>;

fn store() -> Memory {
    MemoryStore::with_clock(ManualClock::at(Timestamp::from_millis(1_700_000_010_000)))
}

fn per_minute(units: u64) -> Limit {
    Limit::fixed_window(units, MINUTE).unwrap()
}

fn user_and_org() -> SharedLimiterBuilder<Memory> {
    SharedLimiter::builder(store(), "api", per_minute(10)).limit_by(1, "org", per_minute(15))
}

#[tokio::test]
async fn each_limit_counts_by_its_key_and_all_are_charged_or_none() {
    let limiter = user_and_org().build().unwrap();
    let [alice, bob] = ["alice", "bob"].map(|user| Call::by(user).and(&["acme"]).cost(8));
    let answer = limiter.check(alice).await.unwrap();
    assert!(answer.allowed && answer.decision() == answer.decision);
    assert_eq!((answer.binding, answer.remaining), (0, 2));
    let denied = limiter.check(bob).await.unwrap();
    assert_eq!((denied.allowed, denied.binding), (false, 1), "the organization has seven left");
    let left =
        async |call| limiter.peek_each(call).await.unwrap().iter().map(|d| d.remaining).collect::<Vec<_>>();
    assert_eq!((left(alice).await, left(bob).await), (vec![2, 7], vec![10, 7]), "a denial is free");
    assert_eq!(limiter.peek(alice).await.unwrap().binding, 0);

    limiter.settle(answer.receipt.unwrap(), 1).await.unwrap();
    assert_eq!(left(alice).await, [9, 14]);
    limiter.reset(alice).await.unwrap();
    assert_eq!(left(alice).await, [10, 15]);
}

#[tokio::test]
async fn a_call_may_have_another_cost_on_each_limit_and_is_settled_so() {
    let limiter = user_and_org().build().unwrap();
    let call = Call::by("alice").and(&["acme"]).cost(9).costs(&[1]);
    let answer = limiter.check(call).await.unwrap();
    let left =
        async || limiter.peek_each(call).await.unwrap().iter().map(|d| d.remaining).collect::<Vec<_>>();
    assert_eq!(left().await, [9, 6]);
    limiter.settle_each(answer.receipt.unwrap(), &[1, 4]).await.unwrap();
    assert_eq!(left().await, [9, 11]);
    let forecast = limiter.forecast(call).await.unwrap();
    assert_eq!(forecast.spendable_now, 1, "one of nine units for the organization");
}

#[tokio::test]
async fn of_any_limit_those_that_allow_are_charged() {
    let limiter = user_and_org().any().build().unwrap();
    let call = Call::by("alice").and(&["acme"]).cost(11);
    let answer = limiter.check(call).await.unwrap();
    assert_eq!((answer.allowed, answer.binding), (true, 1));
    let left = limiter.peek_each(call).await.unwrap();
    assert_eq!((left[0].remaining, left[1].remaining), (10, 4));
}

#[tokio::test]
async fn calls_of_a_batch_are_checked_in_order_leased_or_not() {
    let strict = SharedLimiter::builder(store(), "api", per_minute(2));
    let leased = SharedLimiter::builder(store(), "api", per_minute(2)).leased();
    for builder in [strict, leased] {
        let answers = builder.build().unwrap().check_many(["a", "a", "b", "a"]).await;
        let allowed: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().allowed).collect();
        assert_eq!(allowed, [true, true, true, false]);
    }
}

#[tokio::test]
async fn a_limiter_that_leases_nothing_decides_nothing_without_its_store() {
    let limiter = SharedLimiter::new(store(), "api", per_minute(2)).unwrap();
    limiter.check("a").await.unwrap();
    assert!(limiter.try_check("a").is_none() && limiter.leased_key("a").is_none());
    assert_eq!(limiter.close().await, Ok(()));
    assert_eq!(limiter.stats().answers.exact, 1);
    assert_eq!(limiter.clone().stats(), limiter.stats(), "a clone is the same limiter");
}

#[tokio::test]
async fn a_debit_of_several_limits_counts_once_however_often_it_is_sent() {
    let limiter = user_and_org().build().unwrap();
    let call = || Call::by("a").and(&["org"]);
    let sent = limiter.debit(call(), DebitId { stream: 1, number: 1 }).await.unwrap();
    let again = limiter.debit(call(), DebitId { stream: 1, number: 1 }).await.unwrap();
    assert!(sent.allowed && again.allowed);
    let left = limiter.peek(call()).await.unwrap();
    assert_eq!(left.remaining, sent.remaining, "charged once");
    let next = limiter.debit(call(), DebitId { stream: 1, number: 2 }).await.unwrap();
    assert_eq!(next.remaining, sent.remaining - 1);
}

#[test]
fn invalid_limiters_are_build_errors() {
    let refused = |builder: SharedLimiterBuilder<Memory>| builder.build().unwrap_err();
    let one = || SharedLimiter::builder(store(), "api", per_minute(1));
    assert_eq!(
        refused(one().limit("a", per_minute(1)).limit("a", per_minute(2))),
        BuildError::DuplicateName("a".into())
    );
    assert_eq!(refused(one().limit("", per_minute(1))), BuildError::DuplicateName("".into()));
    assert_eq!(refused(one().limit("a", per_minute(1)).leased()), BuildError::LeasedSeveral);
    assert_eq!(refused(one().limit("a", Rate::per_second(0))), BuildError::Limit(LimitError::Units(0)));
    assert!(matches!(refused(one().route_by(1)), BuildError::OutOfRange { setting: "route_by", .. }));
    let many = (0..16).fold(one(), |builder, n| builder.limit(&n.to_string(), per_minute(1)));
    assert_eq!(refused(many), BuildError::TooManyLimits { max: 16 });
    let log = SharedLimiter::builder(store(), "api", Limit::sliding_log(10, MINUTE).unwrap());
    assert_eq!(refused(log.leased_with(Leasing::auto())), BuildError::NotLeasable);
}

#[test]
fn limits_have_names() {
    let limiter = user_and_org().first_limit(0, "user").build().unwrap();
    assert_eq!(limiter.limits(), [per_minute(10), per_minute(15)]);
    let names = [0, 1, 2].map(|index| limiter.limit_name(index));
    assert_eq!(names, [Some("user"), Some("org"), None]);
}
