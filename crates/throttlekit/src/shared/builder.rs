//! Builder of a shared limiter.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Limit, LimitError, Need};

use super::leasing::{Engine, Leasing};
use super::limiter::Mode;
use super::outage::Fallback;
use super::strict::{Also, Place, Strict};
use super::tally::Tallies;
use super::{OnOutage, SharedLimiter, once};
use crate::BuildError;
use crate::clock::{BootClock, LeaseClock};
use crate::store::{CHARGES_MAX, KeySpace, REMEMBER_DEFAULT, Store};

const PREFIX: &str = "tk";

/// Builder of a [`SharedLimiter`].
#[derive(Debug)]
pub struct SharedLimiterBuilder<S, C = BootClock> {
    store: S,
    policy: Box<str>,
    limits: Vec<NamedLimit>,
    need: Need,
    route: Route,
    on_outage: OnOutage,
    remember: Duration,
    leasing: Option<Leasing>,
    clock: C,
}

#[derive(Debug)]
struct NamedLimit {
    name: Box<str>,
    /// Index of the call's key that it counts by.
    by: usize,
    limit: Result<Limit, LimitError>,
    /// Index of the limit whose counts it shares.
    also: Option<usize>,
}

/// The key that selects the cluster slot for all keys of a request.
#[derive(Clone, Copy, Debug)]
enum Route {
    /// The only key that the limits count by. If there are several, none.
    Only,
    /// The call's key at this index.
    By(usize),
    /// None: all keys of the policy live in one slot.
    OneSlot,
}

impl<S: Store> SharedLimiterBuilder<S> {
    pub(super) fn new(store: S, policy: &str, limit: Result<Limit, LimitError>) -> Self {
        Self {
            store,
            policy: policy.into(),
            limits: vec![NamedLimit { name: "".into(), by: 0, limit, also: None }],
            need: Need::All,
            route: Route::Only,
            on_outage: OnOutage::default(),
            remember: REMEMBER_DEFAULT,
            leasing: None,
            clock: BootClock,
        }
    }
}

