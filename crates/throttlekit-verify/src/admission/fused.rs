//! Sequential ≡ fused: one trace gives the same decisions and leaves the same state whether the rate and the
//! cost of a call are charged in one call to a store, in two, or in process.
//!
//! The test compares
//!
//! * the [`Model`]: the rules over plain states, decided all, charged all or none, the first denier named;
//! * fused: a [`SharedPolicy`](throttlekit::SharedPolicy) with both limits in one atomic group;
//! * sequential: one with two steps, which cancels the rate where the cost denies;
//! * in process: a [`Policy`](throttlekit::Policy).
//!
//! Every response is compared in full: the decision, the decision of each axis, the named axis. At the end,
//! and after every denial by the cost, every state is compared. The state of the fused variant must match the
//! model like that of any store: both idle, or equal after one more unit is charged to each, since units that
//! have left a window may still be stored. The state of the sequential variant is compared by its meaning,
//! since a cancelled reservation leaves a marker of its instant: by the rule's response, in every field, to
//! requests of several costs now and at several later instants.
//!
//! Two behaviors are specific to a store and are excluded. An idle key may be forgotten or not, so before the
//! clock steps back every variant forgets it. A clock that steps back behind a cancelled reservation meets
//! its marker, which denies at least as much; from there on the sequential variant is not compared
//! ([`FusedReport::left_out`]). A shaper cannot return a turn, and a policy with one before another step is
//! rejected, so where the rate is a shaper there is no sequential variant.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::guard::Ending;
use throttlekit::rate::Timestamp;
use throttlekit::store::{Store, StoreError};
use throttlekit::{Axis, Limit, Retry};
use throttlekit_core::rate::{Rule, State};

use super::fused_scenario::{FusedOperation, FusedScenario, KEYS};
use super::model::{AdmissionBug, Model, Setup, Ticket};
use super::pair::{AXES, Extras, OnStore, Pairs, SeededPairs, Way};
use super::subject::{Asked, End, Heard, Subject, Words};
use throttlekit_conformance::check::ensure;
use throttlekit_conformance::invariants::Violation;
use throttlekit_conformance::runner::{self, Played, Tally};
use throttlekit_conformance::stores::{policy_name, same_state};

/// The maximum step of a clock before the start of its scenario: an in-process word counts from a day before.
const BACK_MAX: Duration = Duration::from_secs(12 * 3_600);

/// Counts of what was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FusedReport {
    /// Traces run.
    pub traces: u64,
    /// Calls made in every variant.
    pub asks: u64,
    /// Calls denied by the rate.
    pub denied_by_rate: u64,
    /// Calls denied by the cost.
    pub denied_by_cost: u64,
    /// Calls settled at a cost different from the reserved one.
    pub settled: u64,
    /// States compared.
    pub states: u64,
    /// Backward steps of a clock.
    pub steps_back: u64,
    /// Traces at whose end the sequential variant was not compared.
    pub left_out: u64,
}

impl FusedReport {
    /// Returns `true` if every kind of decision occurred.
    pub fn saw_all(&self) -> bool {
        let Self { denied_by_rate, denied_by_cost, settled, steps_back, left_out, .. } = *self;
        [denied_by_rate, denied_by_cost, settled, steps_back, left_out].iter().all(|seen| *seen > 0)
    }
}

impl Tally for FusedReport {
    fn plus(self, other: Self) -> Self {
        Self {
            traces: self.traces + other.traces,
            asks: self.asks + other.asks,
            denied_by_rate: self.denied_by_rate + other.denied_by_rate,
            denied_by_cost: self.denied_by_cost + other.denied_by_cost,
            settled: self.settled + other.settled,
            states: self.states + other.states,
            steps_back: self.steps_back + other.steps_back,
            left_out: self.left_out + other.left_out,
        }
    }
}

impl FusedReport {
    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Tally::plus(self, other)
    }
}

/// Runs the traces of these seeds on a store. Stops at the first violation.
///
/// `make` creates a store that reads the given clock. Call it for five hundred seeds at a time: each trace
/// has two limits of its own, and a store in memory keeps a thousand.
pub async fn examine_fused<S, M, F>(make: M, seeds: std::ops::Range<u64>) -> Result<FusedReport, Violation>
where
    S: Store,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    let make = std::sync::Arc::new(make);
    let make = move |clock| {
        let make = make.clone();
        async move { Ok(OnStore::new(make(clock).await?)) }
    };
    runner::examine::<FusedScenario, OnStore<S>, _, _>(make, seeds).await
}

/// The bugs that the examination must find.
pub const FUSED_BUGS: [AdmissionBug; 8] = [
    AdmissionBug::RateKept,
    AdmissionBug::CostTaken,
    AdmissionBug::StaleAxis,
    AdmissionBug::LastDenier,
    AdmissionBug::AsksOn,
    AdmissionBug::DecisionOfAll,
    AdmissionBug::SettledTwice,
    AdmissionBug::RefundForgotten,
];

