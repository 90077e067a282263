//! A pool on an engine beside the pure rule, grant for grant.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::store::{KeySpace, RegionAsk, RegionPool, StoreError};
use throttlekit::{Clock, ManualClock};
use throttlekit_core::fair::pool::PoolState;
use throttlekit_core::rate::shared::SharedForm;
use tokio::task::JoinSet;

use super::planted_pool::{PlantedPool, PoolBug};
use super::pool_world::{PoolOperation, PoolWorld};
use crate::laws::Violation;
use crate::stores::{LANES, policy_name};

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolReport {
    /// Worlds played.
    pub timelines: u64,
    /// Grants compared.
    pub grants: u64,
    /// Of them, those of fewer units than were wanted, but some.
    pub partial: u64,
    /// Of them, those of none where some were wanted.
    pub refused: u64,
    /// Windows that followed another of the same pool.
    pub rolls: u64,
}

impl PoolReport {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            timelines: self.timelines + other.timelines,
            grants: self.grants + other.grants,
            partial: self.partial + other.partial,
            refused: self.refused + other.refused,
            rolls: self.rolls + other.rolls,
        }
    }
}

/// Plays the worlds of these seeds to a pool. The first violation ends it.
///
/// `make` makes a pool that reads the clock given; all it makes may share one engine, since each world has a key of its
/// own. What an engine forgets by its own time must last longer than a world takes.
pub async fn examine_pool<P, M, F>(make: M, seeds: Range<u64>) -> Result<PoolReport, Violation>
where
    P: RegionPool,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<P, StoreError>> + Send + 'static,
{
    let (make, next) = (Arc::new(make), Arc::new(AtomicU64::new(seeds.start)));
    let mut running = JoinSet::new();
    for _ in 0..LANES.min(seeds.end.saturating_sub(seeds.start)) {
        running.spawn(lane(make.clone(), next.clone(), seeds.end));
    }
    let (mut report, mut first) = (PoolReport::default(), None::<Violation>);
    while let Some(ended) = running.join_next().await {
        match ended.expect("a lane does not panic") {
            Ok(played) => report = report.plus(played),
            Err(violation) if first.as_ref().is_none_or(|v| violation.seed < v.seed) => {
                first = Some(violation);
            }
            Err(_) => {}
        }
    }
    first.map_or(Ok(report), Err)
}

/// How many worlds it takes until the examination finds a planted bug, if `worlds_max` are enough.
pub async fn find_pool_bug(bug: PoolBug, worlds_max: u64) -> Option<u64> {
    let make = move |clock| async move { Ok(PlantedPool::new(clock, bug)) };
    examine_pool(make, 0..worlds_max).await.err().map(|violation| violation.seed + 1)
}

async fn lane<P, M, F>(make: Arc<M>, next: Arc<AtomicU64>, end: u64) -> Result<PoolReport, Violation>
where
    P: RegionPool,
    M: Fn(ManualClock) -> F + Send + Sync,
    F: Future<Output = Result<P, StoreError>> + Send,
{
    let clock = ManualClock::default();
    let failed = |seed, story| {
        next.store(end, Relaxed);
        Violation { seed, story }
    };
    let pool =
        make(clock.clone()).await.map_err(|error| failed(0, format!("no pool to play on: {error}")))?;
    let mut report = PoolReport::default();
    loop {
        let seed = next.fetch_add(1, Relaxed);
        if seed >= end {
            return Ok(report);
        }
        let mut world = PoolWorld::roll(seed);
        match play(&pool, &clock, &world).await {
            Ok(played) => report = report.plus(played),
            Err(mut story) => {
                while let Some((smaller, told)) = fails_smaller(&pool, &clock, &world).await {
                    (world, story) = (smaller, told);
                }
                return Err(failed(seed, format!("{story}\n{world:#?}")));
            }
        }
    }
}

async fn fails_smaller(
    pool: &impl RegionPool,
    clock: &ManualClock,
    world: &PoolWorld,
) -> Option<(PoolWorld, String)> {
    for smaller in world.smaller() {
        if let Err(story) = play(pool, clock, &smaller).await {
            return Some((smaller, story));
        }
    }
    None
}

/// Plays one world; or what was told instead of what.
async fn play(pool: &impl RegionPool, clock: &ManualClock, world: &PoolWorld) -> Result<PoolReport, String> {
    let key = KeySpace::pool("tk", &policy_name(world.seed));
    let forms = world.limits.map(|limit| SharedForm::of(&limit).expect("stores can keep it"));
    let (mut form, mut state) = (&forms[0], PoolState::default());
    let mut report = PoolReport { timelines: 1, ..PoolReport::default() };
    clock.set(world.start);
    for (index, operation) in world.operations.iter().enumerate() {
        match *operation {
            PoolOperation::Advance(by) => clock.advance(by),
            PoolOperation::StepBack(by) => {
                let back = clock.now().as_nanos().saturating_sub(by.as_nanos() as u64);
                clock.set(throttlekit::Timestamp::from_nanos(back));
            }
            PoolOperation::Swap => {
                form = if std::ptr::eq(form, &raw const forms[0]) { &forms[1] } else { &forms[0] }
            }
            PoolOperation::Ask { region, weight, wants } => {
                let name = KeySpace::part(region.as_bytes());
                let ask = RegionAsk { key: &key, form, region: &name, weight, wants };
                let (now, ended) = (clock.now(), state.ends);
                let rule = ask.pool().map_err(|error| error.to_string())?;
                let want = rule.grant(&mut state, ask.ask(), now).expect("few regions");
                let got = pool.grant(&ask).await;
                report.grants += 1;
                report.partial += u64::from(want.granted > 0 && want.granted < wants);
                report.refused += u64::from(want.granted == 0 && wants > 0);
                report.rolls += u64::from(ended > throttlekit::Timestamp::EPOCH && ended != state.ends);
                if !got.as_ref().is_ok_and(|got| got.grant == want && got.now == now) {
                    let mut story = format!("at operation {index}\n  want {want:?}\n  got  {got:?}");
                    let _ = write!(story, "\n  of {state:?}");
                    return Err(story);
                }
            }
        }
    }
    Ok(report)
}
