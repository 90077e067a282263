//! A request on its way to the budget and back.

use std::sync::Arc;

use throttlekit_core::fair::branch::Request;
use tokio::time::timeout;

use super::Budget;
use super::limiter::Place;
use crate::LeaseClock;
use crate::store::{RegionGrant, StoreError};

/// One request for units. However it ends, the state learns of it, and everyone who waits wakes up.
pub(super) struct Fetch<B: Budget, C: LeaseClock + 'static> {
    place: Arc<Place<B, C>>,
    request: Request,
    landed: bool,
}

impl<B: Budget, C: LeaseClock + 'static> Fetch<B, C> {
    /// Sends it, as a background task: callers come and go. Not to be called while the state is locked: a
    /// runtime that takes no more tasks drops this one at once, and then locks the state.
    pub(super) fn start(place: &Arc<Place<B, C>>, request: Request) {
        let fetch = Self { place: place.clone(), request, landed: false };
        let deadline = place.background.deadline();
        place.background.spawn(async move {
            let answer = timeout(deadline, fetch.place.budget.more(request.weight, request.wants)).await;
            fetch.land(answer.unwrap_or(Err(StoreError::Deadline(deadline))));
        });
    }

    fn land(mut self, answer: Result<RegionGrant, StoreError>) {
        self.landed = true;
        self.place.land(self.request.id, answer);
    }
}

/// Dropped before its answer came: it panicked, or its runtime ended.
impl<B: Budget, C: LeaseClock + 'static> Drop for Fetch<B, C> {
    fn drop(&mut self) {
        if !self.landed {
            let dropped = StoreError::unavailable("the request was dropped before it was answered");
            self.place.land(self.request.id, Err(dropped));
        }
    }
}