/// Returns the number of traces until the examination finds a seeded bug, if `traces_max` are enough. Without
/// a bug, returns `Some` if there is a false positive.
pub async fn find_fused_bug(bug: Option<AdmissionBug>, traces_max: u64) -> Option<u64> {
    let make = move |clock| async move { Ok(SeededPairs::new(clock, bug)) };
    let found = runner::examine::<FusedScenario, SeededPairs, _, _>(make, 0..traces_max).await;
    found.err().map(|violation| violation.seed + 1)
}

impl<P: Pairs> Played<P> for FusedScenario {
    type Report = FusedReport;

    fn of(seed: u64) -> Self {
        Self::roll(seed)
    }

    fn shorter(&self) -> Vec<Self> {
        self.smaller().collect()
    }

    async fn play(&self, pairs: &P, clock: &ManualClock) -> Result<FusedReport, String> {
        clock.set(self.start);
        let mut play = Play::new(self, pairs, clock).map_err(|error| error.to_string())?;
        for (at, operation) in self.operations.iter().enumerate() {
            play.step(operation)
                .await
                .map_err(|counterexample| format!("at operation {at}: {counterexample}"))?;
        }
        play.look().await.map_err(|counterexample| format!("in the end: {counterexample}"))?;
        Ok(FusedReport { traces: 1, ..play.report })
    }
}

/// A running trace.
struct Play<'a, P: Pairs> {
    scenario: &'a FusedScenario,
    limits: [Limit; 2],
    clock: &'a ManualClock,
    now: Timestamp,
    furthest: Timestamp,
    /// Forgets idle keys as a store may.
    model: Model,
    /// Forgets nothing, like in-process limits with capacity for all keys.
    keeps: Model,
    fused: P::Way,
    sequential: Option<P::Way>,
    local: P::Local,
    called: [bool; KEYS.len()],
    open: Vec<Open<P>>,
    /// The last instant at which the rate was reserved and the cost denied.
    cancelled: Timestamp,
    retry: Option<(FusedOperation, Timestamp)>,
    report: FusedReport,
}

/// An admitted call, in every variant.
struct Open<P: Pairs> {
    cost: u64,
    /// `None` where limits that forget nothing still admit and this one already denies.
    fused: Option<(Ticket, <P::Way as Subject>::Held)>,
    keeps: Option<Ticket>,
    sequential: Option<<P::Way as Subject>::Held>,
    local: Option<<P::Local as Subject>::Held>,
}

impl<'a, P: Pairs> Play<'a, P> {
    fn new(
        scenario: &'a FusedScenario,
        pairs: &P,
        clock: &'a ManualClock,
    ) -> Result<Self, throttlekit::BuildError> {
        let (limits, name) = (scenario.limits()?, policy_name(scenario.seed));
        let setup = Setup { rate: Some(limits[0]), cost: Some(limits[1]), ..Setup::default() };
        let model = || Model::new(setup, clock.clone(), None);
        Ok(Self {
            scenario,
            limits: limits.map(|limit| limit.uncrossed()),
            clock,
            now: scenario.start,
            furthest: scenario.start,
            model: model(),
            keeps: model(),
            fused: pairs.fused(&name, limits, &Extras::default())?,
            sequential: pairs.sequential(&format!("{name}-s"), limits, &Extras::default())?,
            local: pairs.local(limits, clock, &Extras::default())?,
            called: [false; KEYS.len()],
            open: Vec::new(),
            cancelled: Timestamp::EPOCH,
            retry: None,
            report: FusedReport::default(),
        })
    }

    async fn step(&mut self, operation: &FusedOperation) -> Result<(), String> {
        match *operation {
            FusedOperation::Ask { key, cost } => self.ask(key, cost).await,
            FusedOperation::Settle { permit, used } => {
                if self.open.is_empty() {
                    return Ok(());
                }
                let open = self.open.remove(permit % self.open.len());
                let end = match used {
                    Some(used) => End { actual: Some(used.of(open.cost)), ending: Ending::Success },
                    None => End { actual: None, ending: Ending::Ignored },
                };
                self.settle(open, end).await.map_err(|error| error.to_string())
            }
            FusedOperation::Wait(by) => {
                self.set_clock(self.now + by);
                Ok(())
            }
            FusedOperation::Retry(off) => {
                let Some((FusedOperation::Ask { key, cost }, at)) = self.retry else { return Ok(()) };
                let micros = at.as_nanos().div_ceil(1_000).saturating_add_signed(off);
                self.set_clock(Timestamp::from_micros(micros).max(self.now));
                self.ask(key, cost).await
            }
            FusedOperation::StepBack(by) => self.step_back(by).await.map_err(|error| error.to_string()),
        }
    }

