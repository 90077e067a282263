//! Asks that wait for a connection travel together.
//!
//! A commit waits for the disk, and on a hot key each waits for the one before. So there are as many lanes as
//! connections, and an ask that finds none free waits in a queue. Whoever leaves a lane takes all that wait, up to a
//! bound, as one flight: one call, one commit. Each is answered as if it had come alone, in order. Without load nothing
//! waits and nothing is merged.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use throttlekit::store::{Charges, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::parcel::{Flight, Parcel, split};
use crate::store::Inner;

/// Asks in one merged flight. Their rows are held until it commits.
const FLIGHT_MAX: usize = 64;

/// The lanes of one store, and who waits for one.
pub(crate) struct Lanes {
    free: Arc<Semaphore>,
    waiting: Mutex<VecDeque<Waiting>>,
}

struct Waiting {
    parcel: Parcel,
    tell: oneshot::Sender<Result<Vec<i64>, StoreError>>,
}

/// A lane while something is under way on it. Whoever leaves it lets the next go on, also when given up.
struct Lane {
    inner: Arc<Inner>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Lanes {
    pub(crate) fn new(lanes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(lanes)), waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next flight, without those who have stopped waiting.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        let mut flight = Vec::new();
        let mut asks = 0;
        while asks < FLIGHT_MAX
            && let Some(next) = waiting.pop_front()
        {
            if !next.tell.is_closed() {
                asks += next.parcel.asks();
                flight.push(next);
            }
        }
        flight
    }
}

impl Inner {
    /// The server's reply to these asks.
    pub(crate) async fn admit(self: &Arc<Self>, asks: &[Charges<'_>]) -> Result<Vec<i64>, StoreError> {
        self.ready().await?;
        if let Some(_lane) = self.lane() {
            return self.send_asks(asks).await;
        }
        let (tell, told) = oneshot::channel();
        self.lanes.waiting().push_back(Waiting { parcel: Parcel::of(asks), tell });
        self.go_on();
        told.await.unwrap_or_else(|_| Err(StoreError::unavailable("the store is being dropped")))
    }

    fn lane(self: &Arc<Self>) -> Option<Lane> {
        let permit = self.lanes.free.clone().try_acquire_owned().ok()?;
        Some(Lane { inner: self.clone(), permit: Some(permit) })
    }

    /// Sends who waits on their way, if a lane is free. Called after each change of either.
    fn go_on(self: &Arc<Self>) {
        if self.lanes.waiting().is_empty() {
            return;
        }
        if let (Ok(runtime), Some(lane)) = (Handle::try_current(), self.lane()) {
            runtime.spawn(lane.run());
        }
    }

    /// One flight for all; where a key in it holds something foreign, one for each, as nothing was written.
    async fn send_flight(&self, flight: Vec<Waiting>) {
        let parcels: Vec<&Parcel> = flight.iter().map(|waiting| &waiting.parcel).collect();
        let together = self.send_merged(&parcels).await;
        let replies = match together {
            Err(StoreError::BadState(_)) if flight.len() > 1 => {
                let mut replies = Vec::with_capacity(flight.len());
                for waiting in &flight {
                    replies.push(self.send_merged(&[&waiting.parcel]).await);
                }
                replies
            }
            Err(error) => vec![Err(error); flight.len()],
            Ok(reply) => split(&parcels, &reply),
        };
        for (waiting, reply) in flight.into_iter().zip(replies) {
            // Who has stopped waiting is not told.
            let _ = waiting.tell.send(reply);
        }
    }

    async fn send_merged(&self, parcels: &[&Parcel]) -> Result<Vec<i64>, StoreError> {
        let deadline = self.link.deadline;
        let work = async { self.send(&Flight::merged(parcels)).await };
        timeout(deadline, work).await.unwrap_or(Err(StoreError::Deadline(deadline)))
    }
}

impl Lane {
    async fn run(self) {
        loop {
            let flight = self.inner.lanes.take();
            if flight.is_empty() {
                return;
            }
            self.inner.send_flight(flight).await;
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.inner.go_on();
    }
}
