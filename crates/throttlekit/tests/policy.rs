//! One call over all axes, in one process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use throttlekit::admit::LimitName;
use throttlekit::clock::ManualClock;
use throttlekit::guard::KeyedGuard;
use throttlekit::internals::Mutex;
use throttlekit::observe::{Event, Observer};
use throttlekit::policy::PolicyBuilder;
use throttlekit::price::{Pricer, Prices};
use throttlekit::rate::Timestamp;
use throttlekit::{Axis, Budget, Call, Concurrency, Decision, FairLimiter, Limit, Policy, Rate, Retry};

const MINUTE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp::from_millis(1_700_000_010_000);

fn budget(tokens: u64) -> Limit {
    Limit::token_budget(tokens, MINUTE).unwrap()
}

/// Two concurrent calls, three calls a minute, a hundred tokens a minute.
fn three_axes(clock: &ManualClock) -> Policy<ManualClock> {
    Policy::builder("chat")
        .concurrency(2)
        .rate(Limit::fixed_window(3, MINUTE).unwrap())
        .tokens(budget(100))
        .clock(clock.clone())
        .build()
        .unwrap()
}

#[test]
fn the_first_denying_axis_is_named_and_later_ones_are_not_evaluated() {
    let clock = ManualClock::at(START);
    let policy = three_axes(&clock);
    let held = [policy.admit("a"), policy.admit("a")].map(|admission| admission.permit.unwrap());
    let full = policy.admit("a");
    assert_eq!((full.denied_by(), full.retry_after), (Some(Axis::Concurrency), Retry::OnRelease));
    assert_eq!(full.axes().iter().count(), 1);
    drop(full);
    held.into_iter().for_each(throttlekit::Permit::success);

    let costly = policy.admit(Call::by("a").cost(99));
    assert_eq!(costly.denied_by(), Some(Axis::Cost), "two tokens are used");
    assert_eq!(costly.axes().iter().count(), 3);
    drop(costly);
    policy.admit("a").permit.unwrap().success();
    let often = policy.admit(Call::by("a").cost(99));
    assert_eq!(often.denied_by(), Some(Axis::Rate), "the denial before took no call");
    assert!(often.axes().get(Axis::Cost).is_none());
    assert_eq!(often.decision(), *often.axes().get(Axis::Rate).unwrap());
}

#[test]
fn unused_tokens_are_returned_and_excess_is_charged_up_to_the_limit() {
    let clock = ManualClock::at(START);
    let policy = three_axes(&clock);
    let mut permit = policy.admit(Call::by("a").cost(60)).permit.unwrap();
    assert!(permit.debit(10).allowed && permit.debit(15).allowed);
    assert_eq!((permit.used(), permit.reserved()), (25, 35));
    permit.success();

    let mut permit = policy.admit(Call::by("a").cost(70)).permit.expect("75 are left");
    assert!(permit.debit(70).allowed);
    assert!(permit.debit(4).allowed, "four of five");
    assert!(permit.debit(9).allowed, "crosses the edge");
    let spent = permit.debit(1);
    assert_eq!((spent.allowed, spent.remaining, spent.limit), (false, 0, 100));
    assert_eq!(permit.used(), 83);
    permit.success();
    clock.advance(MINUTE);
    assert!(policy.admit(Call::by("a").cost(100)).allowed, "a new window owes nothing");
}

#[test]
fn an_estimate_is_charged_on_success_and_refunded_if_nothing_was_counted() {
    let clock = ManualClock::at(START);
    let left = |policy: &Policy<ManualClock>| {
        let admission = policy.admit(Call::by("a").cost(1_000));
        admission.axes().get(Axis::Cost).unwrap().remaining
    };
    for (end, want) in [("success", 60), ("dropped", 100), ("ignored", 100), ("drop", 100), ("panic", 100)] {
        let policy = three_axes(&clock);
        let permit = policy.admit(Call::by("a").cost(40)).permit.unwrap();
        match end {
            "success" => permit.success(),
            "dropped" => permit.dropped(),
            "ignored" => permit.ignored(),
            "drop" => drop(permit),
            _ => {
                let panics = || {
                    let _permit = permit;
                    panic!("the handler does");
                };
                assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            }
        }
        assert_eq!(left(&policy), want, "{end}");
    }
    let policy = three_axes(&clock);
    let mut permit = policy.admit(Call::by("a").cost(40)).permit.unwrap();
    permit.settle(70);
    permit.success();
    assert_eq!(left(&policy), 30, "what was too little is taken");
}

