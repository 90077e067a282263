//! The session of a connection: opened when needed, and again after it has ended.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use throttlekit::internals::Mutex;
use throttlekit::store::{Background, StoreError};
use throttlekit_proto::v1::SessionResponse;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use tokio::time::{Instant, timeout};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use super::outgoing::Outgoing;
use super::state::Session;
use super::{OpenSession, Reply};
use crate::failure::lost;

/// Maximum time to open a session. Calls do not wait for it.
const OPEN_FOR: Duration = Duration::from_secs(10);
/// Pause after a session that could not be opened, or was lost.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Pause after one that the server ended: its connection is about to be replaced.
const NEXT_AFTER: Duration = Duration::from_millis(20);

/// The session of a connection, if it has one.
#[derive(Default)]
pub(crate) struct SessionSlot(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    /// Number of the session that was opened last.
    number: u64,
    state: State,
}

// Closed => Opening ; Opening => Open | Unsupported | Paused ; Open => Closed | Paused ; Paused => Opening
#[derive(Default)]
enum State {
    /// There is none.
    #[default]
    Closed,
    /// There is none, and none is opened before this time.
    Paused(Instant),
    /// Accepts no calls yet. Dropping it ends the attempt.
    Opening(Arc<OpenSession>),
    Open(Arc<OpenSession>),
    /// The server offers none.
    Unsupported,
}

impl SessionSlot {
    /// Returns the session, if one is open.
    pub(crate) fn open(&self) -> Option<Arc<OpenSession>> {
        match &self.0.lock().state {
            State::Open(session) if !session.0.is_closed() => Some(session.clone()),
            _ => None,
        }
    }

    /// Opens a session in the background, unless there is one, or none is to be opened now. Each response is counted in
    /// `evidence`.
    pub(crate) fn connect(
        self: &Arc<Self>,
        background: &Background,
        channel: impl FnOnce() -> Channel,
        token: impl FnOnce() -> Option<MetadataValue<Ascii>>,
        evidence: impl FnOnce() -> [Arc<AtomicU64>; 2],
    ) {
        let Some((number, session)) = self.begin() else { return };
        let running = Running { slot: Arc::downgrade(self), number, session, evidence: evidence() };
        background.spawn(running.run(channel(), token()));
    }

    /// Returns a session that is to be opened now, if one is, and its number.
    fn begin(&self) -> Option<(u64, Arc<Session>)> {
        let mut slot = self.0.lock();
        match slot.state {
            State::Paused(until) if Instant::now() < until => return None,
            State::Closed | State::Paused(_) => {}
            State::Opening(_) | State::Open(_) | State::Unsupported => return None,
        }
        let session = Arc::new(Session::new());
        slot.state = State::Opening(Arc::new(OpenSession(session.clone())));
        slot.number += 1;
        Some((slot.number, session))
    }

    /// Closes the session, if there is one. Its calls get their results.
    pub(crate) fn close(&self) {
        self.change(|slot| matches!(slot.state, State::Open(_)), State::Closed);
    }

    fn change(&self, applies: impl FnOnce(&Slot) -> bool, state: State) {
        let mut slot = self.0.lock();
        if applies(&slot) {
            let before = std::mem::replace(&mut slot.state, state);
            // The last handle of a session notifies its connection.
            drop(slot);
            drop(before);
        }
    }
}

/// The task of a session. However it ends, those that wait for calls are notified, and another session may be opened.
struct Running {
    slot: Weak<SessionSlot>,
    number: u64,
    session: Arc<Session>,
    evidence: [Arc<AtomicU64>; 2],
}

impl Running {
    /// Runs until the session ends, or nobody needs it any more.
    async fn run(self, channel: Channel, token: Option<MetadataValue<Ascii>>) {
        let (mut served, mut over) = (pin!(self.serve(channel, token)), pin!(self.session.over()));
        poll_fn(|cx| match served.as_mut().poll(cx) {
            Poll::Pending => over.as_mut().poll(cx),
            ready => ready,
        })
        .await;
    }

    async fn serve(&self, channel: Channel, token: Option<MetadataValue<Ascii>>) {
        let opened = timeout(OPEN_FOR, self.open(channel, token)).await;
        let opened = opened.unwrap_or_else(|_| Err(Status::deadline_exceeded("no session in time")));
        match opened {
            Ok(responses) => self.read(responses).await,
            Err(status) if status.code() == Code::Unimplemented => self.set(State::Unsupported),
            // Another may be opened later.
            Err(_) => {}
        }
    }

    async fn open(
        &self,
        channel: Channel,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<Streaming<SessionResponse>, Status> {
        let mut request = Request::new(Outgoing(self.session.clone()));
        token.into_iter().for_each(|token| _ = request.metadata_mut().insert("authorization", token));
        let mut responses = RateLimiterClient::new(channel).session(request).await?.into_inner();
        let first = responses.message().await?.ok_or_else(|| Status::unavailable("no window"))?;
        self.session.set_window(usize::try_from(first.window).unwrap_or(0));
        self.receive(first);
        Ok(responses)
    }

    /// Passes on what the server sends until the session ends.
    async fn read(&self, mut responses: Streaming<SessionResponse>) {
        self.accept_calls();
        let reply = loop {
            match responses.message().await {
                Ok(Some(response)) => self.receive(response),
                Ok(None) => break Reply::Undecided,
                Err(status) => break lost(&status).map_or(Reply::Decided(Err(status)), Reply::Lost),
            }
        };
        self.session.end(&reply);
    }

    /// Lets callers use the session.
    fn accept_calls(&self) {
        let Some(slot) = self.slot.upgrade() else { return };
        let mut slot = slot.0.lock();
        if slot.number == self.number
            && let State::Opening(session) = &slot.state
        {
            slot.state = State::Open(session.clone());
        }
    }

    fn receive(&self, response: SessionResponse) {
        self.evidence.iter().for_each(|count| _ = count.fetch_add(1, Relaxed));
        let goaway = response.goaway;
        self.session.deliver(response);
        if goaway {
            self.set(State::Paused(Instant::now() + NEXT_AFTER));
        }
    }

    /// Changes the slot, if this session is still opening or open there.
    fn set(&self, state: State) {
        let applies = |slot: &Slot| {
            slot.number == self.number && matches!(slot.state, State::Opening(_) | State::Open(_))
        };
        if let Some(slot) = self.slot.upgrade() {
            slot.change(applies, state);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.end(&Reply::Lost(StoreError::unavailable("the session ended")));
        self.set(State::Paused(Instant::now() + AGAIN_AFTER));
    }
}
