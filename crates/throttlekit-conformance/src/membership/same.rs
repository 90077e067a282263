//! A store of membership records compared with a plain map, response by response.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{KeySpace, MembershipRecord, MembershipStore, Store, StoreError, Swapped};

use super::scenario::{KEYS, MembershipOperation, MembershipScenario};
use super::seeded::{MembershipBug, SeededMembership};
use crate::invariants::Violation;
use crate::runner::{self, Played, Tally};
use crate::stores::policy_name;

/// Counts of comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MembershipReport {
    /// Scenarios run.
    pub traces: u64,
    /// Responses compared.
    pub answers: u64,
    /// Completed swaps.
    pub swapped: u64,
    /// Swaps that found another version.
    pub newer: u64,
}

impl MembershipReport {
    /// Adds both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            traces: self.traces + other.traces,
            answers: self.answers + other.answers,
            swapped: self.swapped + other.swapped,
            newer: self.newer + other.newer,
        }
    }
}

/// Runs the scenarios of these seeds against a store. Stops at the first violation.
///
/// `make` creates a store that reads the given clock; all that it creates may share one engine, since each scenario has
/// keys of its own.
pub async fn examine_membership<R, M, F>(make: M, seeds: Range<u64>) -> Result<MembershipReport, Violation>
where
    R: MembershipStore + Store,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, StoreError>> + Send + 'static,
{
    runner::examine::<MembershipScenario, R, _, _>(make, seeds).await
}

/// Returns the number of scenarios until the check finds a seeded bug, if `scenarios_max` are enough.
pub async fn find_membership_bug(bug: MembershipBug, scenarios_max: u64) -> Option<u64> {
    let make = move |clock| async move { Ok(SeededMembership::new(clock, bug)) };
    examine_membership(make, 0..scenarios_max).await.err().map(|violation| violation.seed + 1)
}

impl<R: MembershipStore + Store> Played<R> for MembershipScenario {
    type Report = MembershipReport;

    fn of(seed: u64) -> Self {
        Self::roll(seed)
    }

    fn shorter(&self) -> Vec<Self> {
        self.smaller().collect()
    }

    async fn play(&self, store: &R, clock: &ManualClock) -> Result<MembershipReport, String> {
        play(store, clock, self).await
    }
}

impl Tally for MembershipReport {
    fn plus(self, other: Self) -> Self {
        Self::plus(self, other)
    }
}

/// The expected value of each key, implemented independently from the specification of a swap.
#[derive(Default)]
struct Model(HashMap<String, (u64, Vec<u8>)>);

impl Model {
    fn load(&self, key: &str, now: Timestamp) -> MembershipRecord {
        let (version, bytes) = self.0.get(key).cloned().unwrap_or_default();
        MembershipRecord { bytes, version, now }
    }

    fn swap(&mut self, key: &str, version: u64, bytes: &[u8], now: Timestamp) -> Swapped {
        let lies = self.load(key, now);
        if lies.version != version {
            return Swapped::Newer(lies);
        }
        self.0.insert(key.into(), (now.as_micros().max(version + 1), bytes.to_vec()));
        Swapped::Done
    }
}

/// Runs one scenario and cleans up. Returns the first difference as an error.
async fn play<R: MembershipStore + Store>(
    store: &R,
    clock: &ManualClock,
    scenario: &MembershipScenario,
) -> Result<MembershipReport, String> {
    let policy = policy_name(scenario.seed);
    let keys: Vec<String> = (0..KEYS).map(|n| KeySpace::membership("tk", &format!("{policy} {n}"))).collect();
    let played = play_on(store, &keys, clock, scenario).await;
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    store.reset(&names).await.map_err(|error| error.to_string())?;
    played
}

async fn play_on<R: MembershipStore + Store>(
    store: &R,
    keys: &[String],
    clock: &ManualClock,
    scenario: &MembershipScenario,
) -> Result<MembershipReport, String> {
    let (mut model, mut seen) = (Model::default(), vec![vec![0]; KEYS]);
    let mut report = MembershipReport { traces: 1, ..MembershipReport::default() };
    clock.set(scenario.start);
    for (index, operation) in scenario.operations.iter().enumerate() {
        let now = clock.now();
        let (key, version, bytes, keeps): (usize, u64, &[u8], Duration) = match operation {
            MembershipOperation::Advance(by) => {
                clock.advance(*by);
                continue;
            }
            MembershipOperation::StepBack(by) => {
                clock.set(Timestamp::from_nanos(now.as_nanos().saturating_sub(by.as_nanos() as u64)));
                continue;
            }
            MembershipOperation::Reset(key) => {
                store.reset(&[&keys[*key]]).await.map_err(|error| error.to_string())?;
                model.0.remove(&keys[*key]);
                continue;
            }
            MembershipOperation::Load(key) => {
                let (want, got) = (model.load(&keys[*key], now), store.load(&keys[*key]).await);
                seen[*key].push(want.version);
                report.answers += 1;
                same(index, &Ok(want), &got)?;
                continue;
            }
            MembershipOperation::Swap { key, ago, bytes, keeps } => {
                let versions = &seen[*key];
                (*key, versions[versions.len().saturating_sub(1 + ago)], bytes, *keeps)
            }
            MembershipOperation::Guess(key, version) => (*key, *version, b"guess", Duration::from_secs(60)),
        };
        let want = model.swap(&keys[key], version, bytes, now);
        report.answers += 1;
        match &want {
            Swapped::Done => report.swapped += 1,
            Swapped::Newer(_) => report.newer += 1,
        }
        same(index, &Ok(want), &store.swap(&keys[key], version, bytes, keeps).await)?;
    }
    Ok(report)
}

fn same<T: PartialEq + std::fmt::Debug>(
    index: usize,
    want: &Result<T, StoreError>,
    got: &Result<T, StoreError>,
) -> Result<(), String> {
    crate::check::ensure(want == got, || format!("at operation {index}\n  want {want:?}\n  got  {got:?}"))
}