#[test]
fn a_settlement_after_the_window_does_not_reach_into_the_next() {
    let clock = ManualClock::at(START);
    let policy = three_axes(&clock);
    let permit = policy.admit(Call::by("a").cost(40)).permit.unwrap();
    clock.advance(MINUTE);
    policy.admit(Call::by("a").cost(90)).permit.unwrap().success();
    permit.ignored();
    let admission = policy.admit(Call::by("a").cost(11));
    assert_eq!(admission.axes().get(Axis::Cost).unwrap().remaining, 10);
}

#[test]
fn a_call_below_its_price_is_denied_by_the_price_and_charged_nothing() {
    let clock = ManualClock::at(START);
    let policy = Policy::builder("priced")
        .concurrency(1)
        .price(Pricer::fixed(Prices::new(0.0, 0.1, 0.0).unwrap()))
        .tokens(budget(100))
        .clock(clock)
        .build()
        .unwrap();
    let cheap = policy.admit(Call::by("a").cost(50).value(4.9));
    assert!(!cheap.allowed && cheap.permit.is_none());
    assert_eq!(cheap.denied_by(), Some(Axis::Price));
    assert_eq!(cheap.axes().denied_by(), None);
    let worth = policy.admit(Call::by("a").cost(100).value(10.0));
    assert!(worth.allowed, "neither the slot nor a token was kept");
}

#[test]
fn tenants_share_by_weight_and_a_denied_tenant_is_charged_nowhere() {
    let clock = ManualClock::at(START);
    let shares = FairLimiter::builder(Budget::per_minute(100))
        .weights(|tenant| if tenant == b"pro" { 3 } else { 1 })
        .clock(clock.clone())
        .build()
        .unwrap();
    let policy = Policy::builder("shared")
        .rate(Rate::per_minute(5))
        .fair_limiter(shares)
        .clock(clock)
        .build()
        .unwrap();
    let mut pro = policy.admit(Call::by("pro").cost(50)).permit.unwrap();
    policy.admit(Call::by("free").cost(25)).permit.unwrap().success();
    let more = policy.admit(Call::by("free").cost(1));
    assert_eq!(more.denied_by(), Some(Axis::Fairness), "the rest is reserved");
    assert_eq!(more.axes().get(Axis::Rate).unwrap().remaining, 3);
    assert!(pro.debit(50).allowed);
    assert!(pro.debit(25).allowed, "up to its guarantee");
    assert!(!pro.debit(1).allowed);
    pro.success();
    let again = policy.admit(Call::by("free").cost(1));
    assert_eq!(again.axes().get(Axis::Rate).unwrap().remaining, 3, "a denial takes no call");
}

#[test]
fn keys_of_one_call_are_limited_apart() {
    let clock = ManualClock::at(START);
    let policy = Policy::builder("orgs")
        .guard(KeyedGuard::new(1).unwrap())
        .limit(Axis::Rate, Limit::fixed_window(10, MINUTE).unwrap())
        .limit(Axis::Rate.by(1), Limit::fixed_window(2, MINUTE).unwrap())
        .clock(clock)
        .build()
        .unwrap();
    let org: &[&[u8]] = &[b"acme"];
    let call = |user: &'static str| Call::by(user).and(org);
    let held = policy.admit(call("ann")).permit.unwrap();
    assert_eq!(policy.admit(call("ann")).denied_by(), Some(Axis::Concurrency));
    policy.admit(call("bob")).permit.unwrap().success();
    let third = policy.admit(call("cid"));
    assert_eq!((third.denied_by(), third.limit), (Some(Axis::Rate), 2), "the organization's");
    assert_eq!(third.limit_name().map(LimitName::as_str), Some("rate1"));
    drop((held, third));
    assert!(policy.admit(Call::by("cid").and(&["other"])).allowed);
}

#[test]
fn an_observer_is_called_once_and_its_panic_is_contained() {
    #[derive(Default)]
    struct Watch(Mutex<Vec<(Vec<u8>, Option<Axis>)>>);
    impl Observer for Watch {
        fn observe(&self, event: &Event<'_>) {
            self.0.lock().push((event.key.into(), event.denied_by));
            assert!(event.key != b"panics", "as it is told to");
        }
    }
    let watch = Arc::new(Watch::default());
    let policy = Policy::builder("watched")
        .rate(Limit::fixed_window(1, MINUTE).unwrap())
        .observer(watch.clone())
        .clock(ManualClock::at(START))
        .build()
        .unwrap();
    assert!(policy.admit("a").allowed);
    assert!(!policy.admit("a").allowed);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let decided = catch_unwind(AssertUnwindSafe(|| policy.admit("panics").allowed));
    std::panic::set_hook(hook);
    assert!(decided.unwrap());
    let told = watch.0.lock().clone();
    let told: Vec<_> = told.iter().map(|(key, axis)| (&key[..], *axis)).collect();
    assert_eq!(told, [(&b"a"[..], None), (b"a", Some(Axis::Rate)), (b"panics", None)]);
}

