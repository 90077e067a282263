//! Pools with a seeded bug, which show that the check can fail.

use std::collections::HashMap;

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{RegionGrant, RegionRequest, RegionStore, StoreError};
use throttlekit_core::fair::Weight;
use throttlekit_core::fair::pool::{Level, Part, Pool, PoolGrant, PoolRequest, PoolSnapshot, PoolState};
use throttlekit_core::rate::{Rule, State};

crate::bugs! {
    /// The bug of a [`SeededPool`].
    pub enum PoolBug {
        FirstComeFirstServed: "Grants are first come, first served.",
        ShareInDoubles: "Shares are computed in doubles.",
        DividesFirst: "The share divides before it multiplies.",
        GrantsNotCounted: "Grants are not counted.",
        SharesFromTheWholeLimit: "Shares are parts of the whole limit, whatever was granted.",
        SharesOnly: "What others were granted beyond their share is not counted.",
        OwnShareTwice: "The unused share of a region counts twice for it.",
        RoundingToOne: "A region is granted the unit that rounding left over.",
        WeightKept: "A region keeps its first weight.",
        WindowByClock: "A clock that steps back starts an earlier window.",
        RegionsOutliveTheWindow: "Regions stay registered in the next window.",
        AllOrNothing: "A grant is made in full or not at all.",
        LivesAWindow: "Every grant lives for a whole window.",
    }
}

/// A pool in process with one bug.
#[derive(Debug)]
pub struct SeededPool {
    clock: ManualClock,
    bug: PoolBug,
    states: Mutex<HashMap<String, PoolState>>,
}

impl SeededPool {
    /// Creates an empty one.
    pub fn new(clock: ManualClock, bug: PoolBug) -> Self {
        Self { clock, bug, states: Mutex::default() }
    }
}

impl RegionStore for SeededPool {
    async fn grant(&self, ask: &RegionRequest<'_>) -> Result<RegionGrant, StoreError> {
        let (pool, now) = (ask.pool()?, self.clock.now());
        let mut states = self.states.lock();
        let state = states.entry(ask.key.into()).or_default();
        Ok(RegionGrant { now, grant: self.bug.grant(&pool, state, ask.ask(), now) })
    }
}

impl PoolBug {
    /// [`Pool::grant`] with this bug.
    pub fn grant(
        self,
        pool: &Pool,
        state: &mut PoolState,
        ask: PoolRequest<'_>,
        now: Timestamp,
    ) -> PoolGrant {
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

    fn sight(self, pool: &Pool, state: &PoolState, region: &str, own: Part) -> PoolSnapshot {
        let units = pool.limit().units();
        let level = Level::of(units, state.regions.values());
        let weights: u64 = state.regions.values().map(|part| part.weight.get()).sum();
        let share = |weight: Weight| -> u64 {
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
        let others: u64 = others.map(|(_, part)| taken(part)).sum();
        match self {
            Self::FirstComeFirstServed => {
                PoolSnapshot { ends: state.ends, held: own.granted, share: u64::MAX, others }
            }
            Self::OwnShareTwice => {
                let others = others.saturating_sub(share(own.weight).saturating_sub(own.granted));
                PoolSnapshot { ends: state.ends, held: own.granted, share: share(own.weight), others }
            }
            _ => PoolSnapshot { ends: state.ends, held: own.granted, share: share(own.weight), others },
        }
    }
}
