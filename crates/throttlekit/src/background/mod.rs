//! Background work that does not depend on the caller's runtime.
//!
//! Probes, lease requests, renewals, returns, settlements, sweeps and the connections themselves outlive the call that
//! starts them, and other calls depend on them. On the runtime of the first caller they would stop with that runtime:
//! when it is dropped, when nothing drives it, while its thread computes. So they run on a [`Background`]: one driver
//! thread of the process, or a runtime that the owner of the store names.
//!
//! * [`Background`] spawns, and bounds every wait for what it spawned.
//! * [`TaskSlot`] holds a task that must exist at most once: any caller that needs it restarts it if it has ended.
//! * [`Mailbox`] is the queue of such a task.
//!
//! The reasons are in [decision 20](https://github.com/throttlekit/throttlekit/blob/main/docs/contribute/decisions/0020-background-work.md).

mod driver;
mod mailbox;
mod task_slot;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tokio::time::{Sleep, sleep, timeout};

pub(crate) use self::mailbox::Mailbox;
pub use self::task_slot::TaskSlot;
use crate::store_error::StoreError;

/// Deadline of calls to a store that sets none.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(1);

/// Runtime of a store's background work, and the longest time that its calls take.
///
/// Default: the driver thread of the process, named `throttlekit`, which the first task starts, and a deadline of one
/// second. A store returns its own from [`Store::background`](crate::store::Store::background), and everything built on
/// that store uses it.
#[derive(Clone, Debug)]
pub struct Background {
    runtime: Option<Handle>,
    deadline: Duration,
}

impl Default for Background {
    fn default() -> Self {
        Self { runtime: None, deadline: DEADLINE_DEFAULT }
    }
}

impl Background {
    /// Runs tasks and timers on this runtime instead of the driver thread. It needs timers and I/O, and must be driven
    /// for as long as the store is used: while it is blocked, so are calls; after it has ended they fail.
    pub fn on(self, runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Sets the longest that one call to the store takes until it returns. Default: 1 s.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the longest that one call to the store takes until it returns.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Starts a task. The caller needs no runtime.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime().spawn(task)
    }

    /// Runs `work` as a task and waits for it, for up to `deadlines` deadlines and one of slack. The task continues if
    /// the caller leaves or stops waiting. A panic in it continues in the caller.
    pub async fn run<T: Send + 'static>(
        &self,
        deadlines: u32,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let task = self.spawn(work);
        self.wait(deadlines, async { joined(task.await) }).await?
    }

    /// Runs `work` as a task, and drops it if the caller leaves. `work` has a deadline of its own.
    pub async fn run_attached<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let task = self.spawn(work);
        let _attached = AbortOnDrop(task.abort_handle());
        joined(task.await)
    }

    /// Makes a request in a task of its own, for up to one deadline, and calls `land` with the result: once, however
    /// the request ends. Must not be called under a lock that `land` takes: a runtime that accepts no more tasks drops
    /// this one at once, and `land` is called before this returns.
    pub(crate) fn request<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
        land: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) {
        let (deadline, landing) = (self.deadline, Landing(Some(Box::new(land))));
        self.spawn(async move {
            let answer = timeout(deadline, request).await;
            landing.end(answer.unwrap_or(Err(StoreError::Deadline(deadline))));
        });
    }

    /// Waits for the result of a background task, for up to `deadlines` deadlines and one of slack: the task has its
    /// own deadline, and this one applies only if that is missed, as when its thread is blocked.
    pub async fn wait<T>(&self, deadlines: u32, done: impl Future<Output = T>) -> Result<T, StoreError> {
        let wait = self.deadline.saturating_mul(deadlines.saturating_add(1));
        self.within(wait, done).await.ok_or(StoreError::Deadline(self.deadline))
    }

    /// Waits for `done`, but no longer than `wait`. The timer runs on the background: the caller needs no runtime, and
    /// its runtime has no effect on it.
    pub async fn within<T>(&self, wait: Duration, done: impl Future<Output = T>) -> Option<T> {
        let (mut done, mut timer) = (pin!(done), pin!(self.sleep(wait)));
        poll_fn(|context| match done.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Returns a timer of the background, for any executor.
    pub fn sleep(&self, wait: Duration) -> Sleep {
        self.enter(|| sleep(wait))
    }

    /// Runs `make` immediately. Timers, tasks and connections that it creates belong to the background.
    pub fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        let runtime = self.runtime();
        let _entered = runtime.enter();
        make()
    }

    fn runtime(&self) -> Handle {
        self.runtime.clone().unwrap_or_else(driver::handle)
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The handler for the result of a request. A request that is dropped before its response panicked, or its runtime
/// ended.
struct Landing<T>(Option<Land<T>>);

type Land<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

impl<T> Landing<T> {
    fn end(mut self, answer: Result<T, StoreError>) {
        self.land(answer);
    }

    fn land(&mut self, answer: Result<T, StoreError>) {
        if let Some(land) = self.0.take() {
            land(answer);
        }
    }
}

impl<T> Drop for Landing<T> {
    fn drop(&mut self) {
        self.land(Err(StoreError::unavailable("the request was dropped before it completed")));
    }
}

/// Returns the result of a task, an outage error if it was dropped, or resumes its panic.
fn joined<T>(ended: Result<T, JoinError>) -> Result<T, StoreError> {
    ended.map_err(|ended| match ended.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => StoreError::unavailable("the background runtime ended before the call completed"),
    })
}
