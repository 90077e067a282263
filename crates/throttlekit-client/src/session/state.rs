//! The calls of a session: queued, sent, answered.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use throttlekit::internals::Mutex;
use throttlekit_proto::CAUSE;
use throttlekit_proto::v1::session_call::Call;
use throttlekit_proto::v1::session_result::Result as Wire;
use throttlekit_proto::v1::{SessionCall, SessionRequest, SessionResponse, SessionResult, SessionStatus};
use tokio::sync::oneshot::Sender;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use super::Reply;

/// Size of the calls in one message after which the rest waits for the next: half of what a server accepts by default.
const MESSAGE_BYTES: usize = 32 << 10;

/// The calls of a session.
pub(super) struct Session(Mutex<State>);

#[derive(Default)]
struct State {
    /// Maximum number of calls that are sent and not answered.
    window: usize,
    outstanding: usize,
    last_id: u64,
    /// Calls that have not left, in order.
    queued: BTreeMap<u64, Queued>,
    /// Those that wait for calls that were sent.
    sent: HashMap<u64, Sender<Reply>>,
    /// No more calls are accepted.
    is_closed: bool,
    /// Notified when there is something to send.
    sender: Option<Waker>,
    /// Notified when the session is over.
    task: Option<Waker>,
}

struct Queued {
    call: Call,
    due: Instant,
    reply: Sender<Reply>,
}

impl Session {
    /// Creates a session. It sends nothing until it has a window.
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Sets the maximum number of calls without a result.
    pub(super) fn set_window(&self, window: usize) {
        self.change(|state| state.window = window.max(1));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Queues a call, and returns its ID. `None` if the session accepts no more calls.
    pub(super) fn queue(&self, call: Call, due: Instant, reply: Sender<Reply>) -> Option<u64> {
        self.change(|state| {
            if state.is_closed {
                return None;
            }
            state.last_id += 1;
            state.queued.insert(state.last_id, Queued { call, due, reply });
            Some(state.last_id)
        })
    }

    /// Forgets a call for which nobody waits. If it was sent, it stays outstanding until the server answers it.
    pub(super) fn forget(&self, id: u64) {
        self.change(|state| {
            if state.queued.remove(&id).is_none() {
                state.sent.remove(&id);
            }
        });
    }

    /// Accepts no more calls. Those that it has are sent and answered.
    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Completes when the session is over: it accepts no more calls, and nobody waits for one. A server that does not
    /// respond must not keep the connection open.
    pub(super) async fn over(&self) {
        let poll = |cx: &mut Context<'_>| {
            let mut state = self.0.lock();
            if state.is_over() {
                return Poll::Ready(());
            }
            state.task = Some(cx.waker().clone());
            Poll::Pending
        };
        poll_fn(poll).await;
    }

