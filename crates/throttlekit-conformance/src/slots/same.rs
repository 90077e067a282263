//! Slots on an engine compared with the reference model, response by response.

use std::fmt::Debug;
use std::ops::Range;

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{
    HeartbeatOutcome, KeySpace, LeaseId, Owner, SlotLease, SlotRequest, SlotStep, SlotStore, StoreError,
};

use super::book::{Book, SeededSlots, SlotBug};
use super::scenario::{SlotOperation, SlotScenario};
use crate::invariants::Violation;
use crate::runner::{self, Played, Tally};
use crate::stores::policy_name;

/// Counts of comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotReport {
    /// Scenarios run.
    pub traces: u64,
    /// Responses compared.
    pub answers: u64,
    /// Of them, admitted requests.
    pub admitted: u64,
    /// Of them, denied requests.
    pub denied: u64,
    /// Of them, heartbeats for a held lease.
    pub held: u64,
    /// Of them, heartbeats for a lease that was not held.
    pub lost: u64,
    /// Of them, releases of a held lease.
    pub freed: u64,
    /// Of them, releases of a lease that was not held.
    pub refused: u64,
}

impl SlotReport {
    /// Adds both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            traces: self.traces + other.traces,
            answers: self.answers + other.answers,
            admitted: self.admitted + other.admitted,
            denied: self.denied + other.denied,
            held: self.held + other.held,
            lost: self.lost + other.lost,
            freed: self.freed + other.freed,
            refused: self.refused + other.refused,
        }
    }

    /// Returns whether every kind of response occurred.
    pub fn saw_all(&self) -> bool {
        [self.admitted, self.denied, self.held, self.lost, self.freed, self.refused].iter().all(|&n| n > 0)
    }
}

/// Runs the scenarios of these seeds against a store of slots. Stops at the first violation.
///
/// `make` creates a store that reads the given clock; all that it creates may share one engine, since each scenario has
/// a key of its own. State that an engine expires by its own time must last longer than a scenario takes.
pub async fn examine_slots<S, M, F>(make: M, seeds: Range<u64>) -> Result<SlotReport, Violation>
where
    S: SlotStore,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    runner::examine::<SlotScenario, S, _, _>(make, seeds).await
}

/// Returns the number of scenarios until the check finds a seeded bug, if `scenarios_max` are enough.
pub async fn find_slot_bug(bug: SlotBug, scenarios_max: u64) -> Option<u64> {
    let make = move |clock| async move { Ok(SeededSlots::new(clock, bug)) };
    examine_slots(make, 0..scenarios_max).await.err().map(|violation| violation.seed + 1)
}

impl<S: SlotStore> Played<S> for SlotScenario {
    type Report = SlotReport;

    fn of(seed: u64) -> Self {
        Self::roll(seed)
    }

    fn shorter(&self) -> Vec<Self> {
        self.smaller().collect()
    }

    async fn play(&self, store: &S, clock: &ManualClock) -> Result<SlotReport, String> {
        play(store, clock, self).await
    }
}

impl Tally for SlotReport {
    fn plus(self, other: Self) -> Self {
        Self::plus(self, other)
    }
}

/// Runs one scenario. Returns the first difference as an error.
async fn play(
    store: &impl SlotStore,
    clock: &ManualClock,
    scenario: &SlotScenario,
) -> Result<SlotReport, String> {
    let key = KeySpace::slots("tk", &policy_name(scenario.seed)).key(b"key", b"key");
    let (mut book, mut report) = (Book::default(), SlotReport { traces: 1, ..SlotReport::default() });
    clock.set(scenario.start);
    for (index, operation) in scenario.operations.iter().enumerate() {
        let told = act(store, clock, &key, &mut book, operation, &mut report).await;
        told.map_err(|counterexample| format!("at operation {index}\n  {counterexample}\n  of {book:?}"))?;
    }
    Ok(report)
}

async fn act(
    store: &impl SlotStore,
    clock: &ManualClock,
    key: &str,
    book: &mut Book,
    operation: &SlotOperation,
    report: &mut SlotReport,
) -> Result<(), String> {
    let now = clock.now();
    let leases = |leases: &[u128], owner: u128| -> Vec<SlotLease<'_>> {
        leases.iter().map(|&lease| SlotLease { key, lease: LeaseId(lease), owner: Owner(owner) }).collect()
    };
    match operation {
        SlotOperation::Advance(by) => clock.advance(*by),
        SlotOperation::StepBack(by) => {
            clock.set(Timestamp::from_nanos(now.as_nanos().saturating_sub(by.as_nanos() as u64)));
        }
        &SlotOperation::Acquire { lease, owner, most, lives } => {
            let ask = SlotRequest { key, lease: LeaseId(lease), owner: Owner(owner), most, lives };
            let want = book.acquire(&ask, now);
            let admitted = u64::from(matches!(want.step, SlotStep::Admit { .. }));
            *report = SlotReport {
                answers: report.answers + 1,
                admitted: report.admitted + admitted,
                denied: report.denied + 1 - admitted,
                ..*report
            };
            same(&Ok(want), &store.acquire(&ask).await)?;
        }
        SlotOperation::Heartbeat { leases: names, owner, lives } => {
            let leases = leases(names, *owner);
            let want: Vec<_> = leases.iter().map(|at| Ok(book.heartbeat(at, *lives, now))).collect();
            let held =
                want.iter().filter(|heartbeat| matches!(heartbeat, Ok(HeartbeatOutcome::Held(_)))).count()
                    as u64;
            let all = want.len() as u64;
            *report = SlotReport {
                answers: report.answers + all,
                held: report.held + held,
                lost: report.lost + all - held,
                ..*report
            };
            same(&want, &store.heartbeat(&leases, *lives).await)?;
        }
        SlotOperation::Release { leases: names, owner } => {
            let leases = leases(names, *owner);
            let want: Vec<_> = leases.iter().map(|at| Ok(book.release(at, now))).collect();
            let freed = want.iter().filter(|freed| **freed == Ok(true)).count() as u64;
            let all = want.len() as u64;
            *report = SlotReport {
                answers: report.answers + all,
                freed: report.freed + freed,
                refused: report.refused + all - freed,
                ..*report
            };
            same(&want, &store.release(&leases).await)?;
        }
        SlotOperation::Look => {
            report.answers += 1;
            same(&Ok(vec![book.look(now)]), &store.occupancy(&[key]).await)?;
        }
    }
    Ok(())
}

fn same<T: PartialEq + Debug>(want: &T, got: &T) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("want {want:?}\n  got  {got:?}")) }
}
