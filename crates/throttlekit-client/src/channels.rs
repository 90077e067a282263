//! The connections to one server, replaced when they become silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::store::Background;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use crate::session::{OpenSession, SessionSlot};

/// Connections that calls use in turn.
///
/// A peer that vanished leaves a connection that accepts requests and returns no responses, until keep-alive notices
/// after half a minute. So a call without a response replaces its connection, unless that has returned a response to
/// another call in the meantime, or to none at all: then it may still be connecting, which can take longer than a call.
/// And a probe uses a new connection, which all calls use once it has returned a response.
pub(crate) struct Channels {
    endpoint: Endpoint,
    background: Background,
    kept: Vec<Mutex<Kept>>,
    turn: AtomicUsize,
    /// The same for calls over sessions.
    session_turn: AtomicUsize,
}

#[derive(Clone)]
struct Kept {
    channel: Channel,
    /// Number of its responses.
    answers: Arc<AtomicU64>,
    session: Arc<SessionSlot>,
}

/// A connection while one call uses it. Dropped before [`answered`](Self::answered), the call got no response.
pub(crate) struct InUse {
    channels: Arc<Channels>,
    index: usize,
    kept: Kept,
    answers_before: u64,
    answered: bool,
}

impl Channels {
    pub(crate) fn new(endpoint: Endpoint, connections: usize, background: Background) -> Self {
        let (turn, session_turn) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut channels = Self { endpoint, background, kept: Vec::new(), turn, session_turn };
        channels.kept = (0..connections).map(|_| Mutex::new(Kept::of(channels.connect()))).collect();
        channels
    }

    /// Returns the next connection.
    pub(crate) fn take(self: &Arc<Self>) -> InUse {
        let index = self.turn.fetch_add(1, Relaxed) % self.kept.len();
        let kept = self.lock(index).clone();
        let answers_before = kept.answers.load(Relaxed);
        InUse { channels: self.clone(), index, kept, answers_before, answered: false }
    }

    /// Returns the session of the next connection, if it has one. If not, opens one in the background for later calls.
    pub(crate) fn take_session(
        self: &Arc<Self>,
        token: impl FnOnce() -> Option<MetadataValue<Ascii>>,
        evidence: impl FnOnce() -> Arc<AtomicU64>,
    ) -> Option<SessionInUse> {
        let index = self.session_turn.fetch_add(1, Relaxed) % self.kept.len();
        let kept = self.lock(index);
        let Some(session) = kept.session.open() else {
            let evidence = || [evidence(), kept.answers.clone()];
            kept.session.connect(&self.background, || kept.channel.clone(), token, evidence);
            return None;
        };
        let answers = kept.answers.clone();
        let answers_before = answers.load(Relaxed);
        Some(SessionInUse { channels: self.clone(), index, answers, answers_before, session })
    }

    /// Closes all sessions: the token of their callers has changed.
    pub(crate) fn close_sessions(&self) {
        (0..self.kept.len()).for_each(|index| self.lock(index).session.close());
    }

    /// Replaces a connection without responses since `answers_before`, unless it may still be connecting.
    fn replace_if_silent(&self, index: usize, answers: &Arc<AtomicU64>, answers_before: u64) {
        if answers_before == 0 || answers.load(Relaxed) != answers_before {
            return;
        }
        let mut kept = self.lock(index);
        if Arc::ptr_eq(&kept.answers, answers) {
            *kept = Kept::of(self.connect());
        }
    }

    /// Creates a connection, opened with the first call. Its tasks run on the client's runtime.
    pub(crate) fn connect(&self) -> Channel {
        self.background.enter(|| self.endpoint.connect_lazy())
    }

    /// Replaces the first connection by this one, which has returned a response, and the others by new ones. Calls in
    /// flight keep their connection.
    pub(crate) fn replace_all(&self, first: Channel) {
        for index in 1..self.kept.len() {
            *self.lock(index) = Kept::of(self.connect());
        }
        *self.lock(0) = Kept::of(first);
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Kept> {
        self.kept[index].lock()
    }
}

impl Kept {
    fn of(channel: Channel) -> Self {
        Self { channel, answers: Arc::default(), session: Arc::default() }
    }
}

impl InUse {
    pub(crate) fn channel(&self) -> Channel {
        self.kept.channel.clone()
    }

    /// Records a response of any kind.
    pub(crate) fn answered(mut self) {
        self.answered = true;
        self.kept.answers.fetch_add(1, Relaxed);
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if !self.answered {
            self.channels.replace_if_silent(self.index, &self.kept.answers, self.answers_before);
        }
    }
}

/// A session while one call uses it.
pub(crate) struct SessionInUse {
    channels: Arc<Channels>,
    index: usize,
    answers: Arc<AtomicU64>,
    answers_before: u64,
    session: Arc<OpenSession>,
}

impl SessionInUse {
    pub(crate) fn session(&self) -> &OpenSession {
        &self.session
    }

    /// Records that the call got no response within its deadline.
    pub(crate) fn silent(self) {
        self.channels.replace_if_silent(self.index, &self.answers, self.answers_before);
    }
}
