//! The composition matrix: every subset of axes × every possible denier × every mix of stores.
//!
//! In each [`Cell`] three calls are admitted and held, which exhausts every axis that must deny. Then a call
//! is denied, twice, and these hold:
//!
//! * the expected axis is named, or the price;
//! * the name is consistent with the decisions of the axes in the same call: all before it allowed, it
//!   denied, those after it were not evaluated;
//! * the response is the denier's own, or the fold of all axes;
//! * nothing has changed: slots in flight or held, and every state on a store, before and after; and a twin
//!   that never received the denied calls gives the same responses, in full, to calls that probe each axis
//!   separately (of a leased axis the units of the node and those left on the store count together);
//! * every decision was reported once, as it was returned; denials by axis and by price add up to all
//!   denials.

use std::sync::OnceLock;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::{ALLOW_FULL, Timestamp, combine};
use throttlekit::store::{SlotStore, Store, StoreError};
use throttlekit::{Axis, Retry};

use super::cell::{Cell, Denier};
use super::fixture::{Bench, Fixture, RealBench, SeededBench};
use super::model::AdmissionBug;
use super::subject::{Asked, End, Heard, Told, Words};
use throttlekit_conformance::check::{Check, ensure};
use throttlekit_conformance::invariants::Violation;
use throttlekit_conformance::runner::{self, Played, Tally};
use throttlekit_conformance::stores::policy_name;

pub(super) const START: Timestamp = Timestamp::from_millis(1_700_000_010_000);
/// Three calls of this cost exhaust every tight limit.
pub(super) const COST: u64 = 33;
pub(super) const CALLS: u32 = 3;
/// A value above any price.
const DEAR: f64 = 1e9;
/// The number of polls for a slot on a store to be released, which a background task does.
const TRIES_MAX: u32 = 3_000;
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Counts of what was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixReport {
    /// Cells run.
    pub cells: u64,
    /// Decisions.
    pub decisions: u64,
    /// Of them, denials.
    pub denials: u64,
    /// Denials as observers saw them: by axis, and by the price at the index of [`Denier::Price`].
    pub told_by: [u64; 5],
    /// Decisions that were reported to observers.
    pub told: u64,
    /// States on stores and slots that were compared before and after a denial.
    pub states: u64,
}

impl MatrixReport {
    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Tally::plus(self, other)
    }

    /// Returns `true` if denials by axis and by price add up, and every decision was reported.
    pub fn adds_up(&self) -> bool {
        self.told_by.iter().sum::<u64>() == self.denials && self.told == self.decisions
    }
}

impl Tally for MatrixReport {
    fn plus(self, other: Self) -> Self {
        Self {
            cells: self.cells + other.cells,
            decisions: self.decisions + other.decisions,
            denials: self.denials + other.denials,
            told_by: std::array::from_fn(|i| self.told_by[i] + other.told_by[i]),
            told: self.told + other.told,
            states: self.states + other.states,
        }
    }
}

/// The bugs that the examination must find.
pub const MATRIX_BUGS: [AdmissionBug; 13] = [
    AdmissionBug::RateKept,
    AdmissionBug::CostTaken,
    AdmissionBug::ShareTaken,
    AdmissionBug::SlotKept,
    AdmissionBug::StaleAxis,
    AdmissionBug::LastDenier,
    AdmissionBug::AsksOn,
    AdmissionBug::PriceLate,
    AdmissionBug::PriceBeforeSlots,
    AdmissionBug::ValueBuysIn,
    AdmissionBug::DecisionOfAll,
    AdmissionBug::ToldTwice,
    AdmissionBug::Untold,
];

/// Returns the number of cells.
pub fn cells() -> u64 {
    all().len() as u64
}

fn all() -> &'static [Cell] {
    static ALL: OnceLock<Vec<Cell>> = OnceLock::new();
    ALL.get_or_init(Cell::all)
}

/// Runs every `step`th cell, starting with the first, on a store; cells without a store only if `locals`.
/// Stops at the first violation.
pub async fn examine_matrix<S, M, F>(make: M, step: usize, locals: bool) -> Result<MatrixReport, Violation>
where
    S: Store + SlotStore,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    let make = std::sync::Arc::new(make);
    let make = move |clock: ManualClock| {
        let make = make.clone();
        async move { Ok(RealBench::new([make(clock.clone()).await?, make(clock.clone()).await?], clock)) }
    };
    let chosen = (0..).zip(all()).filter(|(_, cell)| locals || cell.is_shared()).step_by(step.max(1));
    runner::examine_each::<Cell, RealBench<S>, _, _>(make, chosen.map(|(seed, _)| seed).collect()).await
}

