//! A runtime with a thread of its own, which runs jobs and misbehaves on request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::schedule::{Caller, Misbehaviour, RuntimeKind, Timing};
use super::shared::{Boxed, Found, Seen, Shared, Step, Watch};
use throttlekit_conformance::Dice;

/// A job that uses the runtime on its thread. The runtime is `None` once it was dropped.
type Job = Box<dyn FnOnce(&mut Held) + Send>;

/// The state of the thread.
pub(super) struct Held {
    pub(super) runtime: Option<Runtime>,
    /// A future that is no longer polled.
    kept: Option<Boxed<Seen>>,
}

/// A thread that drives a runtime while it has a job.
pub(super) struct Actor {
    jobs: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// One call, as its caller saw it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) begun: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) seen: Seen,
}

/// The script of a caller, with its start and end.
#[derive(Clone)]
pub(super) struct Script {
    pub(super) caller: Caller,
    pub(super) begun: Timestamp,
    pub(super) until: Duration,
    /// The duration of the first call's work, if that runs under a lease.
    pub(super) first_work: Duration,
    pub(super) leases_survive: bool,
    pub(super) timing: Timing,
    pub(super) found: Found,
}

impl Actor {
    pub(super) fn start(kind: RuntimeKind) -> Self {
        let (jobs, queue) = channel();
        let body = move || serve(kind, &queue);
        let thread = thread::Builder::new().name("caller".into()).spawn(body).expect("a thread");
        Self { jobs: Some(jobs), thread: Some(thread) }
    }

    /// Runs a job with the runtime. The receiver gets the result, or is closed where it panicked.
    pub(super) fn tell<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Held) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (told, hears) = channel();
        let job: Job = Box::new(move |held| drop(told.send(job(held))));
        // A thread that has panicked accepts no more jobs: then the receiver is closed.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
        hears
    }

    /// Runs a future to completion.
    pub(super) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Receiver<T> {
        self.tell(move |held| match &held.runtime {
            Some(runtime) => runtime.block_on(future),
            None => unreachable!("it has not misbehaved yet"),
        })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn serve(kind: RuntimeKind, jobs: &Receiver<Job>) {
    let runtime = match kind {
        RuntimeKind::CurrentThread => Builder::new_current_thread().enable_all().build(),
        RuntimeKind::MultiThread(workers) => {
            Builder::new_multi_thread().worker_threads(workers).enable_all().build()
        }
    };
    let mut held = Held { runtime: Some(runtime.expect("a runtime")), kept: None };
    while let Ok(job) = jobs.recv() {
        job(&mut held);
    }
}

impl Script {
    fn now(&self) -> Duration {
        BootClock.now().since(self.begun)
    }

    /// Makes calls until the end.
    pub(super) async fn play(self, shared: Arc<dyn Shared>) -> Vec<Call> {
        sleep(self.caller.starts.saturating_sub(self.now())).await;
        let (mut dice, mut calls) = (Dice::new(self.caller.seed), Vec::new());
        while self.now() < self.until {
            let begun = BootClock.now();
            let work = if calls.is_empty() { self.first_work } else { Duration::from_millis(dice.below(20)) };
            let mut future = shared.clone().call(self.step(dice.roll(), work));
            let seen = match self.caller.polls {
                Some(polls) => some_polls(&mut future, polls).await.unwrap_or(Seen::Dropped),
                None => future.as_mut().await,
            };
            drop(future);
            calls.push(Call { begun, ended: BootClock.now(), seen });
            if !self.found.all().is_empty() {
                return calls;
            }
            sleep(self.caller.pause).await;
        }
        calls
    }

    fn step(&self, dice: u64, work: Duration) -> Step {
        let Self { caller, leases_survive, timing, found, .. } = self;
        let watch = Watch::new(caller.own_timeout, *leases_survive, *timing, found.clone());
        Step { dice, work, watch }
    }

    /// Makes the last call before a runtime is left: polled once or a few times, and not to completion.
    async fn last(&self, shared: Arc<dyn Shared>) -> Option<Boxed<Seen>> {
        let mut future = shared.call(self.step(self.caller.seed ^ 1, Duration::ZERO));
        let done = some_polls(&mut future, self.caller.polls.unwrap_or(1)).await;
        done.is_none().then_some(future)
    }
}

/// Polls a future `polls` times, or until it is done.
async fn some_polls<T>(future: &mut Boxed<T>, polls: u64) -> Option<T> {
    let mut left = polls;
    std::future::poll_fn(|context| {
        left -= 1;
        match Pin::new(&mut *future).poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Runs a script to its end, on the workers where there are some.
pub(super) fn play(held: &mut Held, script: Script, shared: Arc<dyn Shared>) -> Vec<Call> {
    let runtime = held.runtime.as_ref().expect("it does not misbehave");
    let playing = runtime.spawn(script.play(shared));
    runtime.block_on(playing).unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()))
}

/// Runs until `at`, then misbehaves. Returns once it only misbehaves.
pub(super) fn misbehave(
    held: &mut Held,
    script: &Script,
    shared: Arc<dyn Shared>,
    how: Misbehaviour,
    at: Duration,
) {
    let runtime = held.runtime.as_ref().expect("it does not misbehave yet");
    let before = Script { until: at, ..script.clone() };
    if how == Misbehaviour::Cancels {
        runtime.block_on(script.clone().play(shared));
        return;
    }
    // Calls are completed until it misbehaves.
    let whole = Caller { polls: None, ..before.caller };
    runtime.block_on(Script { caller: whole, ..before }.play(shared.clone()));
    held.kept = runtime.block_on(script.last(shared.clone()));
    match how {
        Misbehaviour::Idle { keeps_future: true } | Misbehaviour::Cancels => {}
        Misbehaviour::Idle { .. } => held.kept = None,
        Misbehaviour::Dropped => {
            held.kept = None;
            held.runtime = None;
        }
        Misbehaviour::Blocked(lasts) => {
            held.kept = None;
            block(runtime, lasts);
            let whole = Caller { polls: None, ..script.caller };
            runtime.block_on(Script { caller: whole, ..script.clone() }.play(shared));
        }
    }
}

/// Drops a future that is no longer polled: the others are done with it.
pub(super) fn let_go(held: &mut Held) {
    held.kept = None;
}

/// Blocks every thread of a runtime with computation for a while.
fn block(runtime: &Runtime, lasts: Duration) {
    let workers = runtime.metrics().num_workers();
    let blocked: Vec<_> = (0..workers).map(|_| runtime.spawn(async move { thread::sleep(lasts) })).collect();
    runtime.block_on(async {
        for worker in blocked {
            let _ = worker.await;
        }
    });
}
