//! The suite that every store runs: golden vectors, our own vectors, and random scenarios against the reference.

use std::fmt;

use throttlekit_core::rate::Limit;
use throttlekit_core::{Decision, Forecast, Timestamp};

use crate::difference::Difference;
use crate::trace::print_answer;
use crate::{CoreSubject, Operation, Scenario, Spec, Subject, Trace, golden, vectors};

/// Number of random scenarios in which a store must agree with the reference.
pub const SCENARIOS: u64 = 2_000;

/// Counts of comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuiteReport {
    /// Golden suites, traces and scenarios.
    pub traces: usize,
    /// Decisions in them.
    pub answers: usize,
}

/// Checks a store: guarantee `same-everywhere`.
///
/// `make` builds a fresh subject for a limit. Its clock may be assumed to have shown the given instant, the earliest of
/// the trace, when it was built.
///
/// # Panics
///
/// If a decision differs, with its position.
pub fn suite<S: Subject>(make: impl FnMut(&Limit, Timestamp) -> S) -> SuiteReport {
    examine(make, SCENARIOS).unwrap_or_else(|difference| panic!("same-everywhere is violated\n{difference}"))
}

/// Runs [`suite`] over a number of random scenarios, and returns the first difference.
pub fn examine<S: Subject>(
    mut make: impl FnMut(&Limit, Timestamp) -> S,
    scenarios: u64,
) -> Result<SuiteReport, Difference> {
    let mut report = SuiteReport::default();
    let mut made =
        |spec: &Spec, start| make(&spec.limit().expect("specs are checked where they are made"), start);
    for suite in golden::suites() {
        suite.play(&mut made(&suite.spec, Timestamp::EPOCH))?;
        report.add(suite.asks.len());
    }
    for (name, trace) in vectors::read().map_err(|error| error.to_string())? {
        let mut subject = made(&trace.spec, trace.start());
        play(&trace, &mut subject).map_err(|difference| format!("{name}: {difference}"))?;
        report.add(trace.lines.len());
    }
    for seed in 0..scenarios {
        let scenario = Scenario::roll(seed);
        compare(&scenario, &mut made(&scenario.spec, scenario.built_at()))?;
        report.add(scenario.operations.len());
    }
    Ok(report)
}

impl SuiteReport {
    fn add(&mut self, answers: usize) {
        self.traces += 1;
        self.answers += answers;
    }
}

/// Runs a trace and compares every decision, field by field.
pub fn play(trace: &Trace, subject: &mut impl Subject) -> Result<(), Difference> {
    for line in &trace.lines {
        let answer = subject.check(&line.key, line.cost, line.now);
        if answer != line.answer {
            return Err(format!("\n  want {line}\n  got  {}", print_answer(&answer)).into());
        }
    }
    Ok(())
}

#[derive(PartialEq)]
enum Reply {
    Decision(Decision),
    Forecast(Forecast),
    Done,
}

/// Runs a scenario against the subject and the reference.
fn compare(scenario: &Scenario, subject: &mut impl Subject) -> Result<(), String> {
    let limit = scenario.spec.limit().map_err(|error| error.to_string())?;
    let mut reference = CoreSubject::new(limit);
    let mut furthest = scenario.start;
    for (index, (now, operation)) in scenario.moments().enumerate() {
        if matches!(operation, Operation::StepBack(_)) {
            forget_idle(&mut reference, subject, furthest);
        }
        furthest = furthest.max(now);
        let want = reply(&mut reference, operation, now);
        let got = reply(subject, operation, now);
        if want != got {
            return Err(format!("{scenario}at operation {index}, {now}\n  want {want}\n  got  {got}"));
        }
    }
    Ok(())
}

/// Drops idle keys. A store may or may not drop a key that is idle, so its state after a step back is not specified. So
/// before a step back, both drop idle keys.
fn forget_idle(reference: &mut CoreSubject, subject: &mut impl Subject, furthest: Timestamp) {
    for key in reference.idle_keys(furthest) {
        reference.reset(&key);
        subject.reset(&key);
    }
}

fn reply(subject: &mut impl Subject, operation: Operation, now: Timestamp) -> Reply {
    let name = |key: u8| format!("key-{key}");
    match operation {
        Operation::Ask { key, cost } => Reply::Decision(subject.check(&name(key), cost, now)),
        Operation::Peek { key } => Reply::Decision(subject.peek(&name(key), now)),
        Operation::Forecast { key, cost } => Reply::Forecast(subject.forecast(&name(key), cost, now)),
        Operation::Reset { key } => {
            subject.reset(&name(key));
            Reply::Done
        }
        Operation::Wait(_) | Operation::StepBack(_) => Reply::Done,
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decision(decision) => f.write_str(&print_answer(decision)),
            Self::Forecast(forecast) => write!(f, "{forecast:?}"),
            Self::Done => f.write_str("done"),
        }
    }
}