/// Returns the number of cells until a seeded bug is found, if it is. Without a bug, returns `Some` if there
/// is a false positive.
pub async fn find_matrix_bug(bug: Option<AdmissionBug>) -> Option<u64> {
    let make = move |clock| async move { Ok(SeededBench::new(clock, bug)) };
    let found = runner::examine::<Cell, SeededBench, _, _>(make, 0..cells()).await;
    found.err().map(|violation| violation.seed + 1)
}

impl<B: Bench> Played<B> for Cell {
    type Report = MatrixReport;

    fn of(seed: u64) -> Self {
        all()[seed as usize]
    }

    fn shorter(&self) -> Vec<Self> {
        Vec::new()
    }

    async fn play(&self, bench: &B, clock: &ManualClock) -> Result<MatrixReport, String> {
        clock.set(START);
        let name = policy_name(0);
        let fixture = bench.fixture(self, &name).await?;
        let twin = bench.fixture(self, &format!("{name}-twin")).await?;
        let mut play =
            Play { cell: self, fixture: &fixture, told: Vec::new(), report: MatrixReport::default() };
        play.run(&twin).await?;
        play.check_told()?;
        Ok(MatrixReport { cells: 1, ..play.report })
    }
}

/// A running cell.
struct Play<'a, S: Fixture> {
    cell: &'a Cell,
    fixture: &'a S,
    /// The expected reports.
    told: Vec<Told>,
    report: MatrixReport,
}