#[test]
fn an_owned_permit_outlives_the_call_and_settles_from_another_thread() {
    let policy = Arc::new(Policy::builder("owned").concurrency(1).tokens(budget(100)).build().unwrap());
    let permit = policy.admit_owned(Call::by("a").cost(100)).permit.unwrap();
    assert_eq!(policy.admit(Call::by("b")).denied_by(), Some(Axis::Concurrency));
    std::thread::spawn(move || permit.ignored()).join().unwrap();
    assert!(policy.admit(Call::by("a").cost(100)).allowed);
}

#[test]
fn invalid_policies_are_build_errors() {
    let second = Duration::from_secs(1);
    let many = (0..7).fold(Policy::builder("many"), |builder, _| builder.rate(Rate::every(second)));
    assert!(many.build().unwrap_err().to_string().contains("at most 6"));
    let wrong = Policy::builder("wrong").limit(Axis::Fairness, Rate::every(second));
    assert!(wrong.build().unwrap_err().to_string().contains("fair"));
    assert!(Policy::builder("zero").rate(Rate::per_second(0)).build().is_err());
}

/// A weight is the caller's own code, which may call the policy itself: nothing is locked meanwhile.
#[test]
fn a_weight_function_may_call_its_own_policy() {
    static POLICY: std::sync::OnceLock<Policy> = std::sync::OnceLock::new();
    let shares = FairLimiter::builder(Budget::per_minute(100)).weights(|tenant| {
        if tenant == b"outer" {
            assert!(POLICY.get().unwrap().admit("inner").allowed);
        }
        1
    });
    let policy = Policy::builder("nested")
        .limit(Axis::Rate.by(1), Rate::per_minute(9))
        .fair_limiter(shares.build().unwrap());
    assert!(POLICY.set(policy.build().unwrap()).is_ok());
    assert!(POLICY.get().unwrap().admit("outer").allowed, "both go by the same empty key");
}

#[test]
fn values_are_counted_on_the_clock_of_the_policy() {
    let clock = ManualClock::at(START);
    let policy = Policy::builder("values")
        .concurrency(Concurrency::per_key(1))
        .rate(Budget::per_minute(3))
        .tokens(Budget::per_minute(100))
        .fair(Budget::per_minute(50))
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut permit = policy.admit(Call::by("a").cost(50)).into_permit().unwrap();
    let full = policy.admit("a").into_permit().unwrap_err();
    assert_eq!(full.axis, Some(Axis::Concurrency));
    let shared = policy.admit(Call::by("b").cost(26)).into_permit().unwrap_err();
    assert_eq!(shared.axis, Some(Axis::Fairness));
    assert!(!permit.debit(51).allowed, "the share of the tenant is used up");
    permit.success();
    clock.advance(MINUTE);
    assert!(policy.admit(Call::by("b").cost(50)).allowed, "every window has ended");
}

#[test]
fn a_budget_may_be_crossed_on_the_tokens_axis_only() {
    let policy = |builder: PolicyBuilder| builder.clock(ManualClock::at(START)).build().unwrap();
    let tokens = policy(Policy::builder("tokens").tokens(Budget::per_minute(10)));
    let mut permit = tokens.admit(Call::by("a").cost(8)).into_permit().unwrap();
    assert!(permit.debit(8).allowed && permit.debit(5).allowed, "the last debit crosses the edge");
    let quota = policy(Policy::builder("quota").limit(Axis::Cost, Budget::per_minute(10)));
    let mut permit = quota.admit(Call::by("a").cost(8)).into_permit().unwrap();
    assert!(permit.debit(8).allowed && !permit.debit(5).allowed && permit.debit(2).allowed);
}

#[test]
fn a_denial_as_an_error_names_the_axis() {
    let policy = Policy::builder("named").rate(Rate::per_minute(1)).clock(ManualClock::at(START)).build();
    let policy = policy.unwrap();
    policy.admit("a").into_permit().unwrap().success();
    let denied = policy.admit("a").into_permit().unwrap_err();
    assert_eq!(denied.to_string(), "denied by the rate limit: 0 of 1 left, retry after 60s");
}

/// The part of decisions that a limit which never binds does not change: its window ends at another time.
fn verdict(decision: Decision) -> (bool, u64, u64, Retry) {
    (decision.allowed, decision.limit, decision.remaining, decision.retry_after)
}