impl<S: Store, C: LeaseClock + 'static> SharedLimiterBuilder<S, C> {
    /// Adds a limit that counts by the call's first key. The name separates its keys from those of the other limits.
    pub fn limit<L: TryInto<Limit>>(self, name: &str, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limit_by(0, name, limit)
    }

    /// Adds a limit that counts by the call's key at `index`: [`Call::and`](crate::Call::and) adds keys 1 and further.
    pub fn limit_by<L: TryInto<Limit>>(mut self, index: usize, name: &str, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into().map_err(LimitError::from);
        self.limits.push(NamedLimit { name: name.into(), by: index, limit, also: None });
        self
    }

    /// Counts a call also on its key at `index`, by the limit that was added last and in the same counts: a run draws on
    /// itself and on the runs that it is a part of. The limit has one more index ([`limits`](SharedLimiter::limits)).
    ///
    /// A key that is empty, or on which the limit counts the call already, is left out: a run without a parent is
    /// counted once.
    pub fn also_by(mut self, index: usize) -> Self {
        let last = self.limits.len() - 1;
        let of = self.limits[last].also.unwrap_or(last);
        let NamedLimit { name, limit, .. } = &self.limits[of];
        self.limits.push(NamedLimit { name: name.clone(), by: index, limit: *limit, also: Some(of) });
        self
    }

    /// Sets the key index and the name of the first limit. Default: 0 and the empty name.
    pub fn first_limit(mut self, index: usize, name: &str) -> Self {
        (self.limits[0].by, self.limits[0].name) = (index, name.into());
        self
    }

    /// Admits a request if at least one limit allows it; those that do are charged. Default: all must allow.
    pub fn any(self) -> Self {
        Self { need: Need::Any, ..self }
    }

    /// Keeps all keys of a request in the cluster slot of its key at `index`, so that a policy spreads over a cluster.
    ///
    /// Correct only if each key always comes with the same key at that index, as users do with their organization:
    /// under another it counts as another. Default: if all limits count by one key, that key; otherwise all keys of the
    /// policy live in [one slot](Self::one_slot).
    pub fn route_by(self, index: usize) -> Self {
        Self { route: Route::By(index), ..self }
    }

    /// Keeps all keys of the policy in one cluster slot.
    pub fn one_slot(self) -> Self {
        Self { route: Route::OneSlot, ..self }
    }

    /// Sets the fallback while the store is unavailable and nothing is held. Default: deny.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        Self { on_outage: choice, ..self }
    }

    /// Sets how long [debits](SharedLimiter::debit) are remembered by their idempotency keys, whether their window
    /// lasts or not. Choose it longer than any caller keeps retrying; at most a day. Default: one minute.
    pub fn remember_debits(self, remember: Duration) -> Self {
        Self { remember, ..self }
    }

    /// Fetches units in batches and spends them in this process. See [`leasing`](crate::leasing). For one limit.
    ///
    /// A strict limiter with the same policy and limit counts together with it.
    pub fn leased(self) -> Self {
        self.leased_with(Leasing::new())
    }

    /// Leases for keys with many requests, and only remembers denials for keys with few. For one limit.
    pub fn auto(self) -> Self {
        self.leased_with(Leasing::auto())
    }

    /// Calls the store for every request that is not covered by a denial. A denial covers requests of the same or a
    /// higher cost until its wait is over, for at most a second. For one limit.
    pub fn cached_denials(self) -> Self {
        self.leased_with(Leasing::cached_denials())
    }

    /// Leases, or remembers denials, with these options. For one limit.
    pub fn leased_with(self, leasing: Leasing) -> Self {
        Self { leasing: Some(leasing), ..self }
    }

    /// Sets the clock by which leased units expire.
    pub fn clock<D: LeaseClock>(self, clock: D) -> SharedLimiterBuilder<S, D> {
        let Self { store, policy, limits, need, route, on_outage, remember, leasing, .. } = self;
        SharedLimiterBuilder { store, policy, limits, need, route, on_outage, remember, leasing, clock }
    }

    /// Builds the limiter. Fails if a limit is invalid, if the store cannot represent it, or if it cannot be leased.
    pub fn build(self) -> Result<SharedLimiter<S, C>, BuildError> {
        self.check_names()?;
        if self.leasing.is_some() && self.limits.len() > 1 {
            return Err(BuildError::LeasedSeveral);
        }
        let home = self.home()?;
        let Self { store, policy, limits: named, need, on_outage, remember, leasing, clock, .. } = self;
        let key_part_max = store.capabilities().key_part_max;
        let mut limits = Vec::with_capacity(named.len());
        let mut places = Vec::with_capacity(named.len());
        for (place, NamedLimit { name, by, limit, also }) in named.into_iter().enumerate() {
            let limit = limit?;
            let form = ScriptEncoding::of(&limit)?;
            let space = KeySpace::new(PREFIX, &policy, &name, &form).part_max(key_part_max);
            let also = also.map(|of| {
                let unused = KeySpace::new(PREFIX, &policy, &format!("\0{place}"), &form);
                Also { of, unused: unused.part_max(key_part_max) }
            });
            let reserving = form.uncrossed();
            limits.push(limit);
            places.push(Place { name, by, form, reserving, space, also });
        }
        let shares = store.local_shares().cloned().unwrap_or_default();
        let share = |place: usize, nodes| shares.of(&places[place].space, limits[place], nodes);
        let fallback = Fallback::new(on_outage, need, limits.len(), share);
        let strict = Strict {
            store,
            need,
            limits: limits.into(),
            places: places.into(),
            home,
            fallback,
            tallies: Tallies::default(),
            remember,
            once: once::record(remember)?,
            ahead: AtomicI64::new(0),
            noted_ms: AtomicU64::new(u64::MAX),
        };
        Ok(SharedLimiter::from_mode(match leasing {
            None => Mode::Strict(Arc::new(strict)),
            Some(leasing) => Mode::Leased(Arc::new(Engine::new(strict, clock, leasing)?)),
        }))
    }

    fn check_names(&self) -> Result<(), BuildError> {
        if self.limits.len() > CHARGES_MAX {
            return Err(BuildError::TooManyLimits { max: CHARGES_MAX });
        }
        let taken =
            |(i, limit): &(usize, &NamedLimit)| self.limits[..*i].iter().any(|l| l.name == limit.name);
        let named = self.limits.iter().enumerate().filter(|(_, limit)| limit.also.is_none());
        match { named }.find(taken) {
            Some((_, limit)) => Err(BuildError::DuplicateName(limit.name.clone())),
            None => Ok(()),
        }
    }

    /// Returns the index of the limit whose key selects the slot.
    fn home(&self) -> Result<Option<usize>, BuildError> {
        match self.route {
            Route::OneSlot => Ok(None),
            Route::Only => Ok(self.limits.iter().all(|limit| limit.by == self.limits[0].by).then_some(0)),
            Route::By(index) => {
                let expected = "the index of a key that one of the limits counts by";
                let home = self.limits.iter().position(|limit| limit.by == index && limit.also.is_none());
                home.map(Some).ok_or(BuildError::OutOfRange { setting: "route_by", expected })
            }
        }
    }
}
