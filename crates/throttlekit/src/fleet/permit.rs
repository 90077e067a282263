//! Proof of admission to a shared concurrency limit, and its end when the grant expires.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Ending;

use super::builder::FleetClock;
use super::guard::Shared;
use super::lease::Row;
use crate::fence::{Fenced, run_unless_fenced};
use crate::guard::{OwnedPermit, Permit};
use crate::{BootClock, Guarantee, LeaseClock};

/// A slot of a shared concurrency limit, held while work runs. Like a [`Permit`] it is released exactly once, however
/// the work ends.
#[must_use = "the slot is given back as soon as the permit is dropped"]
pub struct FleetPermit<'a, C: LeaseClock = FleetClock> {
    permit: Permit<'a, BootClock>,
    hold: Hold<&'a Shared<C>>,
}

/// An owned [`FleetPermit`], for tasks and streams.
#[must_use = "the slot is given back as soon as the permit is dropped"]
pub struct OwnedFleetPermit<C: LeaseClock = FleetClock> {
    permit: OwnedPermit<BootClock>,
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

macro_rules! permit {
    ($name:ident $(<$life:lifetime>)?) => {
        impl<$($life,)? C: LeaseClock> $name<$($life,)? C> {
            endings!();

            #[inline]
            pub(crate) fn end(self, ending: Ending, latency: Option<Duration>) {
                self.permit.end(ending, latency);
            }

            /// Returns the guarantee: that of the membership record, or [`Local`](Guarantee::Local) for a slot of the
            /// local share.
            pub fn guarantee(&self) -> Guarantee {
                if self.hold.row.is_some() { self.hold.shared.guarantee } else { Guarantee::Local }
            }

            /// Returns the time by which the work must have ended, by the guard's clock, unless this node renews its
            /// grant before. Each call may return a later time. `None` for a slot of the local share.
            ///
            /// If timers may be late, pass this time to the service that does the work, and let it reject what arrives
            /// later.
            pub fn dies(&self) -> Option<Timestamp> {
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
        }

        debug_fields!([$($life,)? C: LeaseClock] $name<$($life,)? C>, |it| dies = it.dies());
    };
}

permit!(FleetPermit<'a>);
permit!(OwnedFleetPermit);

impl<'a, C: LeaseClock> FleetPermit<'a, C> {
    #[inline(always)]
    pub(super) fn new(permit: Permit<'a, BootClock>, shared: &'a Shared<C>, row: Option<Row>) -> Self {
        Self { permit, hold: Hold::new(shared, row) }
    }
}

impl<C: LeaseClock> OwnedFleetPermit<C> {
    /// See [`OwnedPermit::elapsed`].
    pub(crate) fn elapsed(&self) -> Option<Duration> {
        self.permit.elapsed()
    }

    pub(super) fn new(permit: OwnedPermit<BootClock>, shared: Arc<Shared<C>>, row: Option<Row>) -> Self {
        Self { permit, hold: Hold::new(shared, row) }
    }
}