    async fn ask(&mut self, key: usize, cost: u64) -> Result<(), String> {
        let ask = Asked::by(KEYS[key], cost);
        self.called[key] = true;
        let no_answer = |error: StoreError| error.to_string();
        let want = self.model.ask(&ask);
        let fused = self.fused.admit(&ask).await.map_err(no_answer)?;
        same("fused", &want, &fused)?;
        let sequential = match &self.sequential {
            None => None,
            Some(way) => {
                let heard = way.admit(&ask).await.map_err(no_answer)?;
                same("sequential", &want, &heard)?;
                heard.held
            }
        };
        let kept = self.keeps.ask(&ask);
        let local = self.local.admit(&ask).await.map_err(no_answer)?;
        same("in process", &kept, &local)?;
        self.report.asks += 1;
        if let (false, Retry::After(wait)) = (want.decision.allowed, want.decision.retry_after) {
            self.retry = Some((FusedOperation::Ask { key, cost }, self.now + wait));
        }
        let (fused, keeps, local) = (want.held.zip(fused.held), kept.held, local.held);
        if fused.is_some() || local.is_some() {
            self.open.push(Open { cost, fused, keeps, sequential, local });
        }
        match want.binding {
            Some(Axis::Rate) => self.report.denied_by_rate += 1,
            Some(_) => {
                self.report.denied_by_cost += 1;
                self.cancelled = self.cancelled.max(self.now);
                return self.look_at(KEYS[key]).await;
            }
            None => {}
        }
        Ok(())
    }

    async fn settle(&mut self, open: Open<P>, end: End) -> Result<(), StoreError> {
        self.report.settled += u64::from(end.of(open.cost) != open.cost);
        if let Some((ticket, held)) = open.fused {
            self.model.leave(&ticket, end);
            self.fused.end(held, end).await?;
        }
        if let (Some(way), Some(held)) = (&self.sequential, open.sequential) {
            way.end(held, end).await?;
        }
        if let Some(kept) = &open.keeps {
            self.keeps.leave(kept, end);
        }
        match open.local {
            Some(held) => self.local.end(held, end).await,
            None => Ok(()),
        }
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.now = now;
        self.furthest = self.furthest.max(now);
        self.clock.set(now);
    }

    async fn step_back(&mut self, by: Duration) -> Result<(), StoreError> {
        self.report.steps_back += 1;
        let earliest = self.scenario.start.as_nanos() - BACK_MAX.as_nanos() as u64;
        let back = self.now.as_nanos().saturating_sub(by.as_nanos() as u64).max(earliest);
        let mut back = Timestamp::from_nanos(back);
        if self.scenario.keeps_to_denials {
            back = back.max(self.cancelled).min(self.now);
        } else if back < self.cancelled && self.sequential.take().is_some() {
            self.report.left_out += 1;
        }
        for key in KEYS {
            for (axis, limit) in AXES.into_iter().zip(self.limits) {
                if limit.idle_at(&self.model.state(axis, key)) <= self.furthest {
                    self.model.forget(axis, key);
                    self.fused.forget(axis, key).await?;
                    if let Some(way) = &self.sequential {
                        way.forget(axis, key).await?;
                    }
                }
            }
        }
        self.set_clock(back);
        Ok(())
    }

    /// Compares the states of all keys that were used.
    async fn look(&mut self) -> Result<(), String> {
        for (key, called) in KEYS.into_iter().zip(self.called) {
            if called {
                self.look_at(key).await?;
            }
        }
        Ok(())
    }

    async fn look_at(&mut self, key: &str) -> Result<(), String> {
        let no_answer = |error: StoreError| error.to_string();
        let fused = self.fused.states(key).await.map_err(no_answer)?;
        let sequential = match &self.sequential {
            Some(way) => Some(way.states(key).await.map_err(no_answer)?),
            None => None,
        };
        for (i, axis) in AXES.into_iter().enumerate() {
            let (limit, want) = (&self.limits[i], self.model.state(axis, key));
            let told = |way: &str, got: &State| format!("{axis} of {key}, {way}: want {want:?}, got {got:?}");
            ensure(same_state(limit, &want, &fused[i], self.now), || told("fused", &fused[i]))?;
            if let Some(got) = &sequential {
                same_meaning(limit, &want, &got[i], self.now)
                    .map_err(|counterexample| format!("{}: {counterexample}", told("sequential", &got[i])))?;
                self.report.states += 1;
            }
            self.report.states += 1;
        }
        Ok(())
    }
}

/// Checks that two states give the same decisions from `now` on.
pub(super) fn same_meaning(limit: &Limit, one: &State, two: &State, now: Timestamp) -> Result<(), String> {
    let (period, units) = (limit.period(), limit.units());
    let micro = Duration::from_micros(1);
    let waits = [Duration::ZERO, micro, period / 7, period / 2, period - micro, period, period * 3];
    for wait in waits {
        for cost in [0, 1, 2, units / 2, units.saturating_sub(1), units, units + 1] {
            let at = now + wait;
            let (want, got) = (limit.decide(one, cost, at), limit.decide(two, cost, at));
            ensure(want == got, || format!("{cost} at {at}: want {want:?}, got {got:?}"))?;
        }
    }
    Ok(())
}

fn same<A, B>(way: &str, want: &Heard<A>, got: &Heard<B>) -> Result<(), String> {
    let (want, got): (Words, Words) = (want.words(), got.words());
    ensure(want == got, || format!("{way}:\n  want {want:?}\n  got  {got:?}"))
}
