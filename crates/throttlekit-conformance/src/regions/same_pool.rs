//! A pool on an engine compared with the pure rule, grant by grant.

use std::fmt::Write;
use std::ops::Range;

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::store::{KeySpace, RegionRequest, RegionStore, StoreError};
use throttlekit_core::fair::pool::PoolState;
use throttlekit_core::rate::shared::ScriptEncoding;

use super::pool_scenario::{PoolOperation, PoolScenario};
use super::seeded_pool::{PoolBug, SeededPool};
use crate::invariants::Violation;
use crate::runner::{self, Played, Tally};
use crate::stores::policy_name;

/// Counts of comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolReport {
    /// Scenarios run.
    pub traces: u64,
    /// Grants compared.
    pub grants: u64,
    /// Of them, those of fewer units than requested, but some.
    pub partial: u64,
    /// Of them, those of none although some were requested.
    pub refused: u64,
    /// Windows that followed another of the same pool.
    pub windows: u64,
}

impl PoolReport {
    /// Adds both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            traces: self.traces + other.traces,
            grants: self.grants + other.grants,
            partial: self.partial + other.partial,
            refused: self.refused + other.refused,
            windows: self.windows + other.windows,
        }
    }
}

/// Runs the scenarios of these seeds against a pool. Stops at the first violation.
///
/// `make` creates a pool that reads the given clock; all that it creates may share one engine, since each scenario has
/// a key of its own. State that an engine expires by its own time must last longer than a scenario takes.
pub async fn examine_pool<P, M, F>(make: M, seeds: Range<u64>) -> Result<PoolReport, Violation>
where
    P: RegionStore,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<P, StoreError>> + Send + 'static,
{
    runner::examine::<PoolScenario, P, _, _>(make, seeds).await
}

/// Returns the number of scenarios until the check finds a seeded bug, if `scenarios_max` are enough.
pub async fn find_pool_bug(bug: PoolBug, scenarios_max: u64) -> Option<u64> {
    let make = move |clock| async move { Ok(SeededPool::new(clock, bug)) };
    examine_pool(make, 0..scenarios_max).await.err().map(|violation| violation.seed + 1)
}

impl<P: RegionStore> Played<P> for PoolScenario {
    type Report = PoolReport;

    fn of(seed: u64) -> Self {
        Self::roll(seed)
    }

    fn shorter(&self) -> Vec<Self> {
        self.smaller().collect()
    }

    async fn play(&self, pool: &P, clock: &ManualClock) -> Result<PoolReport, String> {
        play(pool, clock, self).await
    }
}

impl Tally for PoolReport {
    fn plus(self, other: Self) -> Self {
        Self::plus(self, other)
    }
}

/// Runs one scenario. Returns the first difference as an error.
async fn play(
    pool: &impl RegionStore,
    clock: &ManualClock,
    scenario: &PoolScenario,
) -> Result<PoolReport, String> {
    let key = KeySpace::pool("tk", &policy_name(scenario.seed));
    let forms = scenario.limits.map(|limit| ScriptEncoding::of(&limit).expect("stores can keep it"));
    let (mut form, mut state) = (&forms[0], PoolState::default());
    let mut report = PoolReport { traces: 1, ..PoolReport::default() };
    clock.set(scenario.start);
    for (index, operation) in scenario.operations.iter().enumerate() {
        match *operation {
            PoolOperation::Advance(by) => clock.advance(by),
            PoolOperation::StepBack(by) => {
                let back = clock.now().as_nanos().saturating_sub(by.as_nanos() as u64);
                clock.set(throttlekit::rate::Timestamp::from_nanos(back));
            }
            PoolOperation::Swap => {
                form = if std::ptr::eq(form, &raw const forms[0]) { &forms[1] } else { &forms[0] }
            }
            PoolOperation::Ask { region, weight, wants } => {
                let name = KeySpace::part(region.as_bytes());
                let ask = RegionRequest { key: &key, form, region: &name, weight, wants };
                let (now, ended) = (clock.now(), state.ends);
                let rule = ask.pool().map_err(|error| error.to_string())?;
                let want = rule.grant(&mut state, ask.ask(), now).expect("few regions");
                let got = pool.grant(&ask).await;
                report.grants += 1;
                report.partial += u64::from(want.granted > 0 && want.granted < wants);
                report.refused += u64::from(want.granted == 0 && wants > 0);
                report.windows +=
                    u64::from(ended > throttlekit::rate::Timestamp::EPOCH && ended != state.ends);
                if !got.as_ref().is_ok_and(|got| got.grant == want && got.now == now) {
                    let mut counterexample = format!("at operation {index}\n  want {want:?}\n  got  {got:?}");
                    let _ = write!(counterexample, "\n  of {state:?}");
                    return Err(counterexample);
                }
            }
        }
    }
    Ok(report)
}
