//! One connection of the fuzzer: its bytes, its end, and the outcome of each input.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::replies::{Replies, http1, http2};

/// The pause between two writes, and before a close or a reset, so that the server reads what was sent.
const PAUSE: Duration = Duration::from_millis(1);

/// The kinds of input, as the table lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A gRPC request with a mutated message.
    Messages,
    /// A sequence of mutated HTTP/2 frames.
    Frames,
    /// A mutated HTTP/1.1 request.
    Requests,
    /// The same, on the listener for metrics.
    Metrics,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Messages, Self::Frames, Self::Requests, Self::Metrics];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Messages => "grpc messages",
            Self::Frames => "http/2 frames",
            Self::Requests => "http/1.1 requests",
            Self::Metrics => "metrics requests",
        }
    }
}

/// The listeners of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Grpc,
    Http,
    Metrics,
}

/// The end of a connection on the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Sends one honest request more and waits for its response.
    Answer,
    /// Sends nothing more and waits until the server closes the connection.
    Wait,
    /// Shuts down the sending half and waits until the server closes the other.
    HalfClose,
    Close,
    /// Closes with a TCP reset (`SO_LINGER` 0).
    Reset,
}

/// The outcome of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A response without an error.
    Answered,
    /// A response with an error, or a stream that the server reset.
    Refused,
    /// No response, but a later request on the same connection was answered.
    Ignored,
    /// The server closed the connection.
    Closed,
    /// The client closed first.
    Left,
}

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) kind: Kind,
    pub(super) port: Port,
    pub(super) inputs: usize,
    pub(super) bytes: Vec<u8>,
    /// The index at which the bytes are sent in two writes.
    pub(super) split: Option<usize>,
    pub(super) ending: Ending,
}

impl Session {
    /// Runs until the client is done or the server closes the connection. The caller sets the deadline.
    pub(super) async fn run(&self, address: SocketAddr) -> io::Result<Vec<Outcome>> {
        let mut tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        // The server may close the connection before everything is sent. Its responses are read below.
        let _ = self.send(&mut tcp).await;
        match self.ending {
            Ending::Answer | Ending::Wait => {}
            Ending::HalfClose => _ = tcp.shutdown().await,
            Ending::Close | Ending::Reset => {
                sleep(PAUSE).await;
                if self.ending == Ending::Reset {
                    tcp.set_zero_linger()?;
                }
                return Ok(vec![Outcome::Left; self.inputs]);
            }
        }
        Ok(self.outcomes(tcp).await)
    }

    async fn send(&self, tcp: &mut TcpStream) -> io::Result<()> {
        let (first, second) = self.bytes.split_at(self.split.unwrap_or(0).min(self.bytes.len()));
        if !first.is_empty() {
            tcp.write_all(first).await?;
            sleep(PAUSE).await;
        }
        tcp.write_all(second).await
    }

    async fn outcomes(&self, mut tcp: TcpStream) -> Vec<Outcome> {
        let mut bytes = Vec::new();
        loop {
            let read = tcp.read_buf(&mut bytes).await.unwrap_or(0);
            let replies = self.replies(&bytes);
            if read == 0 {
                return replies.outcomes(Outcome::Closed);
            }
            if self.is_done(&replies) {
                return replies.outcomes(Outcome::Left);
            }
        }
    }

    fn replies(&self, bytes: &[u8]) -> Replies {
        match self.kind {
            Kind::Messages | Kind::Frames => http2(bytes, self.inputs),
            Kind::Requests | Kind::Metrics => http1(bytes, self.inputs),
        }
    }

    /// Returns true once every expected response is there. The last request over HTTP/1 makes the server close.
    fn is_done(&self, replies: &Replies) -> bool {
        let is_complete = match self.kind {
            Kind::Messages => replies.each.iter().all(Option::is_some),
            Kind::Frames => true,
            Kind::Requests | Kind::Metrics => false,
        };
        self.ending == Ending::Answer && replies.last && is_complete
    }
}
