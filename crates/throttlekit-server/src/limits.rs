//! Limits of connections and requests.

use std::time::Duration;

/// Bytes of a message, unless set otherwise: 64 KiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The largest request of Envoy: the longest header that it takes by default, in each of the descriptors.
pub(crate) const ENVOY_BYTES_MAX: usize = 4 << 20;

/// What connections and requests may cost. The defaults are meant for a service that strangers can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time: 10 000.
    pub connections_max: usize,
    /// Connections of one address, or of one IPv6 network of 64 bits, at a time: 1 000. Loopback is exempt.
    pub connections_per_peer_max: usize,
    /// Decisions at a time, over all listeners; further requests take turns. One that asks for several may go beyond it,
    /// and callers who ask for less than their share may have as many again. Default: 64.
    pub requests_max: usize,
    /// Requests that wait for their turn, over all listeners. Whoever has more of them than there is room left is told to
    /// come back: 4 096.
    pub queue_max: usize,
    /// How long a request may wait for its turn: 1 s.
    pub queue_for: Duration,
    /// Bytes of requests that have begun to come and are not there yet, over all listeners. Each counts for 4 KiB more;
    /// whoever has more than there is room left is told to come back: 32 MiB.
    pub bodies_bytes_max: u64,
    /// Time for the body of a request, from its headers: 2 s.
    pub body_for: Duration,
    /// Streams of one connection at a time. Each takes about 5 KB while its request waits. Default: 100.
    pub streams_max: u32,
    /// Streams a client took back before they were looked at, until its connection ends: 20.
    pub pending_resets_max: usize,
    /// Streams ended for a client's errors, until its connection ends: 256.
    pub error_resets_max: usize,
    /// Requests of a connection that were given up by the client within ten seconds, until the connection ends. They
    /// count only where they are most of what it asked: 5 000.
    pub abandoned_max: u32,
    /// Bytes of the headers of a request, as HTTP/2 counts them: 16 KiB.
    pub header_bytes_max: u32,
    /// Headers of an HTTP/1 request: 64.
    pub headers_max: usize,
    /// Bytes of a message; the doors are to refuse longer ones: 64 KiB.
    pub message_bytes_max: usize,
    /// Bytes a client may send ahead on one stream: 64 KiB.
    pub stream_window: u32,
    /// Bytes a client may send ahead on one connection: 1 MiB.
    pub connection_window: u32,
    /// Bytes of one HTTP/2 frame: 16 KiB.
    pub frame_bytes_max: u32,
    /// Bytes of answers that wait for one stream: 64 KiB.
    pub send_buffer_bytes: usize,
    /// Time for a TLS handshake, and again for the first bytes of HTTP after it: 5 s.
    pub handshake_max: Duration,
    /// Time for the headers of an HTTP/1 request, from their first byte. Between two requests a connection has the time
    /// of the idle: 10 s.
    pub header_read_max: Duration,
    /// Time for a request until its answer begins. A client's own deadline (`grpc-timeout`) can only shorten it: 10 s.
    pub request_max: Duration,
    /// How long an answer may wait for a client that takes none of it: 30 s.
    pub stall_max: Duration,
    /// How long a connection may be without a request: 2 min.
    pub idle_max: Duration,
    /// How often a silent HTTP/2 client is asked whether it is there: 30 s.
    pub keepalive_every: Duration,
    /// How long it may take to say so: 10 s.
    pub keepalive_max: Duration,
    /// After how long a connection is told to go and come back, give or take a tenth: 10 min.
    pub age_max: Duration,
    /// How long requests may take to end once their connection was told to go: 30 s.
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
    /// The age of one connection: within a tenth of what was asked for, so that those who came together do not leave
    /// together.
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