/// A call over few limits is decided in registers, and one over many in a loop. Of the others, one has one more rate, and
/// one has one more budget: each axis is compared in full with the one that has no more on it.
#[test]
fn few_limits_decide_as_many_of_which_one_never_binds() {
    let tokens = [budget(100), Limit::fixed_window(100, MINUTE).unwrap()];
    let rates = [Rate::per_minute(30).burst(2), Rate::per_minute(9).burst(2)].map(Limit::gcra);
    for (rate, tokens) in rates.into_iter().zip(tokens) {
        let clock = ManualClock::at(START);
        let few = || {
            let few = Policy::builder("few").concurrency(3).rate(rate.unwrap()).tokens(tokens);
            few.clock(clock.clone())
        };
        let never = Limit::fixed_window(1 << 36, MINUTE).unwrap();
        let policies = [few(), few().limit(Axis::Rate, never), few().limit(Axis::Cost, never)];
        let policies = policies.map(|policy| policy.build().unwrap());
        let (mut held, mut dice, mut denied) = (Vec::new(), 1_u64, [0; 5]);
        for step in 0..3_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [kind, key, cost, used, wait] = [59, 54, 49, 44, 39].map(|bits| (dice >> bits) & 0x1F);
            if kind % 2 == 0 && !held.is_empty() {
                let mut permits: [throttlekit::Permit<'_, _>; 3] = held.remove(0);
                let [one, others @ ..] = permits.each_mut().map(|permit| {
                    let decision = verdict(permit.debit(used));
                    (decision, permit.limit_name())
                });
                assert_eq!([one; 2], others, "step {step}");
                permits.into_iter().for_each(throttlekit::Permit::success);
            } else {
                let call = Call::by(["alice", "bob", "carol"][key as usize % 3]).cost(cost);
                let [one, more_rate, more_cost] = policies.each_ref().map(|policy| policy.admit(call));
                for other in [&more_rate, &more_cost] {
                    assert_eq!(verdict(one.decision()), verdict(other.decision()), "step {step}");
                    assert_eq!(one.denied_by(), other.denied_by(), "step {step}");
                    assert_eq!(one.limit_name(), other.limit_name(), "step {step}");
                }
                assert_eq!(one.axes().get(Axis::Concurrency), more_rate.axes().get(Axis::Concurrency));
                assert_eq!(one.axes().get(Axis::Rate), more_cost.axes().get(Axis::Rate), "step {step}");
                assert_eq!(one.axes().get(Axis::Cost), more_rate.axes().get(Axis::Cost), "step {step}");
                denied[one.denied_by().map_or(4, Axis::index)] += 1;
                if let (Some(one), Some(rate), Some(cost)) = (one.permit, more_rate.permit, more_cost.permit)
                {
                    held.push([one, rate, cost]);
                }
            }
            clock.advance(Duration::from_millis(wait * 40));
        }
        let [concurrency, price, rate, cost, allowed] = denied;
        assert!(concurrency > 0 && price == 0 && rate > 0 && cost > 0 && allowed > 100, "{denied:?}");
    }
}

/// Two cells are held one after the other. Whichever of them denies, or is held by another thread, both are charged or
/// neither.
#[test]
fn threads_that_share_keys_charge_both_axes_or_neither() {
    const CALLS: u64 = 20_000;
    for (calls, tokens) in [(1 << 30, 40_000), (15_000, 1 << 30)] {
        let policy = Policy::builder("shared")
            .rate(Limit::fixed_window(calls, MINUTE).unwrap())
            .tokens(Limit::fixed_window(tokens, MINUTE).unwrap())
            .clock(ManualClock::at(START))
            .build()
            .unwrap();
        let work = |thread: u64| {
            let mut charged = [(0, 0); 2];
            for call in 0..CALLS {
                let (key, cost) = ((call + thread) as usize % 2, call % 5);
                let admission = policy.admit(Call::by(["a", "b"][key]).cost(cost));
                if let Some(permit) = admission.permit {
                    permit.success();
                    charged[key] = (charged[key].0 + 1, charged[key].1 + cost);
                }
            }
            charged
        };
        let work = &work;
        let threads: Vec<[(u64, u64); 2]> = std::thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|thread| scope.spawn(move || work(thread)));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (key, name) in ["a", "b"].into_iter().enumerate() {
            let admitted: u64 = threads.iter().map(|charged| charged[key].0).sum();
            let used: u64 = threads.iter().map(|charged| charged[key].1).sum();
            assert!(admitted < 2 * CALLS, "a limit denies");
            let last = policy.admit(Call::by(name).cost(0));
            let left = |axis| last.axes().get(axis).unwrap().remaining;
            match last.denied_by() {
                None => {
                    assert_eq!((left(Axis::Rate), left(Axis::Cost)), (calls - admitted - 1, tokens - used));
                }
                Some(axis) => assert_eq!((axis, admitted), (Axis::Rate, calls), "{used}"),
            }
        }
    }
}
