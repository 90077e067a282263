//! Slots on an engine beside the book, answer for answer.

use std::fmt::Debug;
use std::ops::Range;

use throttlekit::store::{
    Beat, KeySpace, LeaseId, Owner, SlotAsk, SlotLease, SlotStep, SlotStore, StoreError,
};
use throttlekit::{Clock, ManualClock, Timestamp};

use super::book::{Book, SeededSlots, SlotBug};
use super::world::{SlotOperation, SlotWorld};
use crate::laws::Violation;
use crate::played::{self, Played, Tally};
use crate::stores::policy_name;

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotReport {
    /// Worlds played.
    pub timelines: u64,
    /// Answers compared.
    pub answers: u64,
    /// Of them, asks that were admitted.
    pub admitted: u64,
    /// Of them, asks that were denied.
    pub denied: u64,
    /// Of them, beats for a lease that was held.
    pub held: u64,
    /// Of them, beats for one that was not.
    pub lost: u64,
    /// Of them, releases of a lease that was held.
    pub freed: u64,
    /// Of them, releases of one that was not.
    pub refused: u64,
}

impl SlotReport {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            timelines: self.timelines + other.timelines,
            answers: self.answers + other.answers,
            admitted: self.admitted + other.admitted,
            denied: self.denied + other.denied,
            held: self.held + other.held,
            lost: self.lost + other.lost,
            freed: self.freed + other.freed,
            refused: self.refused + other.refused,
        }
    }

    /// Whether every kind of answer came up.
    pub fn saw_all(&self) -> bool {
        [self.admitted, self.denied, self.held, self.lost, self.freed, self.refused].iter().all(|&n| n > 0)
    }
}

/// Plays the worlds of these seeds to a store of slots. The first violation ends it.
///
/// `make` makes a store that reads the clock given; all it makes may share one engine, since each world has a key of its
/// own. What an engine forgets by its own time must last longer than a world takes.
pub async fn examine_slots<S, M, F>(make: M, seeds: Range<u64>) -> Result<SlotReport, Violation>
where
    S: SlotStore,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    played::examine::<SlotWorld, S, _, _>(make, seeds).await
}

/// How many worlds it takes until the examination finds a seeded bug, if `worlds_max` are enough.
pub async fn find_slot_bug(bug: SlotBug, worlds_max: u64) -> Option<u64> {
    let make = move |clock| async move { Ok(SeededSlots::new(clock, bug)) };
    examine_slots(make, 0..worlds_max).await.err().map(|violation| violation.seed + 1)
}

impl<S: SlotStore> Played<S> for SlotWorld {
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

/// Plays one world; or what was told instead of what.
async fn play(store: &impl SlotStore, clock: &ManualClock, world: &SlotWorld) -> Result<SlotReport, String> {
    let key = KeySpace::slots("tk", &policy_name(world.seed)).key(b"key", b"key");
    let (mut book, mut report) = (Book::default(), SlotReport { timelines: 1, ..SlotReport::default() });
    clock.set(world.start);
    for (index, operation) in world.operations.iter().enumerate() {
        let told = act(store, clock, &key, &mut book, operation, &mut report).await;
        told.map_err(|story| format!("at operation {index}\n  {story}\n  of {book:?}"))?;
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
            let ask = SlotAsk { key, lease: LeaseId(lease), owner: Owner(owner), most, lives };
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
        SlotOperation::Beat { leases: names, owner, lives } => {
            let leases = leases(names, *owner);
            let want: Vec<_> = leases.iter().map(|at| Ok(book.beat(at, *lives, now))).collect();
            let held = want.iter().filter(|beat| matches!(beat, Ok(Beat::Held(_)))).count() as u64;
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
