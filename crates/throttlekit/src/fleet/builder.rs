//! The choices a fleet guard is made of.

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
use crate::store::{KeySpace, ROLL_KEPT_DEFAULT, RollStore};
use crate::sync::Mutex;
use crate::{Guard, LeaseClock};

/// The clock that a grant is held by, unless chosen otherwise: one that costs a few nanoseconds.
#[cfg(target_os = "linux")]
pub type FleetClock = crate::TickClock;
/// The clock that a grant is held by, unless chosen otherwise.
#[cfg(not(target_os = "linux"))]
pub type FleetClock = crate::BootClock;

/// How late a timer may stop the work of a permit: grants die as much earlier.
const TIMER_LATE_MAX: Duration = Duration::from_millis(5);
/// A beat is sent often enough that two may be lost.
const BEATS_A_LIFE: u32 = 3;
const SPACING_MIN: Duration = Duration::from_millis(1);

/// What a [`FleetGuard`] is made of. All nodes of a fleet must choose alike, but for [`local`](Self::local),
/// [`clock`](Self::clock) and how often they beat.
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

impl<R: RollStore> FleetBuilder<R> {
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

impl<R: RollStore, C: LeaseClock + 'static> FleetBuilder<R, C> {
    /// Under which prefix and name the store keeps the roll: `tk` and the fleet's name unless stated.
    pub fn prefix(self, prefix: &str, name: &str) -> Self {
        Self { key: KeySpace::roll(prefix, name), ..self }
    }

    /// How the ceilings that nodes infer become one.
    pub fn folded(mut self, folded: Folded) -> Self {
        self.fold.folded = folded;
        self
    }

    /// What each node is due.
    pub fn split(mut self, split: Split) -> Self {
        self.fold.split = split;
        self
    }

    /// How long a grant lives: four seconds unless stated. A node that is cut off lets work in for as long, and one that
    /// died keeps its share for as long.
    pub fn lives(mut self, lives: Duration) -> Self {
        self.fold.lives = lives;
        self
    }

    /// For how long work may go on when its grant has died: not at all unless stated. Say how long your work can take at
    /// the most if it is not stopped by [`run`](super::FleetPermit::run) or otherwise.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.fold.linger = linger;
        self
    }

    /// How often this node beats, give or take a fifth: each second unless stated, and at least three times in the life
    /// of a grant.
    pub fn beats_every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// How soon a beat may follow another while shares move: 50 ms unless stated.
    pub fn spacing(self, spacing: Duration) -> Self {
        Self { spacing, ..self }
    }

    /// What clocks may be wrong by.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// How long the roll is kept after the last beat: a day unless stated, and never less than four lives.
    pub fn keeps(self, keeps: Duration) -> Self {
        Self { keeps, ..self }
    }

    /// How long a beat may take, all its round trips together: until the next one is due unless stated.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// How many this node lets in while it is cut off: none unless stated. With L the ceiling, at most L and so many for
    /// each node that is cut off are then in flight.
    pub fn local(self, share: u32) -> Self {
        Self { local: share, ..self }
    }

    /// Adds a class of work; see [`GuardBuilder::class_below`].
    pub fn class_below(self, kept_thousandths: u16) -> Self {
        Self { guard: self.guard.class_below(kept_thousandths), ..self }
    }

    /// How many of each class may wait; see [`GuardBuilder::depth_max`].
    pub fn depth_max(self, depth: u32) -> Self {
        Self { guard: self.guard.depth_max(depth), ..self }
    }

    /// Which clock the grant is held by. It is read with every admission.
    pub fn clock<D: LeaseClock>(self, clock: D) -> FleetBuilder<R, D> {
        let Self { store, key, fold, limit, guard, every, spacing, margin, keeps, deadline, local, .. } =
            self;
        FleetBuilder { store, key, fold, limit, guard, every, spacing, margin, keeps, deadline, local, clock }
    }

    /// The guard of a node that has only just come. Its task runs on the store's [`background`](RollStore::background).
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
