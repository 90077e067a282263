//! Start of a node.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::division::{HeartbeatIntervals, Node, NodeId, Rebalancer};
use throttlekit_core::lease::Margin;
use tokio::sync::watch;

use super::demand::{Demand, Meter};
use super::driver::Driver;
use super::lease::Lease;
use super::node::{Divided, Heartbeats, Shared, Task};
use super::stats::DivisionStats;
use crate::clock::{BootClock, LeaseClock};
use crate::guard::single::Single;
use crate::hash::random_u128;
use crate::store::MembershipStore;
use crate::sync::Mutex;

/// Maximum delay of the timer that stops the work of a permit: grants expire that much earlier.
const TIMER_LATE_MAX: Duration = Duration::from_millis(5);
/// Minimum number of heartbeats per grant lifetime: two may be lost.
const HEARTBEATS_A_LIFE: u32 = 3;
const SPACING_MIN: Duration = Duration::from_millis(1);

/// Settings of a node.
pub(in crate::guard) struct Setup<S, C> {
    pub(in crate::guard) store: S,
    /// Key of the membership record.
    pub(in crate::guard) key: String,
    pub(in crate::guard) rebalancer: Rebalancer,
    pub(in crate::guard) infers: bool,
    pub(in crate::guard) guard: Single<BootClock>,
    pub(in crate::guard) every: Duration,
    pub(in crate::guard) spacing: Duration,
    pub(in crate::guard) margin: Margin,
    pub(in crate::guard) keeps: Duration,
    pub(in crate::guard) deadline: Option<Duration>,
    pub(in crate::guard) local: u32,
    pub(in crate::guard) clock: C,
}

impl<S: MembershipStore, C: LeaseClock + 'static> Setup<S, C> {
    /// Starts a node that has just joined. Its task runs on the store's [`background`](MembershipStore::background).
    pub(in crate::guard) fn start(self) -> Divided<C> {
        let every = self.every.min(self.rebalancer.lives / HEARTBEATS_A_LIFE).max(SPACING_MIN);
        let spacing = self.spacing.clamp(SPACING_MIN, every);
        let margin = self.margin.behind(self.clock.behind_max() + TIMER_LATE_MAX);
        let (guard, background) = (Arc::new(self.guard), self.store.background());
        guard.cap(self.local);
        let shared = Arc::new(Shared {
            lease: Lease::new(),
            clock: self.clock,
            local: self.local,
            guarantee: self.store.guarantee(),
            background: background.clone(),
            demand: Demand::default(),
            stats: Mutex::new(DivisionStats::default()),
        });
        let (leaves, hears) = watch::channel(false);
        let driver = Driver {
            store: self.store,
            key: self.key,
            rebalancer: self.rebalancer,
            keeps: self.keeps.max(self.rebalancer.remembered() * 4),
            deadline: self.deadline.unwrap_or(every),
            spacing,
            node: Node::new(NodeId(random_u128()), HeartbeatIntervals { every, spacing, margin }),
            meter: Meter::new(every),
            infers: self.infers,
            fenced: true,
            guard: Arc::clone(&guard),
            shared: Arc::clone(&shared),
            leaves: hears,
        };
        let handle = Mutex::new(Some(Heartbeats(background.spawn(driver.run()))));
        Divided::from_parts(guard, shared, Task { leaves, handle })
    }
}
