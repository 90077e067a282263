//! Proof of admission to a fleet's ceiling, and the end of it where the fleet must be told nothing more.

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

/// A slot of the fleet's ceiling, held while work runs. As a [`Permit`] it is given back exactly once, however it goes.
#[must_use = "the slot is given back as soon as the permit is dropped"]
pub struct FleetPermit<'a, C: LeaseClock = FleetClock> {
    permit: Permit<'a, BootClock>,
    hold: Hold<&'a Shared<C>>,
}

/// A [`FleetPermit`] that lives on its own, for tasks and streams.
#[must_use = "the slot is given back as soon as the permit is dropped"]
pub struct OwnedFleetPermit<C: LeaseClock = FleetClock> {
    permit: OwnedPermit<BootClock>,
    hold: Hold<Arc<Shared<C>>>,
}

/// Under what a permit stands.
#[derive(Clone)]
pub(super) struct Hold<S> {
    shared: S,
    /// Nothing for one of this node's local share, which no grant ends.
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

    /// Looks again whenever the grant that was last seen is about to die: by then there is a later one, or none.
    async fn fenced(&self) {
        while self.stands() {
            let Some(dies) = self.dies() else { return std::future::pending().await };
            let wait = dies.since(self.shared.clock.now()).max(LOOK_AGAIN);
            self.shared.background.sleep(wait).await;
        }
    }
}

/// A clock that reads behind shows an end that has come a little later; to look without a pause would be to spin.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

macro_rules! permit {
    ($name:ident $(<$life:lifetime>)?) => {
        impl<$($life,)? C: LeaseClock> $name<$($life,)? C> {
            endings!();

            #[inline]
            pub(crate) fn end(self, ending: Ending, latency: Option<Duration>) {
                self.permit.end(ending, latency);
            }

            /// What it is worth: as much as the roll of the fleet, or one of this node's local share.
            pub fn guarantee(&self) -> Guarantee {
                if self.hold.row.is_some() { self.hold.shared.guarantee } else { Guarantee::Local }
            }

            /// When the work must have ended, by the guard's clock, unless this node hears of its fleet before. Later
            /// whenever it is asked. Nothing for one of the local share.
            ///
            /// Where timers may be late, tell it to whoever does the work: what comes after it, refuse.
            pub fn dies(&self) -> Option<Timestamp> {
                self.hold.dies()
            }

            /// Whether the work must have ended by now.
            pub fn is_fenced(&self) -> bool {
                !self.hold.stands()
            }

            /// Waits until the work must have ended, for ever while this node hears of its fleet.
            pub async fn fenced(&self) {
                self.hold.fenced().await;
            }

            /// Does the work, but no longer than it may be done: then it is dropped where it stands.
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
    pub(super) fn new(permit: OwnedPermit<BootClock>, shared: Arc<Shared<C>>, row: Option<Row>) -> Self {
        Self { permit, hold: Hold::new(shared, row) }
    }
}
