//! Processor time, shared between callers.
//!
//! The runtime alone runs tasks in the order in which they became ready: a caller that opens a hundred connections and
//! sends frames on each has a hundred slots in that queue. So the tasks of connections, which run their requests as well
//! ([`Requests`](super::Requests)), wait here instead, and the runtime has no more of them at a time than it has threads.
//! The next task is chosen as for turns ([`Turns`]): by the processor time that its group took, over its weight.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::available_parallelism;

use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::internals::Mutex;
use tokio::runtime::Handle;

use super::crowd::Crowd;
use super::turns::{Asked, Turns};
use super::who::Who;

/// Processor time that a group of weight 1 may take ahead of its turn: a few requests.
const LEAD_MICROS: u64 = 1_000;

/// Maximum number of concurrent HTTP/2 requests: 20 MiB, at about 5 KB each.
pub(super) const REQUESTS_MAX: u64 = 4_096;

/// Shares the processor time of one runtime between callers. Tasks of another runtime must not use it: if that one is
/// blocked, their turns would not end.
pub struct Processor {
    clock: PreciseClock,
    threads: usize,
    /// Tasks whose turn has begun. While there are fewer than threads, nothing waits and no lock is taken.
    running: AtomicUsize,
    waiting: AtomicUsize,
    line: Mutex<Turns<Arc<Task>>>,
    /// Capacity for HTTP/2 requests.
    requests: Mutex<Crowd>,
}

impl Default for Processor {
    /// Creates it for the current runtime.
    fn default() -> Self {
        let threads = match Handle::try_current() {
            Ok(runtime) => runtime.metrics().num_workers(),
            Err(_) => available_parallelism().map_or(1, Into::into),
        };
        Self::of(threads)
    }
}

throttlekit::debug_fields!([] Processor);

impl Processor {
    pub(super) fn of(threads: usize) -> Self {
        let (running, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self {
            clock: PreciseClock::new(),
            threads,
            running,
            waiting,
            line: Mutex::new(Turns::line(LEAD_MICROS)),
            requests: Mutex::new(Crowd::new(REQUESTS_MAX)),
        }
    }

    /// Returns the number of HTTP/2 requests that have capacity.
    #[cfg(test)]
    pub(super) fn requests_taken(&self) -> u64 {
        self.requests.lock().taken()
    }

    /// Begins a turn, if a thread is free for it.
    fn begins(&self) -> bool {
        let free = |running: usize| (running < self.threads).then_some(running + 1);
        self.running.fetch_update(SeqCst, SeqCst, free).is_ok()
    }

    /// Returns the ticket of a task that waits, and the tasks whose turn begins, perhaps including itself.
    fn wait(&self, who: &Who, task: &Arc<Task>) -> (Option<u64>, Vec<Arc<Task>>) {
        let mut line = self.line.lock();
        let Asked::Waits(ticket) = line.ask(who, 1, || task.clone()) else { return (None, Vec::new()) };
        self.waiting.fetch_add(1, SeqCst);
        (Some(ticket), self.next(&mut line))
    }

    /// Removes a task from the queue. Returns whether it was there: if not, its turn is about to begin.
    fn give_up(&self, who: &Who, ticket: u64) -> bool {
        let was_in_line = self.line.lock().give_up(who, ticket);
        self.waiting.fetch_sub(usize::from(was_in_line), SeqCst);
        was_in_line
    }

    /// Ends a turn of this length, and begins the next ones.
    fn end(&self, account: &Account, micros: u64) {
        self.running.fetch_sub(1, SeqCst);
        // A task that was queued before this saw one thread fewer, and one that is queued later sees one more.
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let next = {
            let mut line = self.line.lock();
            line.charge(&account.who.lock(), micros);
            self.next(&mut line)
        };
        next.into_iter().for_each(|task| task.begin());
    }

    fn next(&self, line: &mut Turns<Arc<Task>>) -> Vec<Arc<Task>> {
        let mut next = Vec::new();
        while self.begins() {
            match line.take() {
                Some(task) => {
                    self.waiting.fetch_sub(1, SeqCst);
                    next.push(task);
                }
                None => {
                    self.running.fetch_sub(1, SeqCst);
                    break;
                }
            }
        }
        next
    }
}

/// Account that the work of a connection is charged to: its address at first, and then the sender of the last request.
#[derive(Debug)]
pub(crate) struct Account {
    processor: Arc<Processor>,
    who: Mutex<Who>,
}

/// No two connections share an account.
impl PartialEq for Account {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Account {}

impl Account {
    /// Creates the account of a connection without requests so far.
    pub(crate) fn of(who: Who, processor: &Arc<Processor>) -> Arc<Self> {
        Arc::new(Self { processor: processor.clone(), who: Mutex::new(who) })
    }

    /// Sets the sender of its requests.
    pub(crate) fn belongs_to(&self, who: &Who) {
        let mut known = self.who.lock();
        if (&known.group, known.weight) != (&who.group, who.weight) {
            *known = who.clone();
        }
    }