impl<S: Fixture> Play<'_, S> {
    async fn run(&mut self, twin: &S) -> Check {
        let fill = Asked { who: "ann", rate: "r", tokens: "t", cost: COST, value: DEAR, hold: None };
        let (mut held, mut twins) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let heard = self.ask(&fill).await?;
            ensure(heard.held.is_some(), || format!("a call that fits is denied: {:?}", heard.words()))?;
            held.extend(heard.held);
            twins.extend(twin.admit(&fill).await.map_err(|error| error.to_string())?.held);
        }
        let before = self.sight().await?;
        let value = if self.cell.denies(Denier::Price) { 0.0 } else { DEAR };
        for _ in 0..2 {
            let heard = self.ask(&Asked { value, ..fill }).await?;
            let words = heard.words();
            let named = heard.binding == self.cell.denier.axis()
                && heard.policy_denied == (self.cell.denier == Denier::Price);
            ensure(named && heard.held.is_none(), || format!("not {:?}: {words:?}", self.cell.denier))?;
        }
        self.as_before(&before).await?;
        for (mine, theirs) in held.into_iter().zip(twins) {
            let ended = self.fixture.end(mine, End::WELL).await.and(twin.end(theirs, End::WELL).await);
            ended.map_err(|error| error.to_string())?;
        }
        self.look_beside(twin).await
    }

    /// Probes each axis separately, here and on the twin without denials.
    async fn look_beside(&mut self, twin: &S) -> Check {
        let one = Asked { who: "ann", rate: "r", tokens: "t", cost: 1, value: DEAR, hold: None };
        let views = [
            one,
            Asked { who: "v", tokens: "v", ..one },
            Asked { who: "w", rate: "v", ..one },
            Asked { rate: "w", tokens: "w", ..one },
        ];
        for view in views {
            given_back(self.fixture).await?;
            given_back(twin).await?;
            let mine = self.ask(&view).await?;
            let theirs = twin.admit(&view).await.map_err(|error| error.to_string())?;
            let got = self.words(self.fixture, &view, mine.words()).await?;
            let want = self.words(twin, &view, theirs.words()).await?;
            ensure(got == want, || {
                format!("a denial was not free, by {view:?}:\n  want {want:?}\n  got  {got:?}")
            })?;
            if let (Some(mine), Some(theirs)) = (mine.held, theirs.held) {
                let ended = self.fixture.end(mine, End::WELL).await.and(twin.end(theirs, End::WELL).await);
                ended.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self, ask: &Asked<'_>) -> Result<Heard<S::Held>, String> {
        let heard = self.fixture.admit(ask).await.map_err(|error| error.to_string())?;
        self.report.decisions += 1;
        self.report.denials += u64::from(!heard.decision.allowed);
        self.told.push(Told {
            key: ask.who.into(),
            cost: ask.cost,
            decision: heard.decision,
            binding: heard.binding,
            policy_denied: heard.policy_denied,
        });
        consistent(self.cell, &heard).map_err(|invariant| format!("{invariant}: {:?}", heard.words()))?;
        Ok(heard)
    }

    async fn sight(&mut self) -> Result<Vec<String>, String> {
        let sight = self.fixture.sight().await.map_err(|error| error.to_string())?;
        self.report.states += sight.len() as u64;
        Ok(sight)
    }

    async fn as_before(&mut self, before: &[String]) -> Check {
        let now = self.sight().await?;
        ensure(now == before, || format!("a denial was not free:\n  before {before:?}\n  after  {now:?}"))
    }

    /// Returns the whole response for comparison: without waits where the clock advances, and for a leased
    /// axis with the units left on the store, since units leased for a denied call stay on the node. The
    /// overall decision is the fold of these.
    async fn words(&self, fixture: &S, view: &Asked<'_>, words: Words) -> Result<Words, String> {
        let (mut decision, mut said, binding, policy_denied, held) = words;
        if let Some((axis, left)) = fixture.left_to_lease(view).await.map_err(|error| error.to_string())? {
            decision.remaining = 0;
            said[axis.index()].iter_mut().filter(|said| said.allowed).for_each(|said| said.remaining += left);
        }
        if self.cell.reads_the_time() {
            std::iter::once(&mut decision).chain(said.iter_mut().flatten()).for_each(|decision| {
                if let Retry::After(wait) = &mut decision.retry_after {
                    *wait = Duration::ZERO;
                }
            });
        }
        Ok((decision, said, binding, policy_denied, held))
    }

    fn check_told(&mut self) -> Check {
        let told = self.fixture.watch().take();
        ensure(told == self.told, || format!("decided {:?}\n  told {told:?}", self.told))?;
        self.report.told += told.len() as u64;
        for event in told.iter().filter(|event| !event.decision.allowed) {
            let by = |denier: &Denier| match denier.axis() {
                Some(axis) => event.binding == Some(axis),
                None => event.policy_denied,
            };
            Denier::ALL.iter().filter(|denier| by(denier)).for_each(|denier| {
                self.report.told_by[*denier as usize] += 1;
            });
        }
        ensure(self.report.adds_up(), || format!("denials do not add up: {:?}", self.report))
    }
}

/// Waits until every slot was released on its store.
async fn given_back(fixture: &impl Fixture) -> Check {
    for _ in 0..TRIES_MAX {
        let held = fixture.held_on_a_store().await.map_err(|error| error.to_string())?;
        if held.unwrap_or(0) == 0 {
            return Ok(());
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
    Err("slots that were ended are still held".into())
}

/// Checks the invariants of every response.
fn consistent<H>(cell: &Cell, heard: &Heard<H>) -> Result<(), &'static str> {
    let Heard { decision, said, binding, policy_denied, held } = heard;
    let holds = |invariant: bool, name| if invariant { Ok(()) } else { Err(name) };
    let said = |axis: Axis| said[axis.index()];
    let axes = Denier::ALL.into_iter().filter_map(|denier| Some((denier, denier.axis()?)));
    for (denier, axis) in axes {
        let asked = match binding {
            _ if !cell.has(denier) => false,
            Some(binding) => axis <= *binding,
            None => !policy_denied || axis == Axis::Concurrency,
        };
        holds(said(axis).is_some() == asked, "an axis was asked that should not have been, or was not")?;
        let allowed = said(axis).is_none_or(|decision| decision.allowed);
        holds(allowed == (*binding != Some(axis)), "the name disagrees with what the axes said")?;
    }
    holds(held.is_some() == decision.allowed, "a permit is proof of admission")?;
    holds(
        decision.allowed == (binding.is_none() && !policy_denied),
        "denied by no one, or allowed all the same",
    )?;
    holds(binding.is_none() || !policy_denied, "denied by the price and by an axis")?;
    let fold = || Axis::ALL.into_iter().filter_map(said).fold(ALLOW_FULL, combine);
    let own = match binding {
        _ if *policy_denied => return Ok(()),
        Some(axis) => said(*axis),
        None => Some(fold()),
    };
    holds(own == Some(*decision), "the answer is neither the denier's own nor the fold")
}
