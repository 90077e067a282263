//! The watchdog of a connection, which detects clients that are idle, slow or stalled.
//!
//! Activity is counted cheaply enough to be done for each request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

use super::Limits;
use super::body::{REST_BYTES_MAX, REST_FOR};

/// Interval after which counts of abandoned requests restart.
const WINDOW: Duration = Duration::from_secs(10);
/// Bytes that a connection receives in one turn on the processor. The last read may exceed it.
pub(crate) const TURN_BYTES: usize = 4 << 10;
/// The preface of HTTP/2; no HTTP/1 request that keeps its connection is shorter.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FIRST_BYTES: u64 = PREFACE.len() as u64;

/// Counters of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    received_bytes: AtomicU64,
    /// Bytes received in this turn on the processor.
    received_in_turn: AtomicUsize,
    /// Bytes received when the last response ended. What came since is the head of the next request, on HTTP/1.
    settled_bytes: AtomicU64,
    is_http1: AtomicBool,
    /// Requests whose response has not ended.
    active: AtomicU32,
    begun: AtomicU64,
    /// Responses that wait for the client to read them.
    waiting: AtomicU32,
    /// Parts of responses that the client read.
    taken: AtomicU64,
    abandoned: AtomicU32,
    begun_in_window: AtomicU32,
    has_offended: AtomicBool,
    offended: Notify,
    abandoned_max: u32,
    /// Bytes without which a client has said nothing.
    first_bytes: u64,
}

