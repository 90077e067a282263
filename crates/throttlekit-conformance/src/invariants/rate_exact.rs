//! `rate-exact`: no more than the bound, no less than it allows, and waits that are exact to the nanosecond.

use std::time::Duration;

use throttlekit_core::rate::Rule;
use throttlekit_core::{Decision, Retry, Timestamp};

use super::faults::{FloatGcra, remainder_dropped};
use super::{Bug, Check, Invariant, Judge, Seeded, Trial, ensure, limit, over_scenarios};
use crate::{Scenario, Spec, scenario};

/// Whatever a rule admits, the oracle permits; with a clock that steps back, time is that of the latest admission.
pub(super) fn bound() -> Invariant {
    Invariant {
        name: "rate-exact/bound",
        holds: over_scenarios(Scenario::roll, |scenario| check_bound(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy(Scenario::roll, check_bound, Bug::CostIgnored),
            buggy(Scenario::roll, check_bound, Bug::OneUnitMore),
            buggy(Scenario::roll, check_bound, Bug::OneNanoEarly),
            buggy(Scenario::roll, check_bound, Bug::ClockTrusted),
            ("float_drift", over_scenarios(Scenario::roll, |w| float(w, check_bound))),
            ("remainder_dropped", over_scenarios(Scenario::roll, |w| dropped(w, false, check_bound))),
        ],
    }
}

/// Whatever the oracle permits, a rule admits, while the clock moves forward: the bound is reached, not only kept.
pub(super) fn tight() -> Invariant {
    let forward: fn(u64) -> Scenario = |seed| Scenario::roll(seed).forward();
    Invariant {
        name: "rate-exact/tight",
        holds: over_scenarios(forward, |scenario| check_tight(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy(forward, check_tight, Bug::OneUnitFewer),
            buggy(forward, check_tight, Bug::OneNanoLate),
            buggy(forward, check_tight, Bug::ChargeOnDenial),
            ("float_drift", over_scenarios(forward, |w| float(w, check_tight))),
            ("remainder_dropped", over_scenarios(forward, |w| dropped(w, true, check_tight))),
        ],
    }
}

/// A denial's wait is exact: denied one nanosecond before, admitted at it and ever after; never means never.
pub(super) fn retry() -> Invariant {
    Invariant {
        name: "rate-exact/retry",
        holds: over_scenarios(Scenario::roll, |scenario| check_retry(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy(Scenario::roll, check_retry, Bug::RetryEarly),
            buggy(Scenario::roll, check_retry, Bug::RetryLate),
            buggy(Scenario::roll, check_retry, Bug::NeverAsWait),
            ("next_bucket_hint", over_scenarios(hinted, |w| check_retry(&limit(&w.spec), w))),
        ],
    }
}

type RuleCheck = fn(&Seeded, &Scenario) -> Check;

fn buggy(roll: fn(u64) -> Scenario, check: RuleCheck, bug: Bug) -> (&'static str, Trial) {
    (bug.name(), over_scenarios(roll, move |scenario| check(&Seeded::new(&scenario.spec, bug), scenario)))
}

fn float(scenario: &Scenario, check: fn(&FloatGcra, &Scenario) -> Check) -> Check {
    FloatGcra::new(&scenario.spec).map_or(Ok(()), |rule| check(&rule, scenario))
}

fn dropped(
    scenario: &Scenario,
    up: bool,
    check: fn(&throttlekit_core::rate::Limit, &Scenario) -> Check,
) -> Check {
    remainder_dropped(&scenario.spec, up).map_or(Ok(()), |rule| check(&rule, scenario))
}

/// Generates a scenario whose sliding window returns the hint of version 1 instead of the exact wait.
fn hinted(seed: u64) -> Scenario {
    let mut scenario = Scenario::roll(seed);
    if let Spec::SlidingWindow { exact, .. } = &mut scenario.spec {
        *exact = false;
    }
    scenario
}

fn check_bound<R: Rule>(rule: &R, scenario: &Scenario) -> Check {
    let (mut state, mut judge) = (R::State::default(), Judge::new(scenario.spec));
    let mut furthest = Timestamp::EPOCH;
    let mut starts = Starts::new(scenario.spec);
    for (now, cost) in scenario.asks() {
        let decision = rule.check(&mut state, cost, now);
        if decision.allowed && cost > 0 {
            furthest = furthest.max(now);
            ensure(judge.permits(cost, furthest), || format!("admitted {cost} at {now} beyond the bound"))?;
            judge.admit(cost, furthest);
            starts.start(cost, now, &decision)?;
        }
    }
    Ok(())
}

/// Start times of a shaper's work: each no sooner than its predecessor's units take to leave.
struct Starts {
    spec: Spec,
    last: Option<(u64, Timestamp)>,
}

impl Starts {
    fn new(spec: Spec) -> Self {
        Self { spec, last: None }
    }

    fn start(&mut self, cost: u64, now: Timestamp, decision: &Decision) -> Check {
        let Spec::LeakyBucket { units, period, .. } = self.spec else {
            let waits = decision.retry_after != Retry::Now;
            return ensure(!waits, || format!("allowed at {now} with a wait"));
        };
        let start = now + decision.retry_after.wait().unwrap_or(Duration::MAX);
        if let Some((units_before, before)) = self.last.replace((cost, start)) {
            // Both starts are rounded up to a nanosecond, so their distance may be short by less than one.
            let apart = start.since(before).as_nanos() + 1;
            let spaced = apart * u128::from(units) > u128::from(units_before) * period.as_nanos();
            return ensure(spaced, || format!("work starts at {start}, too soon after {before}"));
        }
        Ok(())
    }
}

fn check_tight<R: Rule>(rule: &R, scenario: &Scenario) -> Check {
    let (mut state, mut judge) = (R::State::default(), Judge::new(scenario.spec));
    for (now, cost) in scenario.asks() {
        let decision = rule.check(&mut state, cost, now);
        let permitted = judge.permits(cost, now);
        ensure(decision.allowed || !permitted, || format!("denied {cost} at {now} within the bound"))?;
        if decision.allowed {
            judge.admit(cost, now);
        }
    }
    Ok(())
}

fn check_retry<R: Rule>(rule: &R, scenario: &Scenario) -> Check {
    let mut state = R::State::default();
    let mut dice = scenario.dice();
    for (now, cost) in scenario.asks() {
        rule.check(&mut state, cost, now);
        for cost in [cost, scenario::roll_cost(&mut dice, &scenario.spec)] {
            check_wait(
                rule,
                &state,
                cost,
                now,
                scenario::roll_wait(&mut dice, &scenario.spec),
                &scenario.spec,
            )?;
        }
    }
    Ok(())
}

fn check_wait<R: Rule>(
    rule: &R,
    state: &R::State,
    cost: u64,
    now: Timestamp,
    later: Duration,
    spec: &Spec,
) -> Check {
    let allowed = |at| rule.decide(state, cost, at).allowed;
    let decision = rule.decide(state, cost, now);
    let possible = cost <= limit(spec).cost_max();
    match (decision.allowed, decision.retry_after) {
        (true, _) => ensure(allowed(now + later), || format!("{cost} passes at {now}, not {later:?} later")),
        (false, Retry::Never) => {
            let far = [now + later, now + Duration::from_secs(1 << 32), Timestamp::MAX];
            let ever = possible || far.into_iter().any(allowed);
            ensure(!ever, || format!("{cost} at {now} is denied with retry `never`, but passes later"))
        }
        (false, Retry::After(wait)) => {
            let promised = now + wait;
            if promised == Timestamp::MAX {
                return Ok(()); // waits saturate at the end of time
            }
            let before = Timestamp::from_nanos(promised.as_nanos() - 1);
            ensure(possible && allowed(promised), || {
                format!("{cost} at {now}: still denied after {wait:?}")
            })?;
            ensure(!allowed(before), || format!("{cost} at {now}: passes before {wait:?} are over"))?;
            ensure(allowed(promised + later), || format!("{cost} at {now}: denied again after {wait:?}"))
        }
        (false, other) => Err(format!("{cost} at {now} is denied with {other:?}")),
    }
}
