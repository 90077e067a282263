//! Runs cases on a subject and on the judge.

use std::ops::Range;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;

use super::judge::{Judge, Verdict};
use super::report::LearnReport;
use super::responses;
use super::seeded::{CeilingBug, Seeded};
use super::subject::{Ceilings, Paces, Sent, Settings, Shipped, now};
use throttlekit_conformance::Dice;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const STEPS_MAX: u64 = 60;
const IN_FLIGHT_MAX: usize = 8;
/// Twenty minutes: sixty of them are less than the day in which an ample burst comes back.
const STEP_BACK_MAX_NANOS: u64 = 1_200_000_000_000;
const TOKENS_MAX: u64 = 1_000_000;

/// Runs the cases of these seeds on the production code. Stops at the first violation.
pub fn examine(seeds: Range<u64>) -> Result<LearnReport, String> {
    let (mut report, runtime) = (LearnReport::default(), runtime());
    let _entered = runtime.enter();
    for seed in seeds {
        let (ceilings, settings, clock) = setup(seed);
        let subject = Shipped::new(ceilings.policy(&clock), settings);
        let played = Case::new(seed, subject, ceilings, settings, clock, None).play(&mut report);
        played.map_err(|_| trace(seed))?;
    }
    Ok(report)
}

/// Replays a case with a violation, and returns its trace.
fn trace(seed: u64) -> String {
    let (ceilings, settings, clock) = setup(seed);
    let subject = Shipped::new(ceilings.policy(&clock), settings);
    let case = Case::new(seed, subject, ceilings, settings, clock, Some(Vec::new()));
    case.play(&mut LearnReport::default()).err().map_or("no violation again".into(), |(_, story)| story)
}

/// Returns the number of cases after which a seeded bug is found, and the check that found it. Without a bug, the
/// violation of the subject that bugs are seeded in.
pub fn find_seeded(bug: Option<CeilingBug>, cases: u64) -> Option<(u64, &'static str)> {
    let (mut report, runtime) = (LearnReport::default(), runtime());
    let _entered = runtime.enter();
    (0..cases).find_map(|seed| {
        let (ceilings, settings, clock) = setup(seed);
        let subject = Seeded::new(bug, &ceilings, settings, &clock);
        let found = Case::new(seed, subject, ceilings, settings, clock, None).play(&mut report).err()?;
        Some((seed + 1, found.0))
    })
}

/// Builds the runtime whose timers a queue creates. None of them is waited for.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn setup(seed: u64) -> (Ceilings, Settings, ManualClock) {
    let mut dice = Dice::new(!seed);
    let max_pause = Duration::from_secs(dice.pick(&[1, 10, 60, 60]));
    let expires = max_pause * dice.pick(&[1, 3, 10]);
    let raise_over = Duration::from_secs(dice.pick(&[5, 60]));
    (Ceilings::roll(&mut dice), Settings { max_pause, expires, raise_over }, ManualClock::at(START))
}

struct Case<S> {
    seed: u64,
    dice: Dice,
    subject: S,
    judge: Judge,
    settings: Settings,
    ceilings: Ceilings,
    clock: ManualClock,
    /// Number and position of calls without a response.
    in_flight: Vec<(usize, Sent)>,
    /// The last reported wait, and its time.
    told: Option<Duration>,
    /// The trace, if it is wanted.
    trace: Option<Vec<String>>,
}

impl<S: Paces> Case<S> {
    fn new(
        seed: u64,
        subject: S,
        ceilings: Ceilings,
        settings: Settings,
        clock: ManualClock,
        trace: Option<Vec<String>>,
    ) -> Self {
        let (judge, in_flight) = (Judge::new(ceilings, settings), Vec::new());
        Self {
            seed,
            dice: Dice::new(seed),
            subject,
            judge,
            settings,
            ceilings,
            clock,
            in_flight,
            told: None,
            trace,
        }
    }

    fn play(mut self, report: &mut LearnReport) -> Result<(), (&'static str, String)> {
        report.cases += 1;
        for step in 0..self.dice.between(10, STEPS_MAX) {
            self.step(report).map_err(|(check, story)| {
                let Self { seed, ceilings, settings, trace, .. } = &self;
                let before = trace.as_deref().unwrap_or_default().join("\n  ");
                (check, format!("{check}, seed {seed}, step {step}: {story}\n  {ceilings:?}\n  {settings:?}\n  {before}"))
            })?;
        }
        Ok(())
    }

    fn step(&mut self, report: &mut LearnReport) -> Verdict {
        match self.dice.below(20) {
            0..9 => self.call(report),
            9..14 if !self.in_flight.is_empty() => self.respond(report),
            14 if self.ceilings.is_ample && self.dice.once_in(4) => self.step_back(report),
            _ => self.wait(),
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    fn call(&mut self, report: &mut LearnReport) -> Verdict {
        // Ample ceilings are those that no case reaches.
        let most = if self.ceilings.is_ample { TOKENS_MAX } else { self.ceilings.tokens };
        let tokens = if self.dice.once_in(3) { self.dice.any_size(most).max(1) } else { 1 };
        let decision = self.subject.admit(tokens);
        let now = now(&self.clock);
        self.note(|| format!("{now}: call of {tokens} tokens: {:?}", decision.map(|_| "admitted")));
        self.told = decision.err().flatten();
        let number = self.judge.calls();
        self.judge.call(tokens, decision.map(drop), now, report)?;
        if let Ok(sent) = decision {
            self.in_flight.push((number, sent));
            if self.in_flight.len() > IN_FLIGHT_MAX {
                self.in_flight.remove(0);
            }
        }
        Ok(())
    }

    fn respond(&mut self, report: &mut LearnReport) -> Verdict {
        let now = now(&self.clock);
        let nth = self.dice.below(self.in_flight.len() as u64) as usize;
        let (number, sent) = self.in_flight.swap_remove(nth);
        let response = responses::roll(&mut self.dice, now);
        self.subject.respond(sent, &response);
        let limits = self.subject.limits();
        self.note(|| format!("{now}: to call {number}: {response:?}: {limits:?}"));
        self.judge.response(number, &response, limits, now, report)
    }

    fn wait(&mut self) -> Verdict {
        let (max, told) = (self.settings.max_pause, self.told.unwrap_or_default());
        let by = match self.dice.below(8) {
            0 | 1 => told,
            2 => told.saturating_sub(Duration::from_nanos(1)),
            3 => max,
            4 => max.saturating_sub(Duration::from_millis(self.dice.below(1_000))),
            5 if self.dice.once_in(4) => self.settings.expires,
            _ => Duration::from_millis(self.dice.any_size(20_000)),
        };
        self.clock.advance(by);
        self.note(|| format!("wait {by:?}"));
        Ok(())
    }

    /// Steps the clock back before a call: an upstream that does not read it in between cannot notice.
    fn step_back(&mut self, report: &mut LearnReport) -> Verdict {
        let by = self.dice.any_size(STEP_BACK_MAX_NANOS);
        let before = now(&self.clock);
        let back = Timestamp::from_nanos(before.as_nanos() - by);
        self.clock.set(back);
        self.judge.step_back(before, back);
        self.note(|| format!("the clock steps back to {back}"));
        self.call(report)
    }
}
