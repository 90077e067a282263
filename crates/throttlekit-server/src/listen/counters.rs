//! Counters of connections and requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what happens to connections and requests. Shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) over_cap: AtomicU64,
    pub(super) over_peer_cap: AtomicU64,
    pub(super) accept_errors: AtomicU64,
    pub(super) handshake_failures: AtomicU64,
    pub(super) handshake_timeouts: AtomicU64,
    pub(super) slow_heads: AtomicU64,
    pub(super) stalled: AtomicU64,
    pub(super) idle: AtomicU64,
    pub(super) aged: AtomicU64,
    pub(super) abandoning: AtomicU64,
    pub(super) sent_away: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) cut_off: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) shed: AtomicU64,
    pub(super) late: AtomicU64,
}

/// The counts at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections that were taken.
    pub accepted: u64,
    /// Those of them that are over.
    pub ended: u64,
    /// Connections refused as there were as many as may be.
    pub over_cap: u64,
    /// Connections refused as their address had as many as it may.
    pub over_peer_cap: u64,
    /// Times the system had no connection to give, such as for want of file descriptors.
    pub accept_errors: u64,
    /// TLS handshakes that failed.
    pub handshake_failures: u64,
    /// Connections closed as TLS or the first bytes of HTTP did not come in time.
    pub handshake_timeouts: u64,
    /// Connections closed as the head of a request over HTTP/1 did not come in time.
    pub slow_heads: u64,
    /// Connections closed as the client took none of its answers.
    pub stalled: u64,
    /// Connections told to go as nothing was asked for long.
    pub idle: u64,
    /// Connections told to go for their age.
    pub aged: u64,
    /// Connections closed as their client gave up most of what it asked.
    pub abandoning: u64,
    /// Connections ended by an HTTP/2 GOAWAY for what the client sent: a limit that was passed, or nonsense.
    pub sent_away: u64,
    /// Connections that ended by any other error: the client vanished, or did not answer a ping.
    pub broken: u64,
    /// Connections that were told to go, and were ended as they had not gone in time.
    pub cut_off: u64,
    /// Requests.
    pub requests: u64,
    /// Requests told to come back, as their caller had as many under way as it may.
    pub shed: u64,
    /// Requests that did not come, or were not answered, in time.
    pub late: u64,
}

impl Counters {
    /// One more request told to come back.
    pub(crate) fn count_shed(&self) {
        count(&self.shed);
    }

    /// One more request that did not come in time.
    pub(crate) fn count_late(&self) {
        count(&self.late);
    }

    /// The counts now.
    pub fn stats(&self) -> Stats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            // Read first, so that no more are over than there were.
            ended: read(&self.ended),
            accepted: read(&self.accepted),
            over_cap: read(&self.over_cap),
            over_peer_cap: read(&self.over_peer_cap),
            accept_errors: read(&self.accept_errors),
            handshake_failures: read(&self.handshake_failures),
            handshake_timeouts: read(&self.handshake_timeouts),
            slow_heads: read(&self.slow_heads),
            stalled: read(&self.stalled),
            idle: read(&self.idle),
            aged: read(&self.aged),
            abandoning: read(&self.abandoning),
            sent_away: read(&self.sent_away),
            broken: read(&self.broken),
            cut_off: read(&self.cut_off),
            requests: read(&self.requests),
            shed: read(&self.shed),
            late: read(&self.late),
        }
    }
}

/// One more.
pub(super) fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}
