//! The connections to one server, replaced when they become silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::store::Background;
use tonic::transport::{Channel, Endpoint};

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
}

#[derive(Clone)]
struct Kept {
    channel: Channel,
    /// Number of its responses.
    answers: Arc<AtomicU64>,
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
        let mut channels = Self { endpoint, background, kept: Vec::new(), turn: AtomicUsize::new(0) };
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
        Self { channel, answers: Arc::default() }
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
        let (answers, before) = (&self.kept.answers, self.answers_before);
        if self.answered || before == 0 || answers.load(Relaxed) != before {
            return;
        }
        let mut kept = self.channels.lock(self.index);
        if Arc::ptr_eq(&kept.answers, answers) {
            *kept = Kept::of(self.channels.connect());
        }
    }
}