    /// Runs a future in turn, on its account.
    pub(crate) fn run<F: Future>(self: &Arc<Self>, work: F) -> Scheduled<F> {
        let state = Mutex::new(State { stands: Stands::Idle, waker: None });
        let task = Arc::new(Task { account: self.clone(), state });
        let waker = Waker::from(task.clone());
        Scheduled { work: Box::pin(work), task, waker }
    }

    /// Takes capacity for a request, if there is enough for its caller.
    pub(super) fn hold(self: &Arc<Self>) -> Option<HeldRequest> {
        let who = self.who.lock().clone();
        let has_room = self.processor.requests.lock().enter(&who, 1);
        has_room.then(|| HeldRequest { account: self.clone(), who })
    }
}

/// Capacity for one HTTP/2 request, from its headers until its response.
pub(super) struct HeldRequest {
    account: Arc<Account>,
    who: Who,
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        self.account.processor.requests.lock().leave(&self.who, 1);
    }
}

/// A task of a connection, as seen by its wakers.
#[derive(Debug)]
struct Task {
    account: Arc<Account>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stands: Stands,
    /// Makes the runtime poll it.
    waker: Option<Waker>,
}

#[derive(Debug)]
enum Stands {
    /// It is not ready.
    Idle,
    /// In the queue, with its ticket.
    Waits(Who, u64),
    /// Its turn has begun, and the runtime is about to poll it.
    Begun,
    /// It is being polled; true if it was woken meanwhile.
    Runs(bool),
    /// It was dropped; true if its turn is still about to begin.
    Gone(bool),
}

impl Task {
    /// Joins the queue, unless a thread is free. Returns the other tasks whose turn begins.
    fn ask(self: &Arc<Self>, state: &mut State) -> Vec<Arc<Self>> {
        let processor = &self.account.processor;
        if processor.waiting.load(SeqCst) == 0 && processor.begins() {
            state.stands = Stands::Begun;
            return Vec::new();
        }
        let who = self.account.who.lock().clone();
        let (ticket, mut next) = processor.wait(&who, self);
        state.stands = match ticket {
            Some(ticket) => Stands::Waits(who, ticket),
            None => Stands::Idle,
        };
        // Set here, as other threads would have to wait for its state.
        let before = next.len();
        next.retain(|task| !Arc::ptr_eq(task, self));
        if next.len() < before {
            state.stands = Stands::Begun;
        }
        next
    }

    /// Begins the turn that it waited for.
    fn begin(&self) {
        let mut state = self.state.lock();
        match &state.stands {
            Stands::Waits(..) => {
                state.stands = Stands::Begun;
                state.wake();
            }
            Stands::Gone(true) => {
                state.stands = Stands::Gone(false);
                drop(state);
                self.account.processor.end(&self.account, 0);
            }
            Stands::Idle | Stands::Begun | Stands::Runs(_) | Stands::Gone(false) => {}
        }
    }

    /// Begins to run. Returns false if its turn has not come: then it is polled again when it has.
    fn runs(self: &Arc<Self>, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        let next = if matches!(state.stands, Stands::Idle) { self.ask(&mut state) } else { Vec::new() };
        let begun = matches!(state.stands, Stands::Begun);
        if begun {
            state.stands = Stands::Runs(false);
        }
        drop(state);
        next.into_iter().for_each(|task| task.begin());
        begun
    }

    /// Ends the turn in which it was polled, and joins the queue again if it was woken meanwhile.
    fn ran(self: &Arc<Self>, micros: u64) {
        let mut state = self.state.lock();
        let woken = matches!(state.stands, Stands::Runs(true));
        state.stands = Stands::Idle;
        drop(state);
        self.account.processor.end(&self.account, micros);
        if woken {
            self.wake_by_ref();
        }
    }

    /// Leaves the queue, or ends its turn.
    fn leave(&self) {
        let mut state = self.state.lock();
        let processor = &self.account.processor;
        match std::mem::replace(&mut state.stands, Stands::Gone(false)) {
            Stands::Waits(who, ticket) => {
                // If it was not in the queue, the thread that removed it is about to begin its turn.
                state.stands = Stands::Gone(!processor.give_up(&who, ticket));
            }
            Stands::Begun | Stands::Runs(_) => {
                drop(state);
                processor.end(&self.account, 0);
            }
            Stands::Idle | Stands::Gone(_) => {}
        }
    }
}

impl State {
    fn wake(&self) {
        self.waker.iter().for_each(Waker::wake_by_ref);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.lock();
        match &mut state.stands {
            Stands::Idle => {
                let next = self.ask(&mut state);
                if matches!(state.stands, Stands::Begun) {
                    state.wake();
                }
                drop(state);
                next.into_iter().for_each(|task| task.begin());
            }
            Stands::Runs(woken) => *woken = true,
            Stands::Waits(..) | Stands::Begun | Stands::Gone(_) => {}
        }
    }
}

/// A future that runs in turn.
pub(crate) struct Scheduled<F> {
    work: Pin<Box<F>>,
    task: Arc<Task>,
    /// Puts the task into the queue.
    waker: Waker,
}

impl<F: Future> Future for Scheduled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if !this.task.runs(cx.waker()) {
            return Poll::Pending;
        }
        let clock = &this.task.account.processor.clock;
        let begun = clock.now();
        let polled = this.work.as_mut().poll(&mut Context::from_waker(&this.waker));
        let micros = clock.now().since(begun).as_micros();
        this.task.ran(u64::try_from(micros).unwrap_or(u64::MAX / 4));
        polled
    }
}

