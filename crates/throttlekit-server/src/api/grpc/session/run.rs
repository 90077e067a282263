//! A session from its first message to its last.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use hyper::body::{Body, Bytes};
use prost::Message;
use throttlekit_proto::v1::{SessionRequest, SessionResponse};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

use super::body::Outbox;
use super::calls::{Batch, Outcome, PendingCall};
use super::encoding::results;
use super::messages::Messages;
use super::{SessionContext, WINDOW};
use crate::access::{AuthError, Caller};
use crate::api::fair_use::{CROWDED, HeldBytes, named};
use crate::api::unary::framed;
use crate::listen::{Limits, Peer};
use crate::share::{OpenStream, Who};

/// Maximum time for calls to arrive that the client sent before it received the goaway.
const LEAVE_FOR: Duration = Duration::from_secs(2);

/// One session.
pub(super) struct Session<B> {
    context: Arc<SessionContext>,
    peer: Peer,
    /// The caller of the last message, or who opened the session.
    who: Who,
    /// The headers that identify the caller. Its rights may change, and its token may expire or be revoked.
    credentials: HeaderMap,
    messages: Messages<B>,
    /// Completes when the connection closes gracefully.
    leaving: Pin<Box<dyn Future<Output = ()> + Send>>,
    state: State,
    /// Fires when something is overdue, or before. It is not moved with each message.
    timer: Pin<Box<Sleep>>,
    /// Calls since the session last yielded to other connections.
    since_yield: usize,
    _slot: OpenStream,
}

// Idle => Receiving | Leaving ; Receiving => Idle | (timeout) ; Leaving => (the end)
enum State {
    /// Since the last message.
    Idle(Instant),
    /// A message is incomplete since this time.
    Receiving(Instant, HeldBytes),
    /// The goaway was sent at this time.
    Leaving(Instant),
}

enum Event {
    Message(Bytes),
    /// The client has to leave.
    Leave,
    /// The client has closed its side, or was given enough time to.
    End,
}

impl<B: Body<Data = Bytes> + Unpin> Session<B> {
    pub(super) fn new(
        context: Arc<SessionContext>,
        (peer, who): (Peer, Who),
        credentials: HeaderMap,
        body: B,
        slot: OpenStream,
    ) -> Self {
        let limits = context.shares.limits();
        let messages = Messages::of(body, limits.message_bytes_max);
        let timer = Box::pin(sleep(limits.idle_max));
        Self {
            messages,
            leaving: Box::pin(peer.leaving.begun()),
            state: State::Idle(Instant::now()),
            timer,
            since_yield: 0,
            _slot: slot,
            context,
            peer,
            who,
            credentials,
        }
    }

    /// Answers messages until one side ends the session.
    pub(super) async fn run(mut self, outbox: Outbox) -> Result<(), Status> {
        outbox.send(framed(&SessionResponse { window: WINDOW as i64, ..SessionResponse::default() })).await;
        loop {
            match self.event().await? {
                Event::Message(message) => self.answer(message, &outbox).await?,
                Event::Leave => {
                    self.state = State::Leaving(Instant::now());
                    outbox
                        .send(framed(&SessionResponse { goaway: true, ..SessionResponse::default() }))
                        .await;
                }
                Event::End => return Ok(()),
            }
        }
    }

    async fn event(&mut self) -> Result<Event, Status> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Status>> {
        // Before messages, of which a busy client always has one ready.
        if let Poll::Ready(event) = self.poll_leaving(cx) {
            return Poll::Ready(event);
        }
        if let Poll::Ready(message) = self.messages.poll_next(cx) {
            return Poll::Ready(message.map(|message| message.map_or(Event::End, Event::Message)));
        }
        self.since_yield = 0;
        self.count_incomplete()?;
        self.poll_overdue(cx)
    }