    /// Returns the next message, or `None` once it is closed and everything was sent.
    pub(super) fn poll_message(&self, cx: &mut Context<'_>) -> Poll<Option<SessionRequest>> {
        let mut state = self.0.lock();
        if let Some(message) = state.message() {
            return Poll::Ready(Some(message));
        }
        if state.is_closed && state.queued.is_empty() {
            return Poll::Ready(None);
        }
        state.sender = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Passes results on to those that wait for them.
    pub(super) fn deliver(&self, response: SessionResponse) {
        let (replies, undecided) = self.change(|state| {
            let take = |SessionResult { id, result }| {
                state.outstanding = state.outstanding.saturating_sub(1);
                state.sent.remove(&id).map(|reply| (reply, result))
            };
            let replies: Vec<_> = response.results.into_iter().filter_map(take).collect();
            state.is_closed |= response.goaway;
            // What has not left goes elsewhere.
            (replies, if response.goaway { std::mem::take(&mut state.queued) } else { BTreeMap::new() })
        });
        for (reply, result) in replies {
            // Fails if nobody waits any more.
            let _ = reply.send(decided(result));
        }
        undecided.into_values().for_each(|queued| _ = queued.reply.send(Reply::Undecided));
    }

    /// Ends the session: all that wait get this reply, or that they were not decided if they were not sent.
    pub(super) fn end(&self, reply: &Reply) {
        let (queued, sent) = self.change(|state| {
            state.is_closed = true;
            (std::mem::take(&mut state.queued), std::mem::take(&mut state.sent))
        });
        queued.into_values().for_each(|queued| _ = queued.reply.send(Reply::Undecided));
        sent.into_values().for_each(|waiting| _ = waiting.send(reply.clone()));
    }

    /// Changes the state, and notifies, outside of the lock, the sender if it may have something to send and the task if
    /// the session is over.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (changed, sender, task) = {
            let mut state = self.0.lock();
            let changed = change(&mut state);
            let sends = state.is_closed || (!state.queued.is_empty() && state.outstanding < state.window);
            let is_over = state.is_over();
            let sender = if sends { state.sender.take() } else { None };
            (changed, sender, if is_over { state.task.take() } else { None })
        };
        sender.into_iter().chain(task).for_each(Waker::wake);
        changed
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.is_closed && self.queued.is_empty() && self.sent.is_empty()
    }

    /// Moves queued calls into a message, as many as the window allows.
    fn message(&mut self) -> Option<SessionRequest> {
        let (mut calls, mut bytes, mut due) = (Vec::new(), 0, None);
        while self.outstanding < self.window
            && bytes < MESSAGE_BYTES
            && let Some((id, queued)) = self.queued.pop_first()
        {
            bytes += size(&queued.call);
            due = due.max(Some(queued.due));
            self.outstanding += 1;
            self.sent.insert(id, queued.reply);
            calls.push(SessionCall { id, call: Some(queued.call) });
        }
        // Rounded up: 0 means the server's own.
        let left = due?.saturating_duration_since(Instant::now()).as_millis() + 1;
        Some(SessionRequest { calls, deadline_ms: i64::try_from(left).unwrap_or(i64::MAX) })
    }
}

/// Returns about how many bytes a call takes.
fn size(call: &Call) -> usize {
    const NUMBERS: usize = 64;
    let texts = |policy: &str, key: &str, keys: &[String]| {
        NUMBERS + policy.len() + key.len() + keys.iter().map(|key| key.len() + 4).sum::<usize>()
    };
    match call {
        Call::Check(check) => texts(&check.policy, &check.key, &check.keys),
        Call::Debit(debit) => texts(&debit.policy, &debit.key, &debit.keys) + debit.lease_id.len(),
        Call::Peek(peek) => texts(&peek.policy, &peek.key, &peek.keys),
    }
}

fn decided(result: Option<Wire>) -> Reply {
    Reply::Decided(match result {
        Some(Wire::Decision(decision)) => Ok(decision),
        Some(Wire::Status(status)) => Err(status_of(status)),
        None => Err(Status::internal("the response of the server has no decision")),
    })
}

