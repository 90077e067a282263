//! The public queue.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::turn::Jitter;

use super::NotReady;
use super::builder::{QueueBuilder, Settings};
use super::key_queues::{Full, KeyQueues, Spot};
use super::position::{Position, TurnClock};
use super::waiter::{First, Request, Waiter};
use crate::admit::{Admission, Admit, Admitting, Denied};
use crate::{Call, Retry};

/// Waits for a limiter, in order: first come, first served for each key and priority.
///
/// Clones share the queue. A call that need not wait takes one atomic load more than the limiter alone, if no call waits;
/// otherwise one short lock. See the [module](super) for its guarantees.
///
/// ```
/// use std::time::Duration;
/// use throttlekit::{Limiter, Rate};
/// use throttlekit::wait::{NotReady, Queue};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let queue = Queue::new(Limiter::new(Rate::per_hour(1))?);
/// queue.until_ready("alice").await?;
/// // The next one passes in an hour, which is longer than it may wait: it fails at once.
/// let late = queue.until_ready_timeout("alice", Duration::from_secs(5)).await;
/// assert!(matches!(late, Err(NotReady::Timeout(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<A>(Arc<Inner<A>>);

pub(crate) struct Inner<A> {
    limiter: A,
    queues: Arc<KeyQueues>,
    clock: TurnClock,
    settings: Settings,
}

impl<A: Admit> Queue<A> {
    /// Creates a queue in front of a limiter, with a wait of at most 60 s and at most 10,000 waiters.
    pub fn new(limiter: A) -> Self {
        Self::from_parts(limiter, Settings::default())
    }

    /// Describes a queue in front of a limiter.
    pub fn builder(limiter: A) -> QueueBuilder<A> {
        QueueBuilder::new(limiter)
    }

    pub(super) fn from_parts(limiter: A, settings: Settings) -> Self {
        let queues = Arc::new(KeyQueues::new(settings.max_waiters));
        Self(Arc::new(Inner { limiter, queues, clock: TurnClock::start(), settings }))
    }

    /// Waits until the limiter admits the call, at most for [`max_wait`](QueueBuilder::max_wait).
    ///
    /// The future can be dropped at any time: it leaves the queue, and its turn passes on.
    pub async fn until_ready<'c>(&self, call: impl Into<Call<'c>>) -> Result<Admission, NotReady> {
        self.0.ready_within(call.into(), self.0.settings.max_wait).await
    }

    /// Like [`until_ready`](Self::until_ready), but waits no longer than `timeout`. With a timeout of zero the call is
    /// decided once: denied if others of its key wait, and otherwise by the limiter, which may take up to
    /// [`max_wait`](QueueBuilder::max_wait) to respond.
    pub async fn until_ready_timeout<'c>(
        &self,
        call: impl Into<Call<'c>>,
        timeout: Duration,
    ) -> Result<Admission, NotReady> {
        self.0.ready_within(call.into(), timeout.min(self.0.settings.max_wait)).await
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &A {
        &self.0.limiter
    }

    /// Returns the number of waiters of all keys.
    pub fn waiting(&self) -> usize {
        self.0.queues.waiting() as usize
    }

    pub(crate) fn inner(&self) -> &Inner<A> {
        &self.0
    }
}

impl<A: Admit> Inner<A> {
    async fn ready_within(&self, call: Call<'_>, wait_max: Duration) -> Result<Admission, NotReady> {
        match self.begin(&call)? {
            First::Ready(admission) => Ok(admission),
            // Boxed, so that a call that need not wait moves few bytes.
            first => Box::pin(Waiter::new(self, call, wait_max).run(first)).await,
        }
    }

    /// Continues a call that has begun, for at most `max_wait`.
    pub(crate) async fn resume(&self, call: Call<'_>, first: First) -> Result<Admission, NotReady> {
        Waiter::new(self, call, self.settings.max_wait).run(first).await
    }

    /// Takes the first step of a call: joins the waiters of its key, or requests the limiter if there are none.
    #[inline]
    pub(super) fn begin(&self, call: &Call<'_>) -> Result<First, NotReady> {
        self.begin_by(call, |limiter| limiter.admit(*call))
    }

    /// Like `begin`, with another way to request the limiter.
    #[inline]
    pub(crate) fn begin_by(
        &self,
        call: &Call<'_>,
        admit: impl FnOnce(&A) -> Admitting,
    ) -> Result<First, NotReady> {
        let joined = self.queues.join_waiting(self.key(call), class(call), || self.clock.now());
        if let Some(spot) = joined.map_err(full)? {
            return Ok(First::Joined(self.position(spot)));
        }
        Ok(match admit(&self.limiter).now_or_later() {
            Ok(Ok(admission)) if starts_now(&admission) => First::Ready(admission),
            Ok(decided) => {
                First::Requested(Request { admitting: Admitting::ready(decided), needs_io: false })
            }
            Err(admitting) => First::Requested(Request { admitting, needs_io: true }),
        })
    }

    /// Requests the limiter for the waiter whose turn it is. If the limiter has a queue for slots, this waits there.
    pub(super) fn request(&self, call: &Call<'_>) -> Admitting {
        self.limiter.admit_queued(*call)
    }

    /// Joins the queue of the call's key after a denial.
    pub(super) fn join(&self, call: &Call<'_>, denied: Denied) -> Result<Position, NotReady> {
        let spot = self.queues.join(self.key(call), class(call), denied, self.clock.now());
        Ok(self.position(spot.map_err(full)?))
    }

    /// Returns the maximum time for the first request of a call that may wait for `wait_max`.
    pub(super) fn response_max(&self, wait_max: Duration) -> Duration {
        if wait_max.is_zero() { self.settings.max_wait } else { wait_max }
    }

    pub(super) fn jitter(&self) -> Jitter {
        self.settings.jitter
    }

    fn position(&self, spot: Spot) -> Position {
        Position::new(self.queues.clone(), spot, self.clock)
    }

    #[inline]
    fn key<'c>(&self, call: &Call<'c>) -> &'c [u8] {
        if self.settings.ignore_keys { b"" } else { call.key() }
    }
}

#[inline]
fn class(call: &Call<'_>) -> u8 {
    call.of_priority().class()
}

fn full(Full(denied): Full) -> NotReady {
    NotReady::Full(denied)
}

#[inline]
fn starts_now(admission: &Admission) -> bool {
    admission.allowed && !matches!(admission.retry_after, Retry::After(_))
}

impl<A> Clone for Queue<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

debug_fields!([A] Queue<A>, |it| waiting = it.0.queues.waiting(), settings = it.0.settings);
