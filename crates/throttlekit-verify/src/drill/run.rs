//! Runs: concurrent calls, interrupted anywhere, and ended in every way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::guard::Ending;
use throttlekit::{Call, SharedPermit};
use tokio::task::JoinSet;

use super::bugs::DrillBug;
use super::interrupt::Interrupt;
use super::rig::{ALL, Layout, Rig, TENANTS};
use crate::guard::panic_with;
use throttlekit_conformance::Dice;
use throttlekit_conformance::invariants::Violation;

/// Concurrent runs: each waits for its retries.
const AT_ONCE: u64 = 512;
const CALLS_MAX: u64 = 24;
const CALLS_AT_ONCE: usize = 4;
const CHUNKS_MAX: u64 = 6;
const CHUNK_MAX: u64 = 30;
const ESTIMATE_MAX: u64 = 60;
/// A future is dropped after fewer polls than this, one in [`INTERRUPT_ONE_IN`].
const POLLS: u64 = 8;
const INTERRUPT_ONE_IN: u64 = 4;
/// The time limit of settlements, retries included; and the one where a seeded bug never settles.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_SEEDED: Duration = Duration::from_secs(2);

/// Counts over runs whose ledgers were exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drilled {
    /// Runs.
    pub runs: u64,
    /// Calls that were made.
    pub calls: u64,
    /// Calls that were admitted.
    pub admitted: u64,
    /// Futures that were dropped before completion: requests, debits, settlements.
    pub interrupted: u64,
    /// Permits dropped by a panic.
    pub panicked: u64,
    /// Tokens that were counted.
    pub tokens: u64,
    /// Calls to stores.
    pub store_calls: u64,
    /// Calls that failed.
    pub faults: u64,
}

impl Drilled {
    fn plus(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            calls: self.calls + other.calls,
            admitted: self.admitted + other.admitted,
            interrupted: self.interrupted + other.interrupted,
            panicked: self.panicked + other.panicked,
            tokens: self.tokens + other.tokens,
            store_calls: self.store_calls + other.store_calls,
            faults: self.faults + other.faults,
        }
    }
}

/// The counts of a running run.
#[derive(Default)]
struct Books {
    calls: AtomicU64,
    admitted: [AtomicU64; 2],
    tokens: [AtomicU64; 2],
    interrupted: AtomicU64,
    panicked: AtomicU64,
}

/// Runs these seeds. Stops at the first run that leaks a slot or whose ledger is not exact. `progress`
/// receives the number of finished runs.
pub async fn drill(
    seeds: std::ops::Range<u64>,
    bug: Option<DrillBug>,
    progress: impl Fn(u64),
) -> Result<Drilled, Violation> {
    let (mut running, mut next, mut sum) = (JoinSet::new(), seeds.start, Drilled::default());
    loop {
        while next < seeds.end && (running.len() as u64) < AT_ONCE {
            running.spawn(one_run(next, bug));
            next += 1;
        }
        let Some(ended) = running.join_next().await else { return Ok(sum) };
        sum = sum.plus(ended.expect("a run does not panic")?);
        progress(sum.runs);
    }
}

/// Returns the first seed below `runs` at which a seeded bug is found.
pub async fn find(bug: DrillBug, runs: u64) -> Option<Violation> {
    drill(0..runs, Some(bug), |_| {}).await.err()
}

async fn one_run(seed: u64, bug: Option<DrillBug>) -> Result<Drilled, Violation> {
    let mut dice = Dice::new(seed);
    let rig = Arc::new(Rig::of(&mut dice, bug));
    let books = Arc::new(Books::default());
    let patience = if bug.is_some() { PATIENCE_SEEDED } else { PATIENCE };
    let calls = dice.between(4, CALLS_MAX);
    let mut under_way = JoinSet::new();
    for _ in 0..calls {
        if under_way.len() >= CALLS_AT_ONCE {
            under_way.join_next().await;
        }
        let (rig, books, dice) = (rig.clone(), books.clone(), Dice::new(dice.roll()));
        under_way.spawn(one_call(rig, books, dice, bug));
    }
    while under_way.join_next().await.is_some() {}
    let wrong = |counterexample: String| Violation {
        seed,
        counterexample: format!("{:?}: {counterexample}", rig.layout),
    };
    settled(&rig, &books, patience).await.map_err(wrong)?;
    vacated(&rig, patience).await.map_err(wrong)?;
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let (store_calls, faults) = rig.calls();
    Ok(Drilled {
        runs: 1,
        calls: read(&books.calls),
        admitted: books.admitted.iter().map(read).sum(),
        interrupted: read(&books.interrupted),
        panicked: read(&books.panicked),
        tokens: books.tokens.iter().map(read).sum(),
        store_calls,
        faults,
    })
}

