//! One budget, several regions: each is granted parts of it, and none can take what another is due.
//!
//! Regions request more as they need it. What is granted stays granted while the window lasts. What is not is due to
//! regions by weight: to those that hold less than their share of it. A region is granted up to its share at any time,
//! and beyond it only units that rounding leaves over. So a busy region cannot take what a slower one is due, and a
//! region that sends no request in a window is due nothing in it.
//!
//! The share of a region: let `left` be the limit and `weight` the sum of all weights. A region that holds more than
//! `⌊weight_r · left / weight⌋` has had its share: take its grant from `left` and its weight from `weight`, until there
//! is no such region. The result is the [`Level`], and a share is `⌊weight_r · left / weight⌋`. That is weighted
//! max-min fairness where grants cannot be revoked. Nothing is stranded when an early region took more than it would
//! have been due: the others share the rest.
//!
//! A grant belongs to one window and carries how *long* it lives, as a loan does ([`crate::lease`]); it is spent before
//! that is over on the region's own clock, and is never returned.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::time::Duration;

use super::Weight;
use crate::lease::Epoch;
use crate::rate::{Limit, LimitError, Rule, State};
use crate::{Cost, Timestamp};

/// Largest number of regions in one window. One more is rejected, and no new grants are made.
///
/// With weights of at most 2⁴⁰ their sum is at most 2⁴⁸, so that a script can divide by it exactly.
pub const REGIONS_MAX: usize = 256;

/// One budget per window for all regions. Pure: all it remembers is in the state.
///
/// ```
/// use throttlekit_core::fair::{Weight, pool::{Pool, PoolRequest, PoolState}};
/// use throttlekit_core::{Timestamp, rate::Limit};
/// use core::time::Duration;
///
/// let pool = Pool::new(Limit::fixed_window(100, Duration::from_secs(60))?)?;
/// let (mut state, now) = (PoolState::default(), Timestamp::from_millis(10_000));
/// let mut grant = |region, weight, wants| {
///     let weight = Weight::new(weight).expect("in range");
///     pool.grant(&mut state, PoolRequest { region, weight, wants }, now).expect("few regions").granted
/// };
///
/// assert_eq!(grant("us", 1, 10), 10);
/// assert_eq!(grant("eu", 3, 10), 10);
/// // However much one wants, what the other is due stays.
/// assert_eq!(grant("us", 1, 100), 15);
/// assert_eq!(grant("eu", 3, 100), 65);
/// # Ok::<(), throttlekit_core::rate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    limit: Limit,
}

/// Request of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolRequest<'a> {
    /// Its name.
    pub region: &'a str,
    /// The sum of the weights of its active tenants, from now on.
    pub weight: Weight,
    /// Number of units wanted, in addition to those granted before.
    pub wants: Cost,
}

/// State of the regions that have sent requests in this window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolState {
    /// End of the window.
    pub ends: Timestamp,
    /// Each region's weight and what it was granted.
    pub regions: BTreeMap<Box<str>, Part>,
}

/// One region's part of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Weight in its last request.
    pub weight: Weight,
    /// Units granted in this window.
    pub granted: Cost,
}

/// The response to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolGrant {
    /// Units it may spend in addition to those granted before: as many as it wants, or fewer.
    pub granted: Cost,
    /// Units it could have had in addition to these, had it wanted them.
    pub more: Cost,
    /// The window they belong to.
    pub epoch: Epoch,
    /// Lifetime, counted from the pool's instant.
    pub lives: Duration,
}

/// Error: the window has the maximum number of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TooManyRegions;

impl fmt::Display for TooManyRegions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "too many regions: {REGIONS_MAX} have used this pool in its window; let several processes share \
             one region"
        )
    }
}

impl core::error::Error for TooManyRegions {}

/// View of a pool for one region: all that its response depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolSnapshot {
    /// End of the window.
    pub ends: Timestamp,
    /// Units granted to the region so far.
    pub held: Cost,
    /// Units it is due.
    pub share: Cost,
    /// Units that all others hold or are due, whichever is more.
    pub others: Cost,
}

/// Water level of the budget: `left` units for each `weight` of the regions that have not had their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    left: Cost,
    weight: u64,
}

