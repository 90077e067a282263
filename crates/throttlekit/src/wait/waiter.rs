//! One call that may have to wait.

use std::time::Duration;

use throttlekit_core::turn::{Pause, RetryPace};
use tokio::time::{Instant, sleep, timeout};

use super::NotReady;
use super::position::{Position, until};
use super::queue::Inner;
use super::verdict::Verdict;
use crate::admit::{Admission, Admit, Admitting, Denied, StoreError};
use crate::hash::random_u64;
use crate::{Call, Decision, Retry};

/// The first step of a call.
pub(crate) enum First {
    /// Admitted at once.
    Ready(Admission),
    /// The limiter was requested.
    Requested(Request),
    /// Others wait; the call has joined them.
    Joined(Position),
}

/// A request to the limiter.
pub(crate) struct Request {
    pub(super) admitting: Admitting,
    /// `true` if the limiter does not decide in process.
    pub(super) needs_io: bool,
}

/// A call that is not admitted at once.
pub(super) struct Waiter<'a, A> {
    queue: &'a Inner<A>,
    call: Call<'a>,
    wait_max: Duration,
    deadline: Instant,
    pace: RetryPace,
    /// The instant before which a request is in vain.
    not_before: Instant,
    /// The last denial of this call.
    denied: Option<Denied>,
}

impl<'a, A: Admit> Waiter<'a, A> {
    pub(super) fn new(queue: &'a Inner<A>, call: Call<'a>, wait_max: Duration) -> Self {
        let now = Instant::now();
        let (deadline, pace) = (now + wait_max, RetryPace::default());
        Self { queue, call, wait_max, deadline, pace, not_before: now, denied: None }
    }

    /// Continues a call after its first step.
    pub(super) async fn run(mut self, first: First) -> Result<Admission, NotReady> {
        match first {
            First::Ready(admission) => Ok(admission),
            First::Joined(position) => self.wait(position).await,
            First::Requested(request) => {
                let most = self.queue.response_max(self.wait_max);
                let result = timeout(most, request.admitting).await;
                let result = result.unwrap_or(Err(StoreError::Deadline(most)));
                match Verdict::of(result)? {
                    Verdict::Admitted(admission) => self.start(admission).await,
                    Verdict::Denied(denied) => {
                        self.pause(denied, request.needs_io)?;
                        let position = self.queue.join(&self.call, denied)?;
                        self.wait(position).await
                    }
                }
            }
        }
    }

    /// Requests in each turn, until the limiter admits the call.
    async fn wait(mut self, position: Position) -> Result<Admission, NotReady> {
        while position.turn(self.not_before, self.deadline).await {
            let request = self.queue.request(&self.call);
            let Some((result, needs_io)) = position.result(request, self.deadline).await else { break };
            match Verdict::of(result)? {
                Verdict::Admitted(admission) => {
                    position.admitted();
                    return self.start(admission).await;
                }
                Verdict::Denied(denied) => {
                    self.pause(denied, needs_io)?;
                    position.denied(denied);
                }
            }
        }
        Err(match self.denied.or_else(|| position.last_denial()) {
            Some(denied) => NotReady::Timeout(denied),
            None => NotReady::Store(StoreError::Deadline(self.wait_max)),
        })
    }

    /// Sets the pause after a denial. Fails at once if the exact wait is known to exceed the deadline.
    fn pause(&mut self, denied: Denied, needs_io: bool) -> Result<(), NotReady> {
        let left = until(self.deadline);
        let pause = match self.pace.pause(denied.decision.retry_after, needs_io) {
            Pause::Exact(wait) if wait <= left => wait,
            Pause::Guess(wait) if !left.is_zero() => wait,
            Pause::Exact(_) | Pause::Guess(_) => return Err(NotReady::Timeout(denied)),
            _ => return Err(NotReady::Never(denied)),
        };
        let pause = self.queue.jitter().add(pause, needs_io, random_u64()).min(left);
        (self.not_before, self.denied) = (Instant::now() + pause, Some(denied));
        Ok(())
    }

    /// Waits until an admitted call may start: a shaper states when.
    async fn start(self, admission: Admission) -> Result<Admission, NotReady> {
        let Retry::After(delay) = admission.retry_after else { return Ok(admission) };
        if delay > until(self.deadline) {
            let decision = Decision { allowed: false, ..admission.decision() };
            let guarantee = admission.guarantee;
            return Err(NotReady::Timeout(Denied { axis: None, limit_name: None, decision, guarantee }));
        }
        sleep(delay).await;
        Ok(admission)
    }
}