    /// Checks whether the client has to leave, or had enough time to.
    fn poll_leaving(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Status>> {
        if matches!(self.state, State::Leaving(_)) {
            return self.poll_overdue(cx);
        }
        self.leaving.as_mut().poll(cx).map(|()| Ok(Event::Leave))
    }

    /// Counts what was received of a message, as the bodies of other requests are counted.
    fn count_incomplete(&mut self) -> Result<(), Status> {
        let bytes = self.messages.incomplete_bytes();
        if bytes == 0 {
            return Ok(());
        }
        if let State::Idle(_) = self.state {
            let held = HeldBytes::of(&self.context.shares, &self.who);
            self.state = State::Receiving(Instant::now(), held);
        }
        if let State::Receiving(_, held) = &mut self.state
            && !held.grow(bytes as u64)
        {
            self.context.counters.count_shed();
            return Err(Status::unavailable(CROWDED));
        }
        Ok(())
    }

    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Status>> {
        let due = self.state.due(self.context.shares.limits());
        if self.timer.deadline() > due {
            self.timer.as_mut().reset(due);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.timer.deadline() >= due {
                return Poll::Ready(self.overdue());
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }

    fn overdue(&self) -> Result<Event, Status> {
        match self.state {
            State::Idle(_) => Ok(Event::Leave),
            State::Leaving(_) => Ok(Event::End),
            State::Receiving(..) => {
                self.context.counters.count_late();
                Err(Status::deadline_exceeded("a message timed out: send it whole at once"))
            }
        }
    }

    /// Decides what has arrived, and sends the results in one message.
    async fn answer(&mut self, message: Bytes, outbox: &Outbox) -> Result<(), Status> {
        let now = Instant::now();
        let is_leaving = matches!(self.state, State::Leaving(_));
        if !is_leaving {
            self.state = State::Idle(now);
        }
        let mut calls = self.arrived(message, now).await?;
        if calls.is_empty() {
            return Ok(());
        }
        self.context.counters.count_requests(calls.len() as u64);
        let beyond = calls.split_off(calls.len().min(WINDOW));
        let (mut outcomes, unknown) = match self.identify() {
            Ok(caller) => (self.decide(&caller, &calls).await, None),
            Err(unknown) => (calls.iter().map(|_| Err(unknown.clone())).collect(), Some(unknown)),
        };
        outcomes.extend(beyond.iter().map(|_| -> Outcome { Err(Status::resource_exhausted(TOO_MANY)) }));
        calls.extend(beyond);
        outbox.send(results(&calls, &outcomes, is_leaving)).await;
        unknown.map_or(Ok(()), Err)
    }

    async fn decide(&mut self, caller: &Caller, calls: &[PendingCall]) -> Vec<Outcome> {
        let Self { context, who, since_yield, .. } = self;
        Batch { context, caller, who, since_yield }.decide(calls).await
    }

    /// Returns the calls of a message, and of those that have arrived after it: as many as may be without a result, and
    /// the rest of the last message.
    async fn arrived(&mut self, message: Bytes, now: Instant) -> Result<Vec<PendingCall>, Status> {
        let limits = self.context.shares.limits();
        let (request_max, bytes_max) = (limits.request_max, limits.message_bytes_max);
        let (mut calls, mut bytes, mut next) = (Vec::new(), 0, Some(message));
        while let Some(message) = next.take() {
            bytes += message.len();
            let request = SessionRequest::decode(message);
            let request = request.map_err(|error| Status::invalid_argument(error.to_string()))?;
            let time = u64::try_from(request.deadline_ms).ok().filter(|&time| time > 0);
            let time = time.map_or(request_max, |time| Duration::from_millis(time).min(request_max));
            let deadline = now + time;
            calls.extend(request.calls.into_iter().map(|one| PendingCall {
                id: one.id,
                deadline,
                call: one.call,
            }));
            if calls.len() <= WINDOW
                && bytes < bytes_max
                && let Poll::Ready(more) = poll_fn(|cx| Poll::Ready(self.messages.poll_next(cx))).await
            {
                next = more?;
            }
        }
        Ok(calls)
    }

    /// Identifies the caller by the current access list.
    fn identify(&mut self) -> Result<Caller, Status> {
        let access = self.context.access.load();
        let caller = access.identify(&self.credentials, Some(&self.peer)).map_err(|unknown| {
            access.note_unknown(unknown, &self.peer, "Session");
            unauthenticated(unknown)
        })?;
        self.who = named(self.peer.who(), &caller);
        self.peer.account.iter().for_each(|account| account.belongs_to(&self.who));
        Ok(caller)
    }
}

impl State {
    /// Returns the time at which something has to happen.
    fn due(&self, limits: &Limits) -> Instant {
        match self {
            Self::Idle(since) => *since + limits.idle_max,
            Self::Receiving(since, _) => *since + limits.body_for,
            Self::Leaving(since) => *since + LEAVE_FOR.min(limits.grace / 2),
        }
    }
}

const TOO_MANY: &str = "too many calls without a result: the first response has the window";

fn unauthenticated(unknown: AuthError) -> Status {
    Status::unauthenticated(match unknown {
        AuthError::WrongToken => "unknown token",
        AuthError::ExpiredToken => "this token has expired: replace it",
        AuthError::NoToken => "missing token: the callers that need none have changed",
    })
}
