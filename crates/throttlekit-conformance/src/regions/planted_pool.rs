//! Pools with a deliberate bug, to show that the examination can fail.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use throttlekit::store::{RegionAsk, RegionGrant, RegionPool, StoreError};
use throttlekit::{Clock, Cost, ManualClock, Timestamp};
use throttlekit_core::fair::Weight;
use throttlekit_core::fair::pool::{Grant, Level, Part, Pool, PoolAsk, PoolState, Sight};
use throttlekit_core::rate::{Rule, State};

/// What is wrong with a [`PlantedPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PoolBug {
    FirstComeFirstServed,
    ShareInDoubles,
    DividesFirst,
    GrantsNotCounted,
    SharesFromTheWholeLimit,
    SharesOnly,
    OwnShareTwice,
    RoundingToOne,
    WeightKept,
    WindowByClock,
    RegionsOutliveTheWindow,
    AllOrNothing,
    LivesAWindow,
}

/// Every bug with its name.
pub const POOL_BUGS: [(&str, PoolBug); 13] = [
    ("first come, first served", PoolBug::FirstComeFirstServed),
    ("share in doubles", PoolBug::ShareInDoubles),
    ("divides first", PoolBug::DividesFirst),
    ("grants not counted", PoolBug::GrantsNotCounted),
    ("shares from the whole limit", PoolBug::SharesFromTheWholeLimit),
    ("shares only", PoolBug::SharesOnly),
    ("own share twice", PoolBug::OwnShareTwice),
    ("rounding to one", PoolBug::RoundingToOne),
    ("weight kept", PoolBug::WeightKept),
    ("window by clock", PoolBug::WindowByClock),
    ("regions outlive the window", PoolBug::RegionsOutliveTheWindow),
    ("all or nothing", PoolBug::AllOrNothing),
    ("lives a window", PoolBug::LivesAWindow),
];

/// A pool in process with one bug.
#[derive(Debug)]
pub struct PlantedPool {
    clock: ManualClock,
    bug: PoolBug,
    states: Mutex<HashMap<String, PoolState>>,
}

impl PlantedPool {
    /// An empty one.
    pub fn new(clock: ManualClock, bug: PoolBug) -> Self {
        Self { clock, bug, states: Mutex::default() }
    }
}

impl RegionPool for PlantedPool {
    async fn grant(&self, ask: &RegionAsk<'_>) -> Result<RegionGrant, StoreError> {
        let (pool, now) = (ask.pool()?, self.clock.now());
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.entry(ask.key.into()).or_default();
        Ok(RegionGrant { now, grant: self.bug.grant(&pool, state, ask.ask(), now) })
    }
}

impl PoolBug {
    /// [`Pool::grant`] with this bug.
    pub(super) fn grant(self, pool: &Pool, state: &mut PoolState, ask: PoolAsk<'_>, now: Timestamp) -> Grant {
        let ends = pool.limit().decide(&State::Fresh, 0, now).reset_at;
        if now >= state.ends || (self == Self::WindowByClock && ends != state.ends) {
            state.ends = ends;
            state.regions.values_mut().for_each(|part| part.granted = 0);
            if self != Self::RegionsOutliveTheWindow {
                state.regions.clear();
            }
        }
        let part = state.regions.entry(ask.region.into()).or_insert(Part { weight: ask.weight, granted: 0 });
        if self != Self::WeightKept {
            part.weight = ask.weight;
        }
        let own = *part;
        let sight = self.sight(pool, state, ask.region, own);
        let mut grant = pool.word(&sight, ask.wants, now);
        match self {
            Self::RoundingToOne => {
                let room = pool.limit().units().saturating_sub(sight.others + own.granted);
                grant.granted = ask.wants.min(room);
            }
            Self::AllOrNothing if grant.granted < ask.wants => grant.granted = 0,
            Self::LivesAWindow => grant.lives = pool.limit().period(),
            _ => {}
        }
        if let Some(part) = state.regions.get_mut(ask.region)
            && self != Self::GrantsNotCounted
        {
            part.granted += grant.granted;
        }
        grant
    }

    fn sight(self, pool: &Pool, state: &PoolState, region: &str, own: Part) -> Sight {
        let units = pool.limit().units();
        let level = Level::of(units, state.regions.values());
        let weights: u64 = state.regions.values().map(|part| part.weight.get()).sum();
        let share = |weight: Weight| -> Cost {
            let weight = weight.get();
            match self {
                Self::FirstComeFirstServed => 0,
                Self::ShareInDoubles => (weight as f64 * units as f64 / weights as f64) as u64,
                Self::DividesFirst => units / weights * weight,
                Self::SharesFromTheWholeLimit => {
                    (u128::from(weight) * u128::from(units) / u128::from(weights)) as u64
                }
                _ => level.share(Weight::new(weight).unwrap_or(Weight::ONE)),
            }
        };
        let others = state.regions.iter().filter(|(name, _)| &***name != region);
        let taken = |part: &Part| match self {
            Self::SharesOnly => share(part.weight),
            _ => part.granted.max(share(part.weight)),
        };
        let others: Cost = others.map(|(_, part)| taken(part)).sum();
        match self {
            Self::FirstComeFirstServed => {
                Sight { ends: state.ends, held: own.granted, share: Cost::MAX, others }
            }
            Self::OwnShareTwice => {
                let others = others.saturating_sub(share(own.weight).saturating_sub(own.granted));
                Sight { ends: state.ends, held: own.granted, share: share(own.weight), others }
            }
            _ => Sight { ends: state.ends, held: own.granted, share: share(own.weight), others },
        }
    }
}
