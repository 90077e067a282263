//! Builder of a shared guard whose limit is divided over nodes.

use std::time::Duration;

use throttlekit_core::concurrency::division::{Combine, Rebalancer, Split};
use throttlekit_core::lease::Margin;

use super::builder::SharedGuardBuilder;
use super::handle::SharedGuard;
use crate::clock::{DefaultLeaseClock, LeaseClock};
use crate::concurrency::OneLimit;
use crate::guard::divided::{Divided, Setup};
use crate::guard::settings::Settings;
use crate::store::{KeySpace, MEMBERSHIP_KEPT_DEFAULT, MembershipStore};
use crate::{BuildError, Concurrency};

/// Default lifetime of a grant.
const LEASE: Duration = Duration::from_secs(4);

/// Builder of a divided [`SharedGuard`]. All nodes that share a limit must use the same settings, except for
/// [`while_disconnected`](Self::while_disconnected), [`clock`](Self::clock), priorities, queue and heartbeats.
#[derive(Debug)]
pub struct DividedGuardBuilder<S, C = DefaultLeaseClock> {
    store: S,
    name: String,
    limit: Concurrency,
    prefix: String,
    lease: Duration,
    linger: Duration,
    combine: Combine,
    split: Split,
    settings: Settings,
    heartbeat_every: Duration,
    heartbeat_spacing: Duration,
    heartbeat_timeout: Option<Duration>,
    clock_error: Margin,
    keep_record: Duration,
    while_disconnected: u32,
    clock: C,
}

impl<S> DividedGuardBuilder<S> {
    pub(super) fn new(described: SharedGuardBuilder<S>) -> Self {
        let SharedGuardBuilder { store, name, limit, prefix, lease, clock_error, .. } = described;
        Self {
            store,
            name,
            limit,
            prefix,
            lease: lease.unwrap_or(LEASE),
            linger: Duration::ZERO,
            combine: Combine::default(),
            split: Split::default(),
            settings: Settings::new(),
            heartbeat_every: Duration::from_secs(1),
            heartbeat_spacing: Duration::from_millis(50),
            heartbeat_timeout: None,
            clock_error,
            keep_record: MEMBERSHIP_KEPT_DEFAULT,
            while_disconnected: 0,
            clock: DefaultLeaseClock::default(),
        }
    }
}

impl<S, C> DividedGuardBuilder<S, C> {
    /// Sets the lifetime of a grant. Default: 4 s. A disconnected node admits work for that long, and a crashed one
    /// keeps its share for that long.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Sets how long work may continue after its grant has expired. Default: 0. Set it to the longest time your work
    /// can take if it is not stopped by [`run`](super::SharedGuardPermit::run) or otherwise.
    pub fn linger(self, linger: Duration) -> Self {
        Self { linger, ..self }
    }

    /// Sets how the limits that nodes infer are combined into one. Default: the lower median.
    pub fn combine(self, combine: Combine) -> Self {
        Self { combine, ..self }
    }

    /// Sets how the limit is divided among nodes. Default: by demand.
    pub fn split(self, split: Split) -> Self {
        Self { split, ..self }
    }

    /// Sets the heartbeat interval, with a jitter of a fifth. Default: 1 s. At least three heartbeats are sent in the
    /// lifetime of a grant.
    pub fn heartbeat_every(self, every: Duration) -> Self {
        Self { heartbeat_every: every, ..self }
    }

    /// Sets the minimum time between heartbeats while shares change. Default: 50 ms.
    pub fn heartbeat_spacing(self, spacing: Duration) -> Self {
        Self { heartbeat_spacing: spacing, ..self }
    }

    /// Sets the timeout of a heartbeat, all its round trips together. Default: until the next one is due.
    pub fn heartbeat_timeout(self, timeout: Duration) -> Self {
        Self { heartbeat_timeout: Some(timeout), ..self }
    }

    /// Sets how long the membership record is kept after the last heartbeat. Default: one day. Minimum: four grant
    /// lifetimes.
    pub fn keep_record(self, keep: Duration) -> Self {
        Self { keep_record: keep, ..self }
    }

    /// Sets the number of concurrent calls that this node admits while it is disconnected. Default: 0. With L the
    /// shared limit, at most L plus this number for each disconnected node are then in flight.
    pub fn while_disconnected(self, share: u32) -> Self {
        Self { while_disconnected: share, ..self }
    }

    /// Adds a priority; see [`GuardBuilder::priority_below`](crate::guard::GuardBuilder::priority_below).
    pub fn priority_below(mut self, withheld_thousandths: u16) -> Self {
        self.settings.priority_below(withheld_thousandths);
        self
    }

    /// Sets the maximum number of waiters of each priority. Default: 0.
    pub fn queue_max(mut self, waiters: u32) -> Self {
        self.settings.queue_max = waiters;
        self
    }

    /// Sets the prefix of the membership record in the store. Default: `tk`.
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Sets the maximum error of the clocks of store and process.
    pub fn clock_error(self, margin: Margin) -> Self {
        Self { clock_error: margin, ..self }
    }

    /// Sets the clock for the grant. It is read with every admission. Default: [`DefaultLeaseClock`].
    #[rustfmt::skip]
    pub fn clock<D: LeaseClock>(self, clock: D) -> DividedGuardBuilder<S, D> {
        let Self {
            store, name, limit, prefix, lease, linger, combine, split, settings, heartbeat_every, heartbeat_spacing,
            heartbeat_timeout, clock_error, keep_record, while_disconnected, clock: _,
        } = self;
        DividedGuardBuilder {
            store, name, limit, prefix, lease, linger, combine, split, settings, heartbeat_every, heartbeat_spacing,
            heartbeat_timeout, clock_error, keep_record, while_disconnected, clock,
        }
    }
}

impl<S: MembershipStore, C: LeaseClock + 'static> DividedGuardBuilder<S, C> {
    /// Builds the guard of a node that has just joined. Its task runs on the store's
    /// [`background`](MembershipStore::background). Fails if the limit is per key.
    pub fn build(self) -> Result<SharedGuard<C>, BuildError> {
        Ok(SharedGuard::divided(self.start()?))
    }

    pub(in crate::guard) fn start(self) -> Result<Divided<C>, BuildError> {
        let limit = in_total(&self.limit)?;
        let rebalancer = Rebalancer {
            combine: self.combine,
            split: self.split,
            initial: limit.initial(),
            most: limit.most(),
            lives: self.lease,
            linger: self.linger,
        };
        let setup = Setup {
            store: self.store,
            key: KeySpace::membership(&self.prefix, &self.name),
            rebalancer,
            infers: matches!(limit, OneLimit::Adaptive(_)),
            guard: self.settings.single(limit),
            every: self.heartbeat_every,
            spacing: self.heartbeat_spacing,
            margin: self.clock_error,
            keeps: self.keep_record,
            deadline: self.heartbeat_timeout,
            local: self.while_disconnected,
            clock: self.clock,
        };
        Ok(setup.start())
    }
}

/// Returns the limit that nodes divide.
fn in_total(limit: &Concurrency) -> Result<OneLimit, BuildError> {
    if limit.is_per_key() {
        return Err(BuildError::NotShareable("a limit per key cannot be `divided`"));
    }
    limit.limit()
}