impl Activity {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let abandoned_max = limits.abandoned_max;
        Arc::new(Self { abandoned_max, first_bytes: FIRST_BYTES, ..Self::default() })
    }

    /// Creates the counters of a connection for commands. An incomplete command is judged as the head of an HTTP/1
    /// request is.
    pub(super) fn of_commands() -> Arc<Self> {
        Arc::new(Self { first_bytes: 1, is_http1: AtomicBool::new(true), ..Self::default() })
    }

    /// Returns once the client has abandoned more requests than it may.
    pub(super) async fn offended(&self) {
        self.offended.notified().await;
    }

    /// Checks whether the client has abandoned more requests than it may.
    pub(super) fn has_offended(&self) -> bool {
        self.has_offended.load(Ordering::Relaxed)
    }

    /// Begins a turn on the processor. The connection yields when it has received more than one allows.
    pub(super) fn begin_turn(&self) {
        self.received_in_turn.store(0, Ordering::Relaxed);
    }

    pub(super) fn receive(&self, bytes: &[u8]) {
        self.received_in_turn.fetch_add(bytes.len(), Ordering::Relaxed);
        let before = self.received_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if before < FIRST_BYTES {
            let due = &PREFACE[before as usize..];
            if bytes.iter().zip(due).any(|(byte, due)| byte != due) {
                self.is_http1.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Checks whether the connection has begun with anything but the preface of HTTP/2.
    pub(super) fn is_http1(&self) -> bool {
        self.is_http1.load(Ordering::Relaxed)
    }

    /// Checks whether the client has begun the head of an HTTP/1 request and not ended it.
    fn is_in_head(&self) -> bool {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.is_http1()
            && self.active.load(Ordering::Relaxed) == 0
            && read(&self.received_bytes) > read(&self.settled_bytes)
    }

    fn abandon(&self) {
        let abandoned = self.abandoned.fetch_add(1, Ordering::Relaxed) + 1;
        if abandoned >= self.abandoned_max && abandoned > self.begun_in_window.load(Ordering::Relaxed) / 2 {
            self.has_offended.store(true, Ordering::Relaxed);
            self.offended.notify_one();
        }
    }
}

/// One request, from its headers to the end of its response.
#[derive(Debug)]
pub(super) struct Exchange {
    activity: Arc<Activity>,
    /// True if the next step is the client's.
    is_waiting: bool,
    is_over: bool,
}

impl Exchange {
    pub(super) fn begin(activity: Arc<Activity>) -> Self {
        activity.active.fetch_add(1, Ordering::Relaxed);
        activity.begun.fetch_add(1, Ordering::Relaxed);
        activity.begun_in_window.fetch_add(1, Ordering::Relaxed);
        Self { activity, is_waiting: false, is_over: false }
    }

    /// Records that a part of the response is ready for the client.
    pub(super) fn offer(&mut self) {
        if !self.is_waiting {
            self.is_waiting = true;
            self.activity.waiting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that the client has read everything and waits for us.
    pub(super) fn taken(&mut self) {
        self.activity.taken.fetch_add(1, Ordering::Relaxed);
        if self.is_waiting {
            self.is_waiting = false;
            self.activity.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Records that the whole response was handed over.
    pub(super) fn finish(&mut self) {
        self.taken();
        self.is_over = true;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let received = self.activity.received_bytes.load(Ordering::Relaxed);
        self.activity.settled_bytes.store(received, Ordering::Relaxed);
        self.activity.active.fetch_sub(1, Ordering::Relaxed);
        if self.is_waiting {
            self.activity.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.is_over {
            self.activity.abandon();
        }
    }
}

/// The verdict on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// No request for too long: closed gracefully.
    Idle,
    /// Its first bytes did not arrive in time: closed.
    Mute,
    /// The head of a request did not arrive in time: closed.
    SlowHead,
    /// It reads none of its responses: closed.
    Stalled,
}

/// Judges the activity of a connection periodically.
#[derive(Debug)]
pub(super) struct Watchdog {
    activity: Arc<Activity>,
    since: Instant,
    window_since: Instant,
    begun: u64,
    asked_at: Instant,
    taken: u64,
    taken_at: Instant,
    /// Time at which an incomplete head of a request was first seen.
    head_at: Option<Instant>,
}

impl Watchdog {
    pub(super) fn new(activity: Arc<Activity>, now: Instant) -> Self {
        Self {
            activity,
            since: now,
            window_since: now,
            begun: 0,
            asked_at: now,
            taken: 0,
            taken_at: now,
            head_at: None,
        }
    }

    /// Returns the check interval, so that each timeout is noticed within half of itself.
    pub(super) fn every(limits: &Limits) -> Duration {
        let times = [limits.handshake_max, limits.header_read_max, limits.stall_max, limits.idle_max];
        let shortest = times.into_iter().min().unwrap_or_default();
        (shortest / 2).max(Duration::from_millis(10))
    }

    pub(super) fn judge(&mut self, now: Instant, limits: &Limits) -> Verdict {
        let activity = &self.activity;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        if now - self.window_since >= WINDOW {
            self.window_since = now;
            activity.abandoned.store(0, Ordering::Relaxed);
            activity.begun_in_window.store(0, Ordering::Relaxed);
        }
        if now - self.since >= limits.handshake_max && read(&activity.received_bytes) < activity.first_bytes {
            return Verdict::Mute;
        }
        let (begun, taken) = (read(&activity.begun), read(&activity.taken));
        if begun != self.begun || !activity.is_in_head() {
            self.head_at = None;
        } else if now - *self.head_at.get_or_insert(now) >= limits.header_read_max {
            return Verdict::SlowHead;
        }
        if begun != self.begun || activity.active.load(Ordering::Relaxed) > 0 {
            (self.begun, self.asked_at) = (begun, now);
        }
        if taken != self.taken || activity.waiting.load(Ordering::Relaxed) == 0 {
            (self.taken, self.taken_at) = (taken, now);
        }
        if now - self.taken_at >= limits.stall_max {
            Verdict::Stalled
        } else if now - self.asked_at >= limits.idle_max {
            Verdict::Idle
        } else {
            Verdict::Fine
        }
    }
}

/// A connection whose received bytes are counted. Once it is shut down, what the client still sends is read: unread
/// bytes would reset the connection, and its last responses with it.
#[derive(Debug)]
pub(super) struct CountedIo<I> {
    io: I,
    activity: Arc<Activity>,
    /// Set once our side is shut down: until when the client's side is read, and the bytes read.
    rest: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<I> CountedIo<I> {
    pub(super) fn new(io: I, activity: Arc<Activity>) -> Self {
        Self { io, activity, rest: None }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for CountedIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.activity.received_in_turn.load(Ordering::Relaxed) >= TURN_BYTES {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.activity.receive(&buf.filled()[before..]);
        polled
    }
}

/// Not vectored: h2 would send a message of 256 bytes or more as a slice of its own, and its trailers in a second write.
impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for CountedIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        let (until, read) = match &mut this.rest {
            Some(rest) => rest,
            rest => {
                ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
                rest.insert((Box::pin(sleep(REST_FOR)), 0))
            }
        };
        let mut bytes = [0; 1 << 10];
        while until.as_mut().poll(cx).is_pending() && *read < REST_BYTES_MAX {
            let mut rest = ReadBuf::new(&mut bytes);
            // The responses were sent: how the connection ends is of no interest.
            if ready!(Pin::new(&mut this.io).poll_read(cx, &mut rest)).is_err() || rest.filled().is_empty() {
                break;
            }
            *read += rest.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
