//! One node: the production holder and local lease, a clock of its own, and whoever waits.

use throttlekit_core::lease::{Epoch, Holder, LocalLease, PlainWord};
use throttlekit_core::{Cost, Timestamp};

use super::seams::seeded_plan;
use super::{Clock, Setup};

/// A node, with what its driver remembers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) holder: Holder,
    pub(super) held: Held,
    /// Its clock.
    pub clock: Clock,
    /// What the holder is told would be good to hold.
    pub batch: Cost,
    pub(super) waiters: Vec<Waiter>,
    /// Decisions of which the first half is done.
    pub(super) taken: Vec<Taken>,
    pub(super) flight: Option<Sent>,
    /// The least that anyone was told to wait with since the last reply, turned away or not.
    pub(super) cheapest: Option<Cost>,
    pub(super) told: Option<Told>,
    pub(super) is_up: bool,
    /// Names returns: how many were sent from this window.
    pub(super) returns: (Epoch, u64),
    /// Of bugs: what a crash left behind, and a request too many.
    pub(super) saved: Option<(Cost, core::time::Duration)>,
    pub(super) second: Option<Sent>,
}

/// What a local lease holds. The local lease's own words carry tags, by which equal local leases differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Held {
    /// Units.
    pub units: Cost,
    /// When they die, by the node's clock.
    pub until: Timestamp,
}

/// A caller that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// What it asks for.
    pub cost: Cost,
    /// How often it has asked.
    pub tries: u32,
}

/// Units taken by a thread that has yet to read the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Taken {
    pub(super) cost: Cost,
    pub(super) until: Timestamp,
    /// What the clock showed when they were taken.
    pub(super) at: Timestamp,
}

/// A request, as its driver remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) id: u64,
    pub(super) at: Timestamp,
    pub(super) wants: Cost,
    /// What could not be served.
    pub(super) short_of: Cost,
}

/// What the store denied, as an observer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Told {
    pub(super) cost: Cost,
    pub(super) until: Timestamp,
    /// When the reply came, and how long it said to wait.
    pub(super) at: Timestamp,
    pub(super) wait: core::time::Duration,
}

impl Node {
    pub(super) fn new(setup: &Setup, clock: Clock) -> Self {
        Self {
            holder: Holder::new(seeded_plan(setup)),
            held: Held::default(),
            clock,
            batch: setup.batch,
            waiters: Vec::new(),
            taken: Vec::new(),
            flight: None,
            cheapest: None,
            told: None,
            is_up: true,
            returns: (Epoch::default(), 0),
            saved: None,
            second: None,
        }
    }

    /// The local lease, to be put back with [`put`](Self::put).
    pub(super) fn local_lease(&self) -> LocalLease<PlainWord> {
        let local_lease = LocalLease::new();
        if self.held.units > 0 {
            local_lease.fill(self.held.units, self.held.until, false);
        }
        local_lease
    }

    pub(super) fn put(&mut self, local_lease: &LocalLease<PlainWord>) {
        let units = local_lease.units();
        self.held = if units == 0 { Held::default() } else { Held { units, until: local_lease.until() } };
    }

    /// What it holds.
    pub fn held(&self) -> Held {
        self.held
    }

    /// Those who wait.
    pub fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    /// How many decisions are half done.
    pub fn taken(&self) -> usize {
        self.taken.len()
    }

    /// Whether a request is in flight.
    pub fn is_asking(&self) -> bool {
        self.holder.is_asking()
    }

    /// Which request is in flight.
    pub fn flight(&self) -> Option<u64> {
        self.flight.map(|sent| sent.id)
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// The holder itself.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }
}
