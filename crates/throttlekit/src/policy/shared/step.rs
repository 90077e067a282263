//! The steps that a policy evaluates in sequence, and their bills.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use throttlekit_core::Decision;
use tokio::sync::Notify;

use crate::admit::LimitInfo;
pub(super) use crate::call::OwnedCall;
use crate::policy::Axes;
use crate::store::{Background, StoreError};
use crate::{Axis, Guarantee, LimitName};

pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The work to do when a bill is closed: returns units or charges the rest. An error means that the outcome is unknown.
/// It notifies before it pauses for a retry: the caller does not have to wait for that.
pub(super) type Job = Box<dyn FnOnce(Arc<Notify>) -> Later<'static, Result<(), StoreError>> + Send>;

/// Limits that are evaluated at once: in process, by a leased limiter, or in one call to a store.
pub(super) trait Step: Send + Sync {
    /// Returns the first and the last axis of its limits: steps are evaluated in this order.
    fn axes(&self) -> (Axis, Axis);

    /// Checks whether its charge can be returned when a later step denies.
    fn hands_back(&self) -> bool;

    /// Returns its limits, for response headers.
    fn limits(&self) -> Vec<LimitInfo>;

    /// Decides a call, and charges it if allowed.
    fn charge(self: Arc<Self>, call: Arc<OwnedCall>) -> Later<'static, Result<Charged, StoreError>>;
}

/// The result of a step.
pub(super) struct Charged {
    pub(super) axes: Axes,
    pub(super) guarantee: Guarantee,
    pub(super) outage: Option<StoreError>,
    /// The charge, if there is one.
    pub(super) bill: Option<Box<dyn Bill>>,
}

/// The charge of a call by one step. If dropped open, all of it is returned.
pub(super) trait Bill: Send + Sync {
    /// Charges units that were not reserved, if allowed. The charge is final only when it is
    /// [confirmed](Self::confirm).
    fn debit(&mut self, tokens: u64) -> Later<'_, Result<(Decision, Guarantee), StoreError>>;

    /// Returns the name of the limit that denied the last debit, if one did and has a name.
    fn limit_name(&self) -> Option<LimitName> {
        None
    }

    /// Confirms the last debit: every step allowed it.
    fn confirm(&mut self);

    /// Rejects the last debit: its charge is to be returned.
    fn reject(&mut self) -> Option<Job>;

    /// Closes the bill: `used` units of the reservation were used; `None` means that the call is not charged at all.
    /// Returns the work to do for that, once: a second call returns nothing.
    fn close(&mut self, used: Option<u64>) -> Option<Job>;
}

/// Store deadlines to wait for a step: the longest wait of a leased limiter.
const STEP_DEADLINES: u32 = 10;

/// Runs a future to completion, whether or not the caller waits for it: in the caller as long as it does not block,
/// then in a background task. A result that no caller waits for is dropped. An error means that the wait timed out.
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
