//! The batcher: requests that wait for a connection are sent as one batch.
//!
//! A commit waits for the disk, and on a hot key each waits for the one before. So there are as many send permits as
//! connections, and a request that finds none free waits in a queue. The next free permit takes all waiting requests,
//! up to a bound, as one batch: one call, one commit. Each gets the response that it would get alone, in order. Without
//! load nothing waits and nothing is merged.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use throttlekit::internals::Mutex;
use throttlekit::store::{Charges, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use crate::batch::{Batch, EncodedRequest, split};
use crate::error::Failure;
use crate::store::Inner;

/// Maximum number of requests in one merged batch. Their rows are locked until it commits.
const BATCH_MAX: usize = 64;
/// The fraction of the deadline that a batch of unrelated requests waits for a row.
const ROW_WAIT_PART: u32 = 10;
/// The same while the locked row is being isolated.
const ROW_WAIT_PART_AGAIN: u32 = 25;

/// The send permits of one store, and the requests that wait for one.
pub(crate) struct Batcher {
    free: Arc<Semaphore>,
    waiting: Mutex<VecDeque<Waiting>>,
}

struct Waiting {
    request: EncodedRequest,
    since: Instant,
    tell: oneshot::Sender<Result<Vec<i64>, Failure>>,
}

/// The permit to send one batch. When it is dropped, also on cancellation, the next batch is sent.
struct SendPermit {
    inner: Arc<Inner>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Batcher {
    pub(crate) fn new(permits: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(permits)), waiting: Mutex::default() }
    }

    /// Takes the next batch, without requests whose callers have gone.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        let mut batch = Vec::new();
        let mut asks = 0;
        while asks < BATCH_MAX
            && let Some(next) = waiting.pop_front()
        {
            if next.waits() {
                asks += next.request.asks();
                batch.push(next);
            }
        }
        batch
    }
}