/// Waits until all background work is settled and the ledgers are exact, then checks once more. Any remaining
/// difference is an error.
async fn settled(rig: &Rig, books: &Books, patience: Duration) -> Result<(), String> {
    let (mut good, mut waited, mut pause) = (0, Duration::ZERO, Duration::from_millis(4));
    while good < 2 {
        tokio::time::sleep(pause).await;
        waited += pause;
        pause = (pause * 3 / 2).min(Duration::from_millis(500));
        let stats = rig.policy.stats();
        let judged = judge(rig, books).await;
        if stats.settlements_unknown > 0 || stats.settlements_lost > 0 {
            return Err(format!("settlements were lost: {stats:?}"));
        }
        good = if stats.settlements_waiting == 0 && judged.is_ok() { good + 1 } else { 0 };
        if waited > patience {
            return judged.and(Err(format!("not settled: {stats:?}")));
        }
    }
    Ok(())
}

/// Waits until every slot is free.
async fn vacated(rig: &Rig, patience: Duration) -> Result<(), String> {
    let (mut waited, mut pause) = (Duration::ZERO, Duration::from_millis(4));
    loop {
        let leaked = rig.slots_leaked().await;
        if leaked == 0 {
            return Ok(());
        }
        if waited > patience {
            return Err(format!("{leaked} slots leaked"));
        }
        tokio::time::sleep(pause).await;
        waited += pause;
        pause *= 2;
    }
}

async fn judge(rig: &Rig, books: &Books) -> Result<(), String> {
    let read = |counters: &[AtomicU64; 2]| counters.each_ref().map(|counter| counter.load(Relaxed));
    let (admitted, tokens) = (read(&books.admitted), read(&books.tokens));
    let mut wrong: Vec<String> = Vec::new();
    for (place, tenant) in TENANTS.into_iter().enumerate() {
        wrong.extend(rig.beside("calls", tenant, admitted[place]).await);
        wrong.extend(rig.beside("tokens", tenant, tokens[place]).await);
    }
    if rig.layout == Layout::TwoBudgets {
        wrong.extend(rig.beside(ALL, ALL, tokens.iter().sum()).await);
    }
    wrong.extend(rig.shares_beside(tokens.iter().sum()));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

async fn one_call(rig: Arc<Rig>, books: Arc<Books>, mut dice: Dice, bug: Option<DrillBug>) {
    let place = dice.below(2) as usize;
    let estimate = dice.between(1, ESTIMATE_MAX);
    books.calls.fetch_add(1, Relaxed);
    let others: &[&[u8]] = &[ALL.as_bytes()];
    let call = Call::by(TENANTS[place]).and(others).cost(estimate);
    let Some(answer) = maybe(&mut dice, &books, rig.policy.admit(call)).await else { return };
    let Some(permit) = answer.ok().and_then(|admission| admission.permit) else { return };
    books.admitted[place].fetch_add(1, Relaxed);
    if bug == Some(DrillBug::PermitForgotten) && dice.once_in(32) {
        return std::mem::forget(permit);
    }
    let used = work(permit, estimate, &mut dice, &books).await;
    let told = if bug == Some(DrillBug::CountedTwice) && dice.once_in(32) { 2 * used } else { used };
    books.tokens[place].fetch_add(told, Relaxed);
}

/// Counts chunks, or all at once, or nothing, then ends in some way. Returns what must stay charged.
async fn work(mut permit: SharedPermit, estimate: u64, dice: &mut Dice, books: &Books) -> u64 {
    let (mut used, mut counted) = (0, false);
    if dice.once_in(4) {
        (used, counted) = (dice.between(0, estimate), true);
        permit.settle(used);
    } else {
        for _ in 0..dice.below(CHUNKS_MAX) {
            let tokens = dice.between(1, CHUNK_MAX);
            match maybe(dice, books, permit.debit(tokens)).await {
                Some(Ok(decision)) if decision.allowed => (used, counted) = (used + tokens, true),
                Some(_) => break,
                None => {}
            }
            tokio::task::yield_now().await;
        }
    }
    let ending = dice.pick(&[Ending::Success, Ending::Dropped, Ending::Ignored]);
    match dice.below(6) {
        0 => drop(permit),
        1 => {
            books.panicked.fetch_add(1, Relaxed);
            panic_with(permit);
        }
        2 => {
            let ended = maybe(dice, books, permit.close(ending)).await;
            // Dropped before its first poll, it has not received the outcome of the work.
            if ended.is_none() && !counted {
                return if ending == Ending::Success { estimate } else { 0 };
            }
            return what_stays(counted, used, estimate, ending);
        }
        _ => {
            match ending {
                Ending::Success => permit.success(),
                Ending::Dropped => permit.dropped(),
                Ending::Ignored => permit.ignored(),
            }
            return what_stays(counted, used, estimate, ending);
        }
    }
    what_stays(counted, used, estimate, Ending::Ignored)
}

fn what_stays(counted: bool, used: u64, estimate: u64, ending: Ending) -> u64 {
    match ending {
        _ if counted => used,
        Ending::Success => estimate,
        Ending::Dropped | Ending::Ignored => 0,
    }
}

/// Returns the output of a future that is now and then dropped after at least one poll.
async fn maybe<F: Future>(dice: &mut Dice, books: &Books, future: F) -> Option<F::Output> {
    if !dice.once_in(INTERRUPT_ONE_IN) {
        return Some(future.await);
    }
    let done = Interrupt::after(dice.between(1, POLLS), future).await;
    if done.is_none() {
        books.interrupted.fetch_add(1, Relaxed);
    }
    done
}
