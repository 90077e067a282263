//! The requests of one HTTP/2 connection, run by the task of the connection.
//!
//! With a task for each request, the first response wakes the connection, which writes it alone: one system call for each
//! response. Here one turn answers the requests that one read brought, and one write sends their responses. A connection
//! therefore uses one thread at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use throttlekit::internals::Mutex;

use super::processor::{Account, HeldRequest};

/// Maximum number of requests that one turn begins: other connections wait for its end.
const TURN_REQUESTS: usize = 32;

/// Executor of the requests of one HTTP/2 connection: [`Running`] runs them.
#[derive(Clone)]
pub(crate) struct Requests(Arc<Shared>);

struct Shared {
    account: Arc<Account>,
    /// Called for a request that there was no capacity for.
    refused: Box<dyn Fn() + Send + Sync>,
    arrived: Mutex<Vec<Request>>,
}

struct Request {
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
    _held: HeldRequest,
}

impl Requests {
    /// Creates the executor of a connection with this account.
    pub(crate) fn of(account: Arc<Account>, refused: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { account, refused: Box::new(refused), arrived: Mutex::default() }))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Requests {
    /// Without capacity for it a request is dropped, which resets its stream: each takes about 5 KB while it waits, and
    /// a response would take a turn of its own.
    fn execute(&self, work: F) {
        match self.0.account.hold() {
            Some(held) => self.0.arrived.lock().push(Request { work: Box::pin(work), _held: held }),
            None => (self.0.refused)(),
        }
    }
}

impl Future for Request {
    type Output = ();

    /// A request that panics ends alone: its stream is reset.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        catch_unwind(AssertUnwindSafe(|| self.work.as_mut().poll(cx))).unwrap_or(Poll::Ready(()))
    }
}

/// The requests that a connection has in progress.
pub(crate) struct Running {
    requests: Arc<Shared>,
    /// Requests whose turn has come, the next one last.
    next: Vec<Request>,
    /// Requests that wait for something, such as their body or a store.
    waiting: FuturesUnordered<Request>,
}

impl Running {
    /// Runs the requests of this executor.
    pub(crate) fn of(requests: &Requests) -> Self {
        Self { requests: requests.0.clone(), next: Vec::new(), waiting: FuturesUnordered::new() }
    }

    /// Polls the connection and its requests until neither can go on, or the turn is over.
    pub(crate) fn poll_with<F: Future>(
        &mut self,
        mut connection: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let mut begins = TURN_REQUESTS;
        loop {
            let polled = connection.as_mut().poll(cx);
            if polled.is_ready() || !self.poll_requests(&mut begins, cx) {
                return polled;
            }
        }
    }

    /// Polls requests. Returns whether one was answered, or may have been: then the connection has something to send.
    fn poll_requests(&mut self, begins: &mut usize, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while !self.waiting.is_empty() && self.waiting.poll_next_unpin(cx).is_ready() {
            progress = true;
        }
        if self.next.is_empty() {
            std::mem::swap(&mut self.next, &mut self.requests.arrived.lock());
            self.next.reverse();
        }
        while *begins > 0
            && let Some(mut request) = self.next.pop()
        {
            *begins -= 1;
            progress = true;
            // Most are answered at once, and need no waker of their own.
            if Pin::new(&mut request).poll(cx).is_pending() {
                self.waiting.push(request);
            }
        }
        if !self.next.is_empty() {
            cx.waker().wake_by_ref();
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::time::Duration;

    use tokio::time::sleep;

    use super::super::processor::{Processor, REQUESTS_MAX};
    use super::super::tests::account;
    use super::*;

    /// Polls the requests once, with a connection that has nothing to do.
    async fn one_turn(running: &mut Running) {
        let mut connection = pin!(pending::<()>());
        poll_fn(|cx| {
            assert!(running.poll_with(connection.as_mut(), cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    fn counting(requests: &Requests, count: u64, done: &Arc<AtomicU64>) {
        for number in 0..count {
            let done = done.clone();
            requests.execute(async move {
                let before = done.fetch_add(1, SeqCst);
                assert_eq!(before % count, number, "in the order of their arrival");
            });
        }
    }

    #[tokio::test]
    async fn a_turn_answers_what_has_arrived_in_order_and_no_more_than_it_may() {
        let processor = Arc::new(Processor::of(1));
        let requests = Requests::of(account(&processor, 1, 1), || {});
        let (mut running, done) = (Running::of(&requests), Arc::<AtomicU64>::default());
        counting(&requests, 2 * TURN_REQUESTS as u64 + 1, &done);
        for expected in [1, 2] {
            one_turn(&mut running).await;
            assert_eq!(done.load(SeqCst), expected * TURN_REQUESTS as u64);
        }
        one_turn(&mut running).await;
        assert_eq!(done.load(SeqCst), 2 * TURN_REQUESTS as u64 + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_or_panics_delays_no_other() {
        let processor = Arc::new(Processor::of(1));
        let requests = Requests::of(account(&processor, 1, 1), || {});
        let (mut running, done) = (Running::of(&requests), Arc::<AtomicU64>::default());
        let late = done.clone();
        requests.execute(async move {
            sleep(Duration::from_secs(1)).await;
            late.fetch_add(100, SeqCst);
        });
        requests.execute(async { panic!("a request that panics") });
        counting(&requests, 1, &done);
        one_turn(&mut running).await;
        assert_eq!(done.load(SeqCst), 1);
        let mut connection = pin!(sleep(Duration::from_secs(2)));
        poll_fn(|cx| running.poll_with(connection.as_mut(), cx)).await;
        assert_eq!(done.load(SeqCst), 101);
    }

    /// Sends requests that never end; returns the number of refused ones.
    fn flood(account: &Arc<Account>, count: u64) -> (Requests, u64) {
        let refused = Arc::<AtomicU64>::default();
        let counts = refused.clone();
        let requests = Requests::of(account.clone(), move || {
            counts.fetch_add(1, SeqCst);
        });
        (0..count).for_each(|_| requests.execute(pending::<()>()));
        (requests, refused.load(SeqCst))
    }

    #[tokio::test]
    async fn requests_beyond_their_callers_room_are_refused_and_newcomers_find_room() {
        let processor = Arc::new(Processor::of(1));
        let (heavy, light) = (account(&processor, 1, 1), account(&processor, 2, 1));
        let (held, refused) = flood(&heavy, 2 * REQUESTS_MAX);
        assert!(refused >= REQUESTS_MAX, "{refused} refused");
        let (others, refused) = flood(&light, 500);
        assert_eq!(refused, 0, "another caller finds room");
        drop((held, others));
        assert_eq!(processor.requests_taken(), 0, "room is given back");
    }
}
