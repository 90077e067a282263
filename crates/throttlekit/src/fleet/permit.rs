//! Proof of admission to a fleet's ceiling, and the end of it where the fleet must be told nothing more.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use throttlekit_core::Timestamp;

use super::builder::FleetClock;
use super::guard::Shared;
use super::lease::Row;
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

/// The grant under which work was let in has died: others may have the slot. What was under way was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this node was cut off from its fleet, and its slots may be in use elsewhere")
    }
}

impl std::error::Error for Fenced {}

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

    /// Looks at the clock before each step of the work: a process that was stopped may be woken for it before its timers
    /// are.
    async fn run<F: Future>(&self, work: F) -> Result<F::Output, Fenced> {
        let (mut fenced, mut work) = (pin!(self.fenced()), pin!(work));
        poll_fn(|cx| match fenced.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Fenced)),
            Poll::Pending if !self.stands() => Poll::Ready(Err(Fenced)),
            Poll::Pending => work.as_mut().poll(cx).map(Ok),
        })
        .await
    }
}

/// A clock that reads behind shows an end that has come a little later; to look without a pause would be to spin.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

macro_rules! permit {
    ($name:ident $(<$life:lifetime>)?) => {
        impl<$($life,)? C: LeaseClock> $name<$($life,)? C> {
            /// The work was done. How long it took tells how loaded the backend is.
            #[inline]
            pub fn success(self) {
                self.permit.success();
            }

            /// The work was done, and took this long as far as the backend's load goes.
            #[inline]
            pub fn success_after(self, latency: Duration) {
                self.permit.success_after(latency);
            }

            /// The backend was too full for it: a timeout, a refusal, a crash.
            pub fn dropped(self) {
                self.permit.dropped();
            }

            /// It says nothing of the backend: another axis denied, or the caller went away.
            #[inline]
            pub fn ignored(self) {
                self.permit.ignored();
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
                self.hold.run(work).await
            }
        }

        impl<$($life,)? C: LeaseClock> fmt::Debug for $name<$($life,)? C> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("dies", &self.dies()).finish_non_exhaustive()
            }
        }
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