fn status_of(SessionStatus { code, message, cause }: SessionStatus) -> Status {
    let mut status = Status::new(Code::from_i32(code), message);
    if !cause.is_empty()
        && let Ok(cause) = cause.parse::<MetadataValue<_>>()
    {
        status.metadata_mut().insert(CAUSE, cause);
    }
    status
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throttlekit_proto::v1::{CheckRequest, Decision};
    use tokio::sync::oneshot::{self, Receiver};

    use super::*;

    fn queue(session: &Session, key: &str) -> (Option<u64>, Receiver<Reply>) {
        let (reply, replied) = oneshot::channel();
        let call = Call::Check(CheckRequest { key: key.into(), ..CheckRequest::default() });
        (session.queue(call, Instant::now() + Duration::from_secs(1), reply), replied)
    }

    /// Returns the IDs of the next message.
    fn sent(session: &Session) -> Vec<u64> {
        match session.poll_message(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(message)) => message.calls.iter().map(|call| call.id).collect(),
            Poll::Ready(None) => panic!("closed"),
            Poll::Pending => Vec::new(),
        }
    }

    fn response(ids: &[u64], goaway: bool) -> SessionResponse {
        let result = |&id: &u64| SessionResult { id, result: Some(Wire::Decision(Decision::default())) };
        SessionResponse { results: ids.iter().map(result).collect(), window: 0, goaway }
    }

    #[test]
    fn what_is_queued_leaves_in_one_message_within_the_window() {
        let session = Session::new();
        let replies: Vec<_> = (0..5).map(|_| queue(&session, "k").1).collect();
        assert!(sent(&session).is_empty(), "no window yet");
        session.set_window(3);
        assert_eq!((sent(&session), sent(&session)), (vec![1, 2, 3], vec![]));
        session.deliver(response(&[2], false));
        assert_eq!(sent(&session), [4]);
        session.deliver(response(&[1, 3, 4], false));
        assert_eq!(sent(&session), [5]);
        session.deliver(response(&[5], false));
        for mut reply in replies {
            assert!(matches!(reply.try_recv(), Ok(Reply::Decided(Ok(_)))));
        }
    }

    #[test]
    fn long_calls_are_divided_into_messages() {
        let session = Session::new();
        session.set_window(1_000);
        let _replies: Vec<_> = (0..100).map(|_| queue(&session, &"k".repeat(1_000))).collect();
        let messages: Vec<_> = std::iter::repeat_with(|| sent(&session).len()).take(4).collect();
        assert_eq!(messages.iter().sum::<usize>(), 100);
        assert!(messages.iter().all(|calls| *calls <= 32), "{messages:?}");
    }

    #[test]
    fn a_forgotten_call_is_not_sent_and_takes_its_credit_until_it_is_answered() {
        let session = Session::new();
        session.set_window(1);
        let (first, _first) = queue(&session, "k");
        assert_eq!(sent(&session), [1]);
        let (second, _second) = queue(&session, "k");
        let (_, mut third) = queue(&session, "k");
        session.forget(first.unwrap());
        session.forget(second.unwrap());
        assert!(sent(&session).is_empty(), "the server is still at the first");
        session.deliver(response(&[1], false));
        assert_eq!(sent(&session), [3]);
        session.deliver(response(&[3], false));
        assert!(third.try_recv().is_ok());
        let state = session.0.lock();
        assert_eq!((state.queued.len(), state.sent.len(), state.outstanding), (0, 0, 0));
    }

    #[test]
    fn a_goaway_returns_what_has_not_left_and_leaves_the_rest_to_the_server() {
        let session = Session::new();
        session.set_window(1);
        let (_, mut first) = queue(&session, "k");
        assert_eq!(sent(&session), [1]);
        let (_, mut second) = queue(&session, "k");
        session.deliver(response(&[], true));
        assert!(matches!(second.try_recv(), Ok(Reply::Undecided)) && first.try_recv().is_err());
        assert!(queue(&session, "k").0.is_none(), "no more calls");
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(session.poll_message(&mut cx), Poll::Ready(None)));
        session.deliver(response(&[1], true));
        assert!(matches!(first.try_recv(), Ok(Reply::Decided(Ok(_)))));
    }

    #[test]
    fn a_closed_session_is_over_when_nobody_waits() {
        let session = Session::new();
        session.set_window(1);
        let (_, first) = queue(&session, "k");
        let (second, _second) = queue(&session, "k");
        let mut over = Box::pin(session.over());
        let mut cx = Context::from_waker(Waker::noop());
        let mut is_over = || over.as_mut().poll(&mut cx).is_ready();
        assert_eq!(sent(&session), [1]);
        session.close();
        assert!(!is_over(), "two calls");
        session.forget(second.unwrap());
        assert!(!is_over(), "one was sent");
        session.deliver(response(&[1], false));
        assert!(is_over(), "its caller has the result");
        drop(first);
    }

    #[test]
    fn a_call_that_waits_at_the_end_gets_its_reason() {
        let session = Session::new();
        session.set_window(1);
        let (_, mut sent_one) = queue(&session, "k");
        assert_eq!(sent(&session), [1]);
        let (_, mut queued) = queue(&session, "k");
        session.end(&Reply::Decided(Err(Status::unauthenticated("why"))));
        assert!(matches!(sent_one.try_recv(), Ok(Reply::Decided(Err(_)))));
        assert!(matches!(queued.try_recv(), Ok(Reply::Undecided)));
    }
}
