//! Requests to a pool of regions, and its responses.

use std::sync::Arc;

use throttlekit_core::Timestamp;
use throttlekit_core::fair::Weight;
use throttlekit_core::fair::pool::{Pool, PoolGrant, PoolRequest, PoolSnapshot};
use throttlekit_core::rate::UNITS_MAX;
use throttlekit_core::rate::shared::ScriptEncoding;

use super::{Background, StoreError};
use crate::{Guarantee, forward_store};

/// Shares one budget per window among regions, by weight: [`Pool`] kept where all of them reach it.
///
/// As with a [`Store`](super::Store), time is the pool's own, and no request is retried automatically: one whose reply
/// was lost may have been granted, and a grant that was not received lapses with its window.
pub trait RegionStore: Send + Sync + 'static {
    /// Grants a region as many more units as it wants, or as it may have.
    fn grant(&self, ask: &RegionRequest<'_>) -> impl Future<Output = Result<RegionGrant, StoreError>> + Send;

    /// Returns the guarantee of a grant of this pool.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    /// Returns the background for its work and for everything built on it. A wrapper of a store forwards it.
    fn background(&self) -> Background {
        Background::default()
    }
}

/// One pool × one region × a desired number of additional units.
#[derive(Clone, Copy, Debug)]
pub struct RegionRequest<'a> {
    /// The pool's key as the store keeps it, from [`KeySpace::pool`](super::KeySpace::pool).
    pub key: &'a str,
    /// The limit that all regions share: a window.
    pub form: &'a ScriptEncoding,
    /// The region's name as the store keeps it, from [`KeySpace::part`](super::KeySpace::part).
    pub region: &'a str,
    /// The sum of the weights of its active tenants.
    pub weight: Weight,
    /// Units it wants in addition to those that it has been granted.
    pub wants: u64,
}

/// The response to one [`RegionRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionGrant {
    /// Time of the response, by the pool's clock.
    pub now: Timestamp,
    /// The grant.
    pub grant: PoolGrant,
}

impl RegionRequest<'_> {
    /// Returns the rule that decides, or why this limit cannot be shared or this name cannot be stored.
    pub fn pool(&self) -> Result<Pool, StoreError> {
        if self.region.is_empty() || self.region.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(StoreError::misconfigured("invalid region name: encode it with KeySpace::part"));
        }
        Pool::new(*self.form.limit()).map_err(StoreError::misconfigured)
    }

    /// Returns the request in the rule's form.
    pub fn ask(&self) -> PoolRequest<'_> {
        PoolRequest { region: self.region, weight: self.weight, wants: self.wants }
    }
}

impl RegionGrant {
    /// Creates the response of a store that granted `granted` units at `now` to a region that sees these numbers: the
    /// end of the window in microseconds, what it held, its share, and what all others hold or are due.
    ///
    /// The rule computes the response; the store only ran its mirror. If the two disagree, its state is not ours.
    pub fn of(
        ask: &RegionRequest<'_>,
        seen: [i64; 4],
        now: Timestamp,
        granted: i64,
    ) -> Result<Self, StoreError> {
        let number = |n: i64| u64::try_from(n).ok().filter(|&n| n <= UNITS_MAX);
        let bad = || {
            StoreError::bad_state(format_args!(
                "{}: the response of the store is inconsistent with the limit",
                ask.key
            ))
        };
        let [ends, held, share, others] = seen.map(number);
        let (Some(ends), Some(held), Some(share), Some(others)) = (ends, held, share, others) else {
            return Err(bad());
        };
        let sight = PoolSnapshot { ends: Timestamp::from_micros(ends), held, share, others };
        let grant = ask.pool()?.word(&sight, ask.wants, now);
        if number(granted) == Some(grant.granted) { Ok(Self { now, grant }) } else { Err(bad()) }
    }
}

impl<P: RegionStore> RegionStore for Arc<P> {
    forward_store!(RegionStore for self => **self; grant, guarantee, background);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throttlekit_core::lease::Epoch;
    use throttlekit_core::rate::Limit;

    use super::*;
    use crate::store::KeySpace;

    fn hour() -> ScriptEncoding {
        ScriptEncoding::of(&Limit::fixed_window(100, Duration::from_secs(3_600)).unwrap()).unwrap()
    }

    fn ask<'a>(form: &'a ScriptEncoding, region: &'a str) -> RegionRequest<'a> {
        RegionRequest { key: "k", form, region, weight: Weight::ONE, wants: 30 }
    }

    #[test]
    fn a_response_that_contradicts_the_rule_is_an_error() {
        let (form, now) = (hour(), Timestamp::from_millis(1_000));
        let seen = [3_600_000_000, 10, 50, 50];
        let granted = |granted| RegionGrant::of(&ask(&form, "us"), seen, now, granted);
        let PoolGrant { granted: units, more, epoch, lives } = granted(30).unwrap().grant;
        assert_eq!((units, more, lives), (30, 10, Duration::from_secs(3_599)));
        assert_eq!(epoch, Epoch(3_600_000_000_000));
        assert!([29, 31, -1].map(granted).iter().all(Result::is_err));
    }

    #[test]
    fn names_that_would_corrupt_stored_records_are_rejected() {
        let form = hour();
        assert!(["", "eu west", "a\nb", "a\u{a0}b"].iter().all(|name| ask(&form, name).pool().is_err()));
        assert!(ask(&form, &KeySpace::part(b"eu west")).pool().is_ok());
    }
}