impl<F> Drop for Scheduled<F> {
    fn drop(&mut self) {
        self.task.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use tokio::task::{JoinSet, yield_now};

    use super::super::tests::account;
    use super::*;

    fn idle(processor: &Processor) -> bool {
        let line = processor.line.lock();
        (processor.running.load(SeqCst), processor.waiting.load(SeqCst)) == (0, 0) && line.load() == (0, 0)
    }

    /// Work that never ends, in steps of a tenth of a millisecond; counts the steps and their time in microseconds: on
    /// a busy machine, some take longer. It is ready again at once: the runtime's own yield waits until the runtime
    /// polls its sockets.
    async fn steps(done: Arc<(AtomicU64, AtomicU64)>) {
        let clock = PreciseClock::new();
        poll_fn(|cx| {
            let begun = clock.now();
            let took = loop {
                let took = clock.now().since(begun);
                if took >= Duration::from_micros(100) {
                    break took;
                }
            };
            done.0.fetch_add(1, SeqCst);
            done.1.fetch_add(u64::try_from(took.as_micros()).unwrap(), SeqCst);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        })
        .await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_sends_little_runs_next_whatever_others_have_ready() {
        let processor = Arc::new(Processor::of(1));
        let (heavy, light) = (account(&processor, 1, 1), account(&processor, 2, 1));
        let done = Arc::<(AtomicU64, AtomicU64)>::default();
        let mut tasks = JoinSet::new();
        for _ in 0..100 {
            tasks.spawn(heavy.run(steps(done.clone())));
        }
        while done.0.load(SeqCst) < 200 {
            yield_now().await;
        }
        for _ in 0..10 {
            let (before, seen) = (done.0.load(SeqCst), done.clone());
            let after = tokio::spawn(light.run(async move { seen.0.load(SeqCst) })).await.unwrap();
            assert!(after - before <= 4, "{} steps of others went before", after - before);
        }
        tasks.shutdown().await;
        assert!(idle(&processor));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn time_follows_weights_however_many_tasks_there_are() {
        let processor = Arc::new(Processor::of(1));
        let mut tasks = JoinSet::new();
        let done: Vec<_> = [(1, 1, 50), (2, 4, 2)]
            .into_iter()
            .map(|(group, weight, count)| {
                let (account, done) =
                    (account(&processor, group, weight), Arc::<(AtomicU64, AtomicU64)>::default());
                (0..count).for_each(|_| drop(tasks.spawn(account.run(steps(done.clone())))));
                done
            })
            .collect();
        let took = |done: &Arc<(AtomicU64, AtomicU64)>| done.1.load(SeqCst);
        while done.iter().map(took).sum::<u64>() < 500_000 {
            yield_now().await;
        }
        let share = took(&done[1]) as f64 / took(&done[0]) as f64;
        // In the order in which they are ready it would be 0.04. How near it comes to 4 depends on other work on the
        // machine.
        assert!((2.0..8.0).contains(&share), "{share} times as much, with four times the weight");
        tasks.shutdown().await;
        assert!(idle(&processor));
    }

    /// Wakes from other threads, tasks that are dropped anywhere, and panics: none loses a turn or a wake.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_turn_is_lost() {
        let processor = Arc::new(Processor::of(2));
        let mut tasks = JoinSet::new();
        for number in 0..400_u64 {
            let account = account(&processor, number % 7, 1);
            let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
            let (receives, sends) = (account.clone(), account);
            let received = async move {
                let mut sum = 0;
                while let Some(value) = receiver.recv().await {
                    sum += value;
                    assert!(number % 50 != 49 || sum < 20, "a task that panics");
                }
            };
            let aborted = tasks.spawn(receives.run(received));
            tasks.spawn(sends.run(async move {
                for value in 0..50_u64 {
                    if sender.send(value).await.is_err() {
                        return;
                    }
                    yield_now().await;
                }
            }));
            if number % 10 == 3 {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_micros(number * 10)).await;
                    aborted.abort();
                });
            }
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        tokio::time::timeout(Duration::from_secs(30), all).await.expect("all tasks end");
        assert!(idle(&processor));
    }
}
