//! What a policy asks one after the other, and what it owes for it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use throttlekit_core::{Cost, Decision};
use tokio::sync::Notify;

use crate::Guarantee;
use crate::admission::{Axes, Axis, Call};
use crate::store::{Background, StoreError};

pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is to be done when a bill is closed: gives back or takes what is left to. An error says that nobody knows whether it
/// was done. It rings before it pauses, to be tried again: nobody has to wait for that.
pub(super) type Job = Box<dyn FnOnce(Arc<Notify>) -> Later<'static, Result<(), StoreError>> + Send>;

/// Limits that are asked at once: in process, by a node that leases, or in one call to a store.
pub(super) trait Step: Send + Sync {
    /// The first axis of its limits, and the last: steps are asked in this order.
    fn axes(&self) -> (Axis, Axis);

    /// Whether what it charged can be given back when a later step denies.
    fn hands_back(&self) -> bool;

    /// Answers a call, and charges it if allowed.
    fn charge(self: Arc<Self>, call: Arc<OwnedCall>) -> Later<'static, Result<Charged, StoreError>>;
}

/// What a step says.
pub(super) struct Charged {
    pub(super) axes: Axes,
    pub(super) guarantee: Guarantee,
    pub(super) outage: Option<StoreError>,
    /// What was charged, if it was.
    pub(super) bill: Option<Box<dyn Bill>>,
}

/// What a call was charged by one step. Dropped open, all of it goes back.
pub(super) trait Bill: Send + Sync {
    /// Charges units that were not set aside, if allowed. They stand only when they are [confirmed](Self::confirm).
    fn debit(&mut self, tokens: Cost) -> Later<'_, Result<(Decision, Guarantee), StoreError>>;

    /// The last debit stands: every step allowed it.
    fn confirm(&mut self);

    /// The last debit does not stand: what it charged is to be given back.
    fn reject(&mut self) -> Option<Job>;

    /// Closes it: what was set aside was used up to `used`; or nothing of it ever was, and no limit is charged at all. What
    /// is to be done for that, once: a second time there is nothing.
    fn close(&mut self, used: Option<Cost>) -> Option<Job>;
}

/// A call that outlives whoever made it.
#[derive(Debug)]
pub(super) struct OwnedCall {
    keys: Box<[Box<[u8]>]>,
    pub(super) estimate: Cost,
}

impl OwnedCall {
    pub(super) fn of(call: &Call<'_>) -> Arc<Self> {
        let keys = (0..call.keys()).map(|place| call.key_at(place).into()).collect();
        Arc::new(Self { keys, estimate: call.estimate() })
    }

    pub(super) fn key_at(&self, place: usize) -> &[u8] {
        self.keys.get(place).map_or(&[], |key| key)
    }

    /// The keys after the first.
    pub(super) fn others(&self) -> Vec<&[u8]> {
        self.keys[1..].iter().map(|key| &**key).collect()
    }

    /// The call as limits in process see it.
    pub(super) fn borrowed<'a>(&'a self, others: &'a [&'a [u8]]) -> Call<'a> {
        Call::by(self.key_at(0)).and(others).cost(self.estimate)
    }
}

/// For how many deadlines of its store a step is waited for: as long as a leased limiter waits at most.
const STEP_DEADLINES: u32 = 10;

/// Does something to its end, whether or not anyone waits for it: on the way of the caller as long as it need not wait, then
/// in a background task. What comes of it for nobody is dropped. An error says that nobody waited any longer.
pub(super) async fn land<T: Send + 'static>(
    background: &Background,
    mut work: Later<'static, T>,
) -> Result<T, StoreError> {
    let first = poll_fn(|context| Poll::Ready(background.enter(|| work.as_mut().poll(context))));
    if let Poll::Ready(done) = first.await {
        return Ok(done);
    }
    background.run(STEP_DEADLINES, work).await
}