impl Pool {
    /// Shares the units of a window: fixed, anchored or by the calendar. Of a token budget too, beyond which nothing is
    /// granted.
    pub fn new(limit: Limit) -> Result<Self, LimitError> {
        match limit {
            Limit::Window(_) => Ok(Self { limit: limit.uncrossed() }),
            _ => Err(LimitError::NotLeasable),
        }
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Decides a request at `now`, and records what it grants.
    pub fn grant(
        &self,
        state: &mut PoolState,
        ask: PoolRequest<'_>,
        now: Timestamp,
    ) -> Result<PoolGrant, TooManyRegions> {
        self.roll(state, now);
        if state.regions.len() >= REGIONS_MAX && !state.regions.contains_key(ask.region) {
            return Err(TooManyRegions);
        }
        let part = state.regions.entry(ask.region.into()).or_insert(Part { weight: ask.weight, granted: 0 });
        part.weight = ask.weight;
        let held = part.granted;
        let grant = self.word(&self.sight(state, ask.region), ask.wants, now);
        if let Some(part) = state.regions.get_mut(ask.region) {
            part.granted = held + grant.granted;
        }
        Ok(grant)
    }

    /// Computes the response to a region with this view that wants `wants` units.
    pub fn word(&self, sight: &PoolSnapshot, wants: Cost, now: Timestamp) -> PoolGrant {
        let PoolSnapshot { ends, held, share, others } = *sight;
        // Beyond its share once, by what rounding leaves over. Otherwise one region would take all of that.
        let ceiling = if held > share { held } else { self.limit.units().saturating_sub(others) };
        let room = ceiling.saturating_sub(held);
        let granted = wants.min(room);
        PoolGrant { granted, more: room - granted, epoch: Epoch(ends.as_nanos()), lives: ends.since(now) }
    }

    /// Ends a window at its initial end, however the clock moves; then all regions start over.
    fn roll(&self, state: &mut PoolState, now: Timestamp) {
        if now >= state.ends {
            let ends = self.limit.decide(&State::Fresh, 0, now).reset_at;
            *state = PoolState { ends, regions: BTreeMap::new() };
        }
    }

    fn sight(&self, state: &PoolState, region: &str) -> PoolSnapshot {
        let level = Level::of(self.limit.units(), state.regions.values());
        let taken = |part: &Part| part.granted.max(level.share(part.weight));
        let others = state.regions.iter().filter(|(name, _)| &***name != region).map(|(_, part)| taken(part));
        let own = state.regions.get(region);
        PoolSnapshot {
            ends: state.ends,
            held: own.map_or(0, |part| part.granted),
            share: own.map_or(0, |part| level.share(part.weight)),
            others: others.sum(),
        }
    }
}

impl Level {
    /// The level of a budget among these.
    pub fn of<'a>(budget: Cost, parts: impl Iterator<Item = &'a Part>) -> Self {
        let mut parts: Vec<&Part> = parts.collect();
        // The region that holds most for its weight first: where one has not had its share, none after it has.
        parts.sort_unstable_by(|a, b| by_weight(b, a));
        let weight = parts.iter().map(|part| part.weight.get()).sum();
        let mut level = Self { left: budget, weight };
        for part in parts {
            if part.granted <= level.share(part.weight) {
                break;
            }
            level.left = level.left.saturating_sub(part.granted);
            level.weight -= part.weight.get();
        }
        level
    }

    /// Returns what a region of this weight is due: less than it holds, if it has had its share.
    pub fn share(&self, weight: Weight) -> Cost {
        let due = u128::from(weight.get()) * u128::from(self.left);
        // No weight is left only where a smaller limit replaced the one that was granted from.
        due.checked_div(u128::from(self.weight)).map_or(0, |share| share as Cost)
    }
}

/// Compares what two regions hold for their weight.
fn by_weight(a: &Part, b: &Part) -> Ordering {
    let held = |part: &Part, other: &Part| u128::from(part.granted) * u128::from(other.weight.get());
    held(a, b).cmp(&held(b, a))
}

#[cfg(test)]
mod tests {
    use super::super::WEIGHT_MAX;
    use super::*;
    use crate::rate::UNITS_MAX;

    const SECOND: Duration = Duration::from_secs(1);

    struct Fixture {
        pool: Pool,
        state: PoolState,
        now: Timestamp,
    }

    impl Fixture {
        fn of(limit: u64) -> Self {
            let pool = Pool::new(Limit::fixed_window(limit, 10 * SECOND).unwrap()).unwrap();
            Self { pool, state: PoolState::default(), now: Timestamp::from_millis(1_000) }
        }

        fn grant(&mut self, region: &str, weight: u64, wants: u64) -> PoolGrant {
            let weight = Weight::new(weight).unwrap();
            self.pool.grant(&mut self.state, PoolRequest { region, weight, wants }, self.now).unwrap()
        }

        fn granted(&mut self, region: &str, weight: u64, wants: u64) -> u64 {
            self.grant(region, weight, wants).granted
        }

        fn out(&self) -> u64 {
            self.state.regions.values().map(|part| part.granted).sum()
        }
    }

