//! Counters of connections and requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of connections and requests. Shared with the telemetry.
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
    pub(super) fast_path: AtomicU64,
    pub(super) shed: AtomicU64,
    pub(super) late: AtomicU64,
}

/// The counts at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Accepted connections.
    pub accepted: u64,
    /// Accepted connections that have ended.
    pub ended: u64,
    /// Connections rejected: connection limit reached.
    pub over_cap: u64,
    /// Connections rejected: connection limit of their address reached.
    pub over_peer_cap: u64,
    /// Failures of the system to accept a connection, such as from a lack of file descriptors.
    pub accept_errors: u64,
    /// TLS handshakes that failed.
    pub handshake_failures: u64,
    /// Connections closed: timeout of TLS or of the first bytes of HTTP.
    pub handshake_timeouts: u64,
    /// Connections closed: timeout of the head of an HTTP/1 request.
    pub slow_heads: u64,
    /// Connections closed: the client read none of its responses.
    pub stalled: u64,
    /// Connections closed gracefully: idle timeout.
    pub idle: u64,
    /// Connections closed gracefully: max age reached.
    pub aged: u64,
    /// Connections closed: the client abandoned most of its requests.
    pub abandoning: u64,
    /// Connections ended for what the client sent, by an HTTP/2 GOAWAY or after a RESP error: a limit was exceeded, or
    /// a protocol error.
    pub sent_away: u64,
    /// Connections that ended with any other error: the client vanished, or did not respond to a ping.
    pub broken: u64,
    /// Connections forcibly closed: still open after the grace of a graceful close.
    pub cut_off: u64,
    /// Requests.
    pub requests: u64,
    /// Requests that the fast path of HTTP answered.
    pub fast_path: u64,
    /// Requests shed, as their caller had too many in progress.
    pub shed: u64,
    /// Requests that were not received or not served in time.
    pub late: u64,
}

impl Counters {
    /// Counts a request.
    pub(crate) fn count_request(&self) {
        count(&self.requests);
    }

    /// Counts a request that the fast path answers.
    pub(crate) fn count_fast_path(&self) {
        count(&self.requests);
        count(&self.fast_path);
    }

    /// Counts requests that arrived together.
    pub(crate) fn count_requests(&self, requests: u64) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }

    /// Counts a request that was shed.
    pub(crate) fn count_shed(&self) {
        count(&self.shed);
    }

    /// Counts a request that was not received in time.
    pub(crate) fn count_late(&self) {
        count(&self.late);
    }

    /// Returns the counts now.
    pub fn stats(&self) -> Stats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            // Read first, so that `ended` does not exceed `accepted`.
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
            fast_path: read(&self.fast_path),
            shed: read(&self.shed),
            late: read(&self.late),
        }
    }
}

/// Increments a counter.
pub(super) fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}
