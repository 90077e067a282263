//! Limits of connections and requests.

use std::time::Duration;

/// Default maximum size of a message: 64 KiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of a request of Envoy: the longest header that it accepts by default, in each of the descriptors.
pub(crate) const ENVOY_BYTES_MAX: usize = 4 << 20;

/// Limits of connections and requests. The defaults suit a service that is reachable by untrusted clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent connections. Default: 10 000.
    pub connections_max: usize,
    /// Maximum number of concurrent connections of one address, or of one IPv6 /64 network. Loopback is exempt.
    /// Default: 1 000.
    pub connections_per_peer_max: usize,
    /// Maximum number of concurrent decisions, over all listeners; further requests are queued. A request for several
    /// decisions may exceed it, and callers that use less than their share may use as many again. Default: 64.
    pub requests_max: usize,
    /// Capacity of the queue of requests, over all listeners. Requests of a caller that has more in the queue than
    /// there is capacity left are shed. Default: 4 096.
    pub queue_max: usize,
    /// Maximum time that a request waits in the queue. Default: 1 s.
    pub queue_for: Duration,
    /// Maximum number of bytes of requests that are incomplete, over all listeners. Each counts for 4 KiB more;
    /// requests of a caller that has more than there is capacity left are shed. Default: 32 MiB.
    pub bodies_bytes_max: u64,
    /// Timeout for the body of a request, from its headers. Default: 2 s.
    pub body_for: Duration,
    /// Maximum number of concurrent streams of a connection. Each takes about 5 KB while its request waits. Default:
    /// 100.
    pub streams_max: u32,
    /// Number of streams that a client may reset before they are accepted, until its connection is closed. Default: 20.
    pub pending_resets_max: usize,
    /// Number of streams that the server may reset for a client's errors, until its connection is closed. Default: 256.
    pub error_resets_max: usize,
    /// Number of requests that a client may abandon within ten seconds, until its connection is closed. They count only
    /// if they are the majority of its requests. Default: 5 000.
    pub abandoned_max: u32,
    /// Maximum size of the headers of a request, as HTTP/2 counts it. Default: 16 KiB.
    pub header_bytes_max: u32,
    /// Maximum number of headers of an HTTP/1 request. Default: 64.
    pub headers_max: usize,
    /// Maximum size of a message; the APIs must reject longer ones. Default: 64 KiB.
    pub message_bytes_max: usize,
    /// Flow-control window of a stream. Default: 64 KiB.
    pub stream_window: u32,
    /// Flow-control window of a connection. Default: 1 MiB.
    pub connection_window: u32,
    /// Maximum size of an HTTP/2 frame. Default: 16 KiB.
    pub frame_bytes_max: u32,
    /// Maximum size of the send buffer of a stream. Default: 64 KiB.
    pub send_buffer_bytes: usize,
    /// Timeout for a TLS handshake, and again for the first bytes of HTTP after it. Default: 5 s.
    pub handshake_max: Duration,
    /// Timeout for the headers of an HTTP/1 request, from their first byte. Between two requests the idle timeout
    /// applies. Default: 10 s.
    pub header_read_max: Duration,
    /// Timeout from a request to the start of its response. The client's deadline (`grpc-timeout`) can only shorten it.
    /// Default: 10 s.
    pub request_max: Duration,
    /// Maximum time that a response waits for a client that reads none of it. Default: 30 s.
    pub stall_max: Duration,
    /// Maximum time that a connection stays open without a request. Default: 2 min.
    pub idle_max: Duration,
    /// Interval of keepalive pings to a silent HTTP/2 client. Default: 30 s.
    pub keepalive_every: Duration,
    /// Timeout for the response to a keepalive ping. Default: 10 s.
    pub keepalive_max: Duration,
    /// Maximum age of a connection, plus or minus a tenth; then it is closed gracefully. Default: 10 min.
    pub age_max: Duration,
    /// Maximum time for requests in flight to finish once their connection is closed gracefully. Default: 30 s.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_peer_max: 1_000,
            requests_max: 64,
            queue_max: 4_096,
            queue_for: Duration::from_secs(1),
            bodies_bytes_max: 32 << 20,
            body_for: Duration::from_secs(2),
            streams_max: 100,
            pending_resets_max: 20,
            error_resets_max: 256,
            abandoned_max: 5_000,
            header_bytes_max: 16 * 1024,
            headers_max: 64,
            message_bytes_max: MESSAGE_BYTES_MAX,
            stream_window: 64 * 1024,
            connection_window: 1024 * 1024,
            frame_bytes_max: 16 * 1024,
            send_buffer_bytes: 64 * 1024,
            handshake_max: Duration::from_secs(5),
            header_read_max: Duration::from_secs(10),
            request_max: Duration::from_secs(10),
            stall_max: Duration::from_secs(30),
            idle_max: Duration::from_secs(120),
            keepalive_every: Duration::from_secs(30),
            keepalive_max: Duration::from_secs(10),
            age_max: Duration::from_secs(600),
            grace: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Returns the maximum age of one connection: within a tenth of the configured one, so that connections that were
    /// opened together do not close together.
    pub(crate) fn age(&self) -> Duration {
        use std::hash::{BuildHasher, RandomState};
        let part = u32::try_from(RandomState::new().hash_one(()) % 1_001).unwrap_or(0);
        let tenth = self.age_max / 10;
        self.age_max - tenth + tenth * 2 / 1_000 * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_lie_within_a_tenth_and_differ() {
        let limits = Limits::default();
        let ages: Vec<_> = (0..100).map(|_| limits.age()).collect();
        let (low, high) = (limits.age_max * 9 / 10, limits.age_max * 11 / 10);
        assert!(ages.iter().all(|age| (low..=high).contains(age)), "{ages:?}");
        assert!(ages.iter().any(|age| *age != ages[0]));
    }
}
