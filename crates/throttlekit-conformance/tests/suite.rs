//! The suite examines the reference itself, and finds a subject that is wrong in one field.

use throttlekit_conformance::{CoreSubject, Operation, Scenario, Subject, examine, suite, vectors};
use throttlekit_core::{Cost, Decision, Forecast, Retry, Timestamp, rate::Rule};

#[test]
fn the_reference_passes_its_own_suite() {
    let report = suite(|limit, _| CoreSubject::new(*limit));
    assert!(report.traces > 2_000 && report.answers > 20_000, "{report:?}");
}

/// Right in everything but the reset of a denial.
struct WrongReset(CoreSubject);

impl Subject for WrongReset {
    fn check(&mut self, key: &str, cost: Cost, now: Timestamp) -> Decision {
        let right = self.0.check(key, cost, now);
        if right.allowed { right } else { Decision { reset_at: now, ..right } }
    }

    fn peek(&mut self, key: &str, now: Timestamp) -> Decision {
        self.0.peek(key, now)
    }

    fn forecast(&mut self, key: &str, cost: Cost, now: Timestamp) -> Forecast {
        self.0.forecast(key, cost, now)
    }

    fn reset(&mut self, key: &str) {
        self.0.reset(key);
    }
}

#[test]
fn a_subject_wrong_in_one_field_is_found() {
    assert!(examine(|limit, _| WrongReset(CoreSubject::new(*limit)), 1).is_err());
}

#[test]
fn vectors_on_disk_match_the_core() {
    let on_disk = vectors::read().unwrap();
    let generated = vectors::generate();
    assert_eq!(on_disk.len(), generated.len());
    for (name, text) in generated {
        let kept = std::fs::read_to_string(vectors::folder().join(&name)).unwrap_or_default();
        assert_eq!(kept, text, "{name} has drifted; run cargo xtask vectors and review the change");
    }
}

/// A generator that stopped reaching the edges would make every invariant pass.
#[test]
fn scenarios_reach_every_outcome_of_every_rule() {
    let mut seen = std::collections::HashMap::<(String, &str), u32>::new();
    for scenario in (0..5_000).map(Scenario::roll) {
        let kind = scenario.spec.to_string().split(' ').next().unwrap_or_default().to_owned();
        let (limit, mut state) = (scenario.spec.limit().unwrap(), Default::default());
        let (mut furthest, mut used) = (Timestamp::EPOCH, false);
        for (now, operation) in scenario.moments() {
            let Operation::Ask { cost, .. } = operation else { continue };
            let decision = limit.check(&mut state, cost, now);
            let outcome = match (decision.allowed, decision.retry_after) {
                (true, _) if cost == 0 => "nothing asked",
                (true, _) if used && now < furthest => "allowed behind the clock",
                (true, _) => "allowed",
                (false, Retry::Never) => "never",
                (false, _) if now < furthest => "denied behind the clock",
                (false, _) => "denied",
            };
            *seen.entry((kind.clone(), outcome)).or_default() += 1;
            used |= decision.allowed && cost > 0;
            furthest = furthest.max(now);
        }
    }
    let rules = ["gcra", "token-bucket", "leaky-bucket", "window", "sliding-window", "sliding-log"];
    let outcomes = [
        "nothing asked",
        "allowed",
        "allowed behind the clock",
        "denied",
        "denied behind the clock",
        "never",
    ];
    for rule in rules {
        for outcome in outcomes {
            let times = seen.get(&(rule.to_owned(), outcome)).copied().unwrap_or_default();
            assert!(times >= 20, "{rule}: {outcome}: only {times} times in 5000 scenarios");
        }
    }
}
