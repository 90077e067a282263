//! Proof of admission to a shared concurrency limit, and its end when the grant expires.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use super::lease::Row;
use super::node::Shared;
use crate::Guarantee;
use crate::clock::{BootClock, DefaultLeaseClock, LeaseClock};
use crate::fence::{Fenced, run_unless_fenced};
use crate::guard::permit::{GuardPermit, OwnedSlot};

/// A slot of this node's share of a divided [`SharedGuard`](crate::SharedGuard), held while work runs. Released exactly
/// once, however the work ends; see [`SharedGuardPermit`](crate::guard::SharedGuardPermit).
#[must_use = "dropping it releases the slot"]
pub struct SharePermit<'a, C: LeaseClock = DefaultLeaseClock> {
    permit: GuardPermit<'a, BootClock>,
    hold: Hold<&'a Shared<C>>,
}

/// An owned [`SharePermit`].
pub(in crate::guard) struct OwnedSharePermit<C: LeaseClock> {
    permit: OwnedSlot<BootClock>,
    hold: Hold<Arc<Shared<C>>>,
}

/// The grant that a permit depends on.
#[derive(Clone)]
pub(super) struct Hold<S> {
    shared: S,
    /// `None` for a slot of this node's local share, which no grant ends.
    row: Option<Row>,
}

impl<S> Hold<S> {
    #[inline(always)]
    pub(super) fn new(shared: S, row: Option<Row>) -> Self {
        Self { shared, row }
    }
}

impl<C: LeaseClock, S: std::ops::Deref<Target = Shared<C>>> Hold<S> {
    fn guarantee(&self) -> Guarantee {
        if self.row.is_some() { self.shared.guarantee } else { Guarantee::Local }
    }

    fn dies(&self) -> Option<Timestamp> {
        self.row.map(|_| self.shared.lease.dies())
    }

    fn stands(&self) -> bool {
        self.row.is_none_or(|row| self.shared.lease.stands(row, self.shared.clock.now()))
    }

    /// Checks again whenever the last seen grant is about to expire: by then there is a later one, or none.
    async fn fenced(&self) {
        while self.stands() {
            let Some(dies) = self.dies() else { return std::future::pending().await };
            let wait = dies.since(self.shared.clock.now()).max(LOOK_AGAIN);
            self.shared.background.sleep(wait).await;
        }
    }
}

/// Minimum pause between checks: a clock that reads late shows the expiry a little later, and checking without a pause
/// would spin.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl<'a, C: LeaseClock> SharePermit<'a, C> {
    #[inline(always)]
    pub(super) fn new(permit: GuardPermit<'a, BootClock>, shared: &'a Shared<C>, row: Option<Row>) -> Self {
        Self { permit, hold: Hold::new(shared, row) }
    }

    /// Returns the guarantee: that of the membership record, or [`Local`](Guarantee::Local) for a slot of a disconnected
    /// node's local share.
    pub fn guarantee(&self) -> Guarantee {
        self.hold.guarantee()
    }

    /// Returns the time by which the work must have ended, by the guard's clock, unless this node renews its grant
    /// before. Each call may return a later time. `None` for a slot of the local share.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.hold.dies()
    }

    /// Checks whether the work must have ended by now.
    pub fn is_fenced(&self) -> bool {
        !self.hold.stands()
    }

    /// Waits until the work must have ended: forever while this node stays connected.
    pub async fn fenced(&self) {
        self.hold.fenced().await;
    }

    /// Runs the work, but no longer than it is allowed to: then the future is dropped.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Fenced> {
        run_unless_fenced(work, || self.is_fenced(), self.fenced()).await
    }

    endings!();

    #[inline(always)]
    fn end(self, ending: Ending, latency: Option<Duration>) {
        self.permit.end(ending, latency);
    }
}

impl<C: LeaseClock> OwnedSharePermit<C> {
    pub(super) fn new(permit: OwnedSlot<BootClock>, shared: Arc<Shared<C>>, row: Option<Row>) -> Self {
        Self { permit, hold: Hold::new(shared, row) }
    }

    pub(in crate::guard) fn guarantee(&self) -> Guarantee {
        self.hold.guarantee()
    }

    pub(in crate::guard) fn elapsed(&self) -> Option<Duration> {
        self.permit.elapsed()
    }

    pub(in crate::guard) fn deadline(&self) -> Option<Timestamp> {
        self.hold.dies()
    }

    pub(in crate::guard) fn is_fenced(&self) -> bool {
        !self.hold.stands()
    }

    pub(in crate::guard) async fn fenced(&self) {
        self.hold.fenced().await;
    }

    pub(in crate::guard) fn end(self, ending: Ending, latency: Option<Duration>) {
        self.permit.end(ending, latency);
    }
}

debug_fields!([C: LeaseClock] SharePermit<'_, C>, |it| deadline = it.deadline());
