//! One node: the production holder and local lease, its own clock, and its waiting callers.

use throttlekit_core::lease::{Epoch, Holder, LocalLease, PlainWord};
use throttlekit_core::{Cost, Timestamp};

use super::seams::seeded_plan;
use super::{Clock, Setup};

/// A node, with the state of its driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) holder: Holder,
    pub(super) held: Held,
    /// Its clock.
    pub clock: Clock,
    /// The batch size of the holder.
    pub batch: Cost,
    pub(super) waiters: Vec<Waiter>,
    /// Half-done decisions.
    pub(super) taken: Vec<Taken>,
    pub(super) flight: Option<Sent>,
    /// The smallest cost that had to wait since the last reply, rejected or not.
    pub(super) cheapest: Option<Cost>,
    pub(super) told: Option<Told>,
    pub(super) is_up: bool,
    /// Identifies returns: the number sent from this window.
    pub(super) returns: (Epoch, u64),
    /// Used by seeded bugs: the state left behind by a crash, and an extra request.
    pub(super) saved: Option<(Cost, core::time::Duration)>,
    pub(super) second: Option<Sent>,
}

/// The content of a local lease. The raw words of a local lease carry tags, by which equal leases differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Held {
    /// Units.
    pub units: Cost,
    /// Their expiry, by the node's clock.
    pub until: Timestamp,
}

/// A waiting caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// Its cost.
    pub cost: Cost,
    /// The number of attempts so far.
    pub tries: u32,
}

/// Units taken by a thread that has not read the clock yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Taken {
    pub(super) cost: Cost,
    pub(super) until: Timestamp,
    /// The clock reading when they were taken.
    pub(super) at: Timestamp,
}

/// A request, as the driver remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) id: u64,
    pub(super) at: Timestamp,
    pub(super) wants: Cost,
    /// The cost that could not be served.
    pub(super) short_of: Cost,
}

/// A denial of the store, as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Told {
    pub(super) cost: Cost,
    pub(super) until: Timestamp,
    /// The arrival time of the reply, and its retry-after.
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

    /// Returns the local lease, to be stored again with [`put`](Self::put).
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

    /// Returns its units.
    pub fn held(&self) -> Held {
        self.held
    }

    /// Returns the waiting callers.
    pub fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    /// Returns the number of half-done decisions.
    pub fn taken(&self) -> usize {
        self.taken.len()
    }

    /// Returns `true` if a request is in flight.
    pub fn is_asking(&self) -> bool {
        self.holder.is_asking()
    }

    /// Returns the identifier of the request in flight.
    pub fn flight(&self) -> Option<u64> {
        self.flight.map(|sent| sent.id)
    }

    /// Returns `true` if the node is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Returns the holder.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }
}