    #[test]
    fn a_region_alone_may_have_all_and_no_more() {
        let mut fixture = Fixture::of(100);
        let grants = [60, 60, 1].map(|wants| fixture.grant("us", 7, wants));
        assert_eq!(grants.map(|grant| (grant.granted, grant.more)), [(60, 40), (40, 0), (0, 0)]);
    }

    #[test]
    fn the_share_of_a_region_is_kept_until_it_requests() {
        let mut fixture = Fixture::of(100);
        fixture.granted("eu", 3, 0);
        assert_eq!([fixture.granted("us", 1, 1_000), fixture.granted("eu", 3, 1_000)], [25, 75]);
    }

    /// If the others' shares were still counted from all 90 units, 60 would be kept from each: two times 30 that they
    /// are due, and 30 granted to no region.
    #[test]
    fn an_early_region_keeps_its_grant_and_the_others_share_the_rest() {
        let mut fixture = Fixture::of(90);
        assert_eq!(fixture.granted("us", 1, 60), 60);
        fixture.granted("eu", 1, 0);
        fixture.granted("ap", 1, 0);
        assert_eq!(fixture.granted("us", 1, 1), 0);
        assert_eq!([fixture.granted("eu", 1, 90), fixture.granted("ap", 1, 90)], [15, 15]);
    }

    #[test]
    fn rounding_remainders_are_granted_in_turn() {
        let mut fixture = Fixture::of(11);
        let names = ["a", "b", "c", "d"];
        names.iter().for_each(|name| assert_eq!(fixture.granted(name, 1, 0), 0));
        for _ in 0..4 {
            names.iter().for_each(|name| assert!(fixture.granted(name, 1, 1) <= 1));
        }
        let held: Vec<u64> = fixture.state.regions.values().map(|part| part.granted).collect();
        assert_eq!(held, [3, 3, 3, 2]);
    }

    #[test]
    fn a_weight_applies_from_the_request_that_sets_it() {
        let mut fixture = Fixture::of(100);
        fixture.granted("eu", 1, 0);
        assert_eq!(fixture.granted("us", 1, 100), 50);
        assert_eq!(fixture.granted("us", 4, 100), 30);
        assert_eq!(fixture.granted("eu", 9, 100), 20, "what was granted stays");
    }

    #[test]
    fn a_window_lasts_until_its_end_and_then_all_start_at_zero() {
        let mut fixture = Fixture::of(100);
        let first = fixture.grant("us", 1, 100);
        assert_eq!((first.granted, first.lives), (100, 9 * SECOND));
        fixture.now = Timestamp::from_millis(9_999);
        assert_eq!(fixture.granted("us", 1, 1), 0);
        fixture.now = Timestamp::from_millis(10_000);
        let second = fixture.grant("us", 1, 1);
        assert_eq!((second.granted, second.lives), (1, 10 * SECOND));
        assert!(second.epoch > first.epoch);
        // Back in the window before, by a clock that stepped: it is over.
        fixture.now = Timestamp::from_millis(9_000);
        assert_eq!(fixture.grant("us", 1, 100).epoch, second.epoch);
        assert_eq!(fixture.out(), 100);
    }

    #[test]
    fn a_region_above_the_maximum_is_rejected_without_new_grants() {
        let mut fixture = Fixture::of(10_000);
        let names: Vec<_> = (0..REGIONS_MAX).map(|i| alloc::format!("{i}")).collect();
        names.iter().for_each(|name| assert_eq!(fixture.granted(name, 1, 1), 1));
        let ask = PoolRequest { region: "one more", weight: Weight::ONE, wants: 1 };
        let before = fixture.state.clone();
        assert_eq!(fixture.pool.grant(&mut fixture.state, ask, fixture.now), Err(TooManyRegions));
        assert_eq!(fixture.state, before);
    }

    #[test]
    fn the_largest_numbers_are_shared_exactly() {
        let mut fixture = Fixture::of(UNITS_MAX);
        fixture.granted("eu", WEIGHT_MAX, 0);
        let weights = u128::from(2 * WEIGHT_MAX - 1);
        let due = (u128::from(UNITS_MAX) * u128::from(WEIGHT_MAX - 1) / weights) as u64;
        assert_eq!(fixture.granted("us", WEIGHT_MAX - 1, due + 9), due + 1, "and a unit of rounding");
    }

    #[test]
    fn a_smaller_limit_grants_nothing_more_where_more_is_out() {
        let mut fixture = Fixture::of(100);
        assert_eq!([fixture.granted("us", 1, 40), fixture.granted("eu", 1, 40)], [40, 40]);
        fixture.pool = Pool::new(Limit::fixed_window(50, 10 * SECOND).unwrap()).unwrap();
        assert_eq!(["us", "eu", "ap"].map(|region| fixture.granted(region, 1, 10)), [0, 0, 0]);
    }
}