impl Inner {
    /// Returns the server's reply to these requests.
    pub(crate) async fn admit(self: &Arc<Self>, asks: &[Charges<'_>]) -> Result<Vec<i64>, Failure> {
        let since = Instant::now();
        self.ready().await?;
        let request = EncodedRequest::of(asks, self.about_now());
        if let Some(send_permit) = self.send_permit() {
            let alone = async move { send_permit.inner.send(&Batch::merged(&[&request]), None).await };
            return self.in_background(alone).await;
        }
        let (tell, told) = oneshot::channel();
        self.batcher.waiting.lock().push_back(Waiting { request, since, tell });
        self.go_on();
        told.await.unwrap_or_else(|_| Err(StoreError::unavailable("the store is being dropped").into()))
    }

    fn send_permit(self: &Arc<Self>) -> Option<SendPermit> {
        let permit = self.batcher.free.clone().try_acquire_owned().ok()?;
        Some(SendPermit { inner: self.clone(), permit: Some(permit) })
    }

    /// Sends waiting requests if a send permit is free. Called after each change of either.
    fn go_on(self: &Arc<Self>) {
        if self.batcher.waiting.lock().is_empty() {
            return;
        }
        if let Some(send_permit) = self.send_permit() {
            self.builder.background.spawn(send_permit.run());
        }
    }

    /// Sends one batch for all waiting requests.
    ///
    /// A row that is locked, or that holds a foreign value, must not block unrelated requests. So a batch waits for
    /// rows only briefly. If the server aborts it, nothing was written, and it is sent again in halves, until the
    /// blocked requests are isolated. These are sent last, and wait for as long as their callers do. Requests that
    /// share keys stay together and in order. A batch that is not known to be rolled back is not sent again.
    async fn send_batch(&self, batch: Vec<Waiting>) {
        let deadline = self.link.deadline;
        let mut row_wait = deadline / ROW_WAIT_PART;
        let mut ahead = vec![related(batch)];
        let mut alone = VecDeque::new();
        while let Some(mut groups) = ahead.pop() {
            groups.iter_mut().for_each(|group| group.retain(Waiting::waits));
            groups.retain(|group| !group.is_empty());
            // A batch with only one group blocks no other requests, and no other request waits for it.
            if groups.len() == 1 && ahead.is_empty() {
                alone.extend(groups);
                continue;
            }
            let Some(failure) = self.send_groups(&mut groups, row_wait).await else { continue };
            row_wait = deadline / ROW_WAIT_PART_AGAIN;
            if groups.len() == 1 && failure.undone {
                alone.extend(groups);
            } else if failure.undone {
                let later = groups.split_off(groups.len() / 2);
                ahead.extend([later, groups]);
            } else {
                tell_all(groups, &failure);
            }
        }
        while let Some(mut group) = alone.pop_front() {
            group.retain(Waiting::waits);
            let Some(oldest) = group.first() else { continue };
            // The server must respond before the callers stop waiting.
            let left = self.builder.row_wait().saturating_sub(oldest.since.elapsed());
            let mut groups = vec![group];
            let Some(failure) = self.send_groups(&mut groups, left).await else { continue };
            let mut group = groups.pop().unwrap_or_default();
            if matches!(failure.error, StoreError::BadState(_)) && group.len() > 1 {
                let later = group.split_off(group.len() / 2);
                alone.push_front(later);
                alone.push_front(group);
            } else {
                tell_all(vec![group], &failure);
            }
        }
    }

    /// Sends groups as one batch. Either all got their replies and are removed, or it failed and all remain.
    async fn send_groups(&self, groups: &mut Vec<Vec<Waiting>>, row_wait: Duration) -> Option<Failure> {
        let requests: Vec<&EncodedRequest> =
            groups.iter().flatten().map(|waiting| &waiting.request).collect();
        if requests.is_empty() {
            return None;
        }
        let deadline = self.link.deadline;
        let work = async { self.send(&Batch::merged(&requests), Some(row_wait)).await };
        let reply = match timeout(deadline, work).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(failure)) => return Some(failure),
            Err(_) => return Some(StoreError::Deadline(deadline).into()),
        };
        let replies = split(&requests, &reply);
        for (waiting, reply) in groups.drain(..).flatten().zip(replies) {
            // A caller that has gone gets no reply.
            let _ = waiting.tell.send(reply.map_err(Failure::from));
        }
        None
    }
}

impl Waiting {
    fn waits(&self) -> bool {
        !self.tell.is_closed()
    }
}

fn tell_all(groups: Vec<Vec<Waiting>>, failure: &Failure) {
    for waiting in groups.into_iter().flatten() {
        let _ = waiting.tell.send(Err(failure.clone()));
    }
}

/// Groups requests that share keys, directly or through others, in order.
fn related(batch: Vec<Waiting>) -> Vec<Vec<Waiting>> {
    let mut group_of: Vec<usize> = (0..batch.len()).collect();
    let mut seen = HashMap::new();
    for (i, waiting) in batch.iter().enumerate() {
        for key in waiting.request.keys() {
            let (ours, theirs) = (group_of[i], group_of[*seen.entry(key).or_insert(i)]);
            if ours != theirs {
                let joined = ours.min(theirs);
                group_of[..=i].iter_mut().filter(|g| **g == ours || **g == theirs).for_each(|g| *g = joined);
            }
        }
    }
    let mut groups = BTreeMap::<usize, Vec<Waiting>>::new();
    for (group, waiting) in group_of.into_iter().zip(batch) {
        groups.entry(group).or_default().push(waiting);
    }
    groups.into_values().collect()
}

impl SendPermit {
    async fn run(self) {
        loop {
            let batch = self.inner.batcher.take();
            if batch.is_empty() {
                return;
            }
            self.inner.send_batch(batch).await;
        }
    }
}

impl Drop for SendPermit {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.inner.go_on();
    }
}
