//! Builder of a shared concurrency limit.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::fleet::{Beats, Fold, Folded, Node, NodeId, Split};
use throttlekit_core::lease::Margin;
use tokio::sync::watch;

use super::demand::{Demand, Meter};
use super::driver::Driver;
use super::guard::{FleetGuard, Shared, Task};
use super::lease::Lease;
use super::stats::FleetStats;
use crate::guard::{GuardBuilder, GuardLimit};
use crate::hash::random_u64;
use crate::store::{KeySpace, MembershipStore, ROLL_KEPT_DEFAULT};
use crate::sync::Mutex;
use crate::{Guard, LeaseClock};

/// Default clock for grants: one that costs a few nanoseconds.
#[cfg(target_os = "linux")]
pub type FleetClock = crate::TickClock;
/// Default clock for grants.
#[cfg(not(target_os = "linux"))]
pub type FleetClock = crate::BootClock;

/// Maximum delay of the timer that stops the work of a permit: grants expire that much earlier.
const TIMER_LATE_MAX: Duration = Duration::from_millis(5);
/// Minimum number of heartbeats per grant lifetime: two may be lost.
const BEATS_A_LIFE: u32 = 3;
const SPACING_MIN: Duration = Duration::from_millis(1);

/// Builder of a [`FleetGuard`]. All nodes that share a limit must use the same settings, except for
/// [`local`](Self::local), [`clock`](Self::clock) and the heartbeat interval.
#[derive(Debug)]
pub struct FleetBuilder<R, C = FleetClock> {
    store: R,
    key: String,
    fold: Fold,
    limit: GuardLimit,
    guard: GuardBuilder,
    every: Duration,
    spacing: Duration,
    margin: Margin,
    keeps: Duration,
    deadline: Option<Duration>,
    local: u32,
    clock: C,
}

impl<R: MembershipStore> FleetBuilder<R> {
    pub(super) fn new(store: R, name: &str, limit: GuardLimit) -> Self {
        let (initial, most) = match limit {
            GuardLimit::Fixed(limit) => (limit, limit),
            GuardLimit::Adaptive(ceiling) => (ceiling.initial(), ceiling.most()),
        };
        let lives = Duration::from_secs(4);
        let (folded, split) = (Folded::default(), Split::default());
        Self {
            store,
            key: KeySpace::roll("tk", name),
            fold: Fold { folded, split, initial, most, lives, linger: Duration::ZERO },
            guard: Guard::builder(limit),
            limit,
            every: Duration::from_secs(1),
            spacing: Duration::from_millis(50),
            margin: Margin::default(),
            keeps: ROLL_KEPT_DEFAULT,
            deadline: None,
            local: 0,
            clock: FleetClock::default(),
        }
    }
}

impl<R: MembershipStore, C: LeaseClock + 'static> FleetBuilder<R, C> {
    /// Sets the prefix and the name of the membership record in the store. Default: `tk` and the name of the limit.
    pub fn prefix(self, prefix: &str, name: &str) -> Self {
        Self { key: KeySpace::roll(prefix, name), ..self }
    }

    /// Sets how the limits that nodes infer are combined into one.
    pub fn folded(mut self, folded: Folded) -> Self {
        self.fold.folded = folded;
        self
    }

    /// Sets how the limit is divided among nodes.
    pub fn split(mut self, split: Split) -> Self {
        self.fold.split = split;
        self
    }

    /// Sets the lifetime of a grant. Default: 4 s. A disconnected node admits work for that long, and a crashed one
    /// keeps its share for that long.
    pub fn lives(mut self, lives: Duration) -> Self {
        self.fold.lives = lives;
        self
    }

    /// Sets how long work may continue after its grant has expired. Default: 0. Set it to the longest time your work
    /// can take if it is not stopped by [`run`](super::FleetPermit::run) or otherwise.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.fold.linger = linger;
        self
    }

    /// Sets the heartbeat interval, with a jitter of a fifth. Default: 1 s. At least three heartbeats are sent in the
    /// lifetime of a grant.
    pub fn beats_every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// Sets the minimum time between heartbeats while shares change. Default: 50 ms.
    pub fn spacing(self, spacing: Duration) -> Self {
        Self { spacing, ..self }
    }

    /// Sets the margin for clock errors.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// Sets how long the membership record is kept after the last heartbeat. Default: one day. Minimum: four grant
    /// lifetimes.
    pub fn keeps(self, keeps: Duration) -> Self {
        Self { keeps, ..self }
    }

    /// Sets the timeout of a heartbeat, all its round trips together. Default: until the next one is due.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Sets the number of concurrent calls that this node admits while it is disconnected. Default: 0. With L the
    /// shared limit, at most L plus this number for each disconnected node are then in flight.
    pub fn local(self, share: u32) -> Self {
        Self { local: share, ..self }
    }

    /// Adds a priority of work; see [`GuardBuilder::priority_below`].
    pub fn priority_below(self, kept_thousandths: u16) -> Self {
        Self { guard: self.guard.priority_below(kept_thousandths), ..self }
    }

    /// Sets the maximum number of waiters of each priority; see [`GuardBuilder::depth_max`].
    pub fn depth_max(self, depth: u32) -> Self {
        Self { guard: self.guard.depth_max(depth), ..self }
    }

    /// Sets the clock for the grant. It is read with every admission.
    pub fn clock<D: LeaseClock>(self, clock: D) -> FleetBuilder<R, D> {
        let Self { store, key, fold, limit, guard, every, spacing, margin, keeps, deadline, local, .. } =
            self;
        FleetBuilder { store, key, fold, limit, guard, every, spacing, margin, keeps, deadline, local, clock }
    }

    /// Builds the guard of a node that has just joined. Its task runs on the store's
    /// [`background`](MembershipStore::background).
    pub fn build(self) -> FleetGuard<C> {
        let every = self.every.min(self.fold.lives / BEATS_A_LIFE).max(SPACING_MIN);
        let spacing = self.spacing.clamp(SPACING_MIN, every);
        let margin = self.margin.behind(self.clock.behind_max() + TIMER_LATE_MAX);
        let (guard, background) = (Arc::new(self.guard.build()), self.store.background());
        guard.cap(self.local);
        let shared = Arc::new(Shared {
            lease: Lease::new(),
            clock: self.clock,
            local: self.local,
            guarantee: self.store.guarantee(),
            background: background.clone(),
            demand: Demand::default(),
            stats: Mutex::new(FleetStats::default()),
        });
        let (leaves, hears) = watch::channel(false);
        let driver = Driver {
            store: self.store,
            key: self.key,
            fold: self.fold,
            keeps: self.keeps.max(self.fold.remembered() * 4),
            deadline: self.deadline.unwrap_or(every),
            spacing,
            node: Node::new(random_id(), Beats { every, spacing, margin }),
            meter: Meter::new(every),
            infers: matches!(self.limit, GuardLimit::Adaptive(_)),
            fenced: true,
            guard: Arc::clone(&guard),
            shared: Arc::clone(&shared),
            leaves: hears,
        };
        let handle = background.spawn(driver.run());
        FleetGuard::from_parts(guard, shared, Task { leaves, handle })
    }
}

fn random_id() -> NodeId {
    NodeId(u128::from(random_u64()) << 64 | u128::from(random_u64()))
}
