//! Connections of protocols that send commands one after the other, without HTTP.
//!
//! What one read brought is answered in order, and one write sends the responses.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;
use tokio::time::timeout;

use super::body::{REST_BYTES_MAX, REST_FOR};
use super::connection::Protocol;
use super::counters::count;
use super::supervise::supervise;
use super::watchdog::{Activity, Exchange};
use super::{ListenOptions, Peer};
use crate::share::Account;

/// Maximum size of what was received and not answered yet, and so of a command. Each open connection holds this much.
pub(super) const RECEIVED_BYTES_MAX: usize = 8 << 10;
/// Size of the responses for which memory is kept.
const RESPONSES_BYTES_KEPT: usize = 4 << 10;

/// Answers the commands of one connection.
pub(crate) trait Session: Send {
    /// Looks at the beginning of `received`.
    fn look(&mut self, received: &[u8]) -> Received;

    /// Answers commands at the beginning of `received` in order, and appends the responses. Bounds their size. `leaving`
    /// becomes true when the connection closes after them. Dropped if the client leaves meanwhile.
    fn answer(
        &mut self,
        received: &[u8],
        leaving: &AtomicBool,
        responses: &mut Vec<u8>,
    ) -> impl Future<Output = Step> + Send;
}

/// Kind of what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// An incomplete command.
    Part,
    /// A complete command, or an error.
    Command,
    /// Bytes that another protocol serves.
    Foreign,
}

/// Result of answering some commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Number of bytes that were answered.
    pub(crate) answered_bytes: usize,
    pub(crate) next: Next,
}

/// Next step once the responses are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More bytes are needed.
    Read,
    /// There may be more commands.
    Answer,
    /// The client is done.
    Close,
    /// The client sent what cannot be understood: closed.
    Reject,
    /// Another protocol serves the rest of the connection.
    HandOver,
}

/// A protocol of commands, which opens a session for each connection.
#[derive(Clone)]
pub(crate) struct Commands<F> {
    open: F,
    /// Maximum size of a command; never more than 8 KiB.
    bytes_max: usize,
}

impl<F> Commands<F> {
    /// Opens sessions with `open`, from the peer and the maximum size of a command.
    pub(crate) fn new(open: F, message_bytes_max: usize) -> Self {
        Self { open, bytes_max: message_bytes_max.min(RECEIVED_BYTES_MAX) }
    }
}

impl<F, S> Protocol for Commands<F>
where
    F: Fn(Peer, usize) -> S + Clone + Send + 'static,
    S: Session + 'static,
{
    async fn speak<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        io: I,
        (peer, _): (Peer, Arc<Account>),
        shared: &Arc<ListenOptions>,
        closing: watch::Receiver<bool>,
    ) {
        let activity = Activity::of_commands();
        let session = (self.open)(peer, self.bytes_max);
        // The task that sets it polls the connection right after: nobody has to be woken.
        let leaving = AtomicBool::new(false);
        let exchanges = Exchanges::new(io, session, activity.clone(), self.bytes_max);
        let mut connection = pin!(exchanges.run(&leaving));
        let poll = |cx: &mut Context<'_>, leaves| {
            if leaves {
                leaving.store(true, Relaxed);
            }
            connection.as_mut().poll(cx)
        };
        match supervise(&activity, shared, closing, poll).await {
            Some(Ok(End::Rejected)) => count(&shared.counters.sent_away),
            Some(Err(_)) => count(&shared.counters.broken),
            Some(Ok(End::Closed | End::HandedOver { .. })) | None => {}
        }
    }
}

/// One connection: what it received, and what it sends.
pub(super) struct Exchanges<I, S> {
    io: I,
    session: S,
    activity: Arc<Activity>,
    received: Box<[u8]>,
    /// Number of received bytes that are not answered yet.
    length: usize,
    responses: Vec<u8>,
}

/// The end of the exchanges.
pub(super) enum End<I> {
    Closed,
    /// Closed, as the client sent what cannot be understood.
    Rejected,
    /// The connection goes on in another protocol, which begins with what was received and not answered.
    HandedOver {
        io: I,
        received: Vec<u8>,
    },
}

impl<I: AsyncRead + AsyncWrite + Unpin, S: Session> Exchanges<I, S> {
    /// Creates the exchanges of a connection whose commands have at most `bytes_max` bytes.
    pub(super) fn new(io: I, session: S, activity: Arc<Activity>, bytes_max: usize) -> Self {
        let received = vec![0; bytes_max].into_boxed_slice();
        Self { io, session, activity, received, length: 0, responses: Vec::new() }
    }

    /// Answers commands until the client closes the connection, has to leave, or changes the protocol.
    pub(super) async fn run(mut self, leaving: &AtomicBool) -> io::Result<End<I>> {
        let mut next = Next::Read;
        while next == Next::Read {
            let read = {
                let mut read = pin!(self.io.read(&mut self.received[self.length..]));
                let read = poll_fn(|cx| match leaving.load(Relaxed) {
                    true => Poll::Ready(None),
                    false => read.as_mut().poll(cx).map(Some),
                });
                read.await.transpose()
            };
            let read = match read {
                // Clients end idle connections in every way there is.
                Ok(Some(0)) | Err(_) if self.length == 0 => return Ok(End::Closed),
                read => read?,
            };
            next = match read {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => self.answer(count, leaving).await?,
                // Answers what has arrived, so that few commands are lost.
                None => match self.io.read(&mut self.received[self.length..]).now_or_never() {
                    Some(read) => match self.answer(read?, leaving).await? {
                        Next::Read => Next::Close,
                        next => next,
                    },
                    None => Next::Close,
                },
            };
        }
        if next == Next::HandOver {
            return Ok(End::HandedOver { received: self.received[..self.length].to_vec(), io: self.io });
        }
        self.close().await;
        Ok(if next == Next::Reject { End::Rejected } else { End::Closed })
    }

    /// Answers what is complete after a read of `count` bytes.
    async fn answer(&mut self, count: usize, leaving: &AtomicBool) -> io::Result<Next> {
        self.activity.receive(&self.received[self.length..self.length + count]);
        self.length += count;
        loop {
            match self.session.look(&self.received[..self.length]) {
                Received::Part if self.length < self.received.len() => return Ok(Next::Read),
                // What does not fit is another protocol's, too.
                Received::Part | Received::Foreign => return Ok(Next::HandOver),
                Received::Command => {}
            }
            let mut exchange = Exchange::begin(self.activity.clone());
            let step = self.answer_step(leaving).await?;
            self.received.copy_within(step.answered_bytes..self.length, 0);
            self.length -= step.answered_bytes;
            self.send(&mut exchange).await?;
            if step.next != Next::Answer {
                return Ok(step.next);
            }
        }
    }

    /// Lets the session answer. Reads on while it waits: a client that closes its side is done, and what it has requested
    /// takes no more of what others wait for.
    async fn answer_step(&mut self, leaving: &AtomicBool) -> io::Result<Step> {
        let Self { io, session, activity, received, length, responses } = self;
        let (received, ahead) = received.split_at_mut(*length);
        let mut answer = pin!(session.answer(received, leaving, responses));
        let mut arrived = 0;
        let step = poll_fn(|cx| {
            if let Poll::Ready(step) = answer.as_mut().poll(cx) {
                return Poll::Ready(Ok(step));
            }
            while arrived < ahead.len() {
                let mut read = ReadBuf::new(&mut ahead[arrived..]);
                ready!(Pin::new(&mut *io).poll_read(cx, &mut read))?;
                if read.filled().is_empty() {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                activity.receive(read.filled());
                arrived += read.filled().len();
            }
            Poll::Pending
        });
        let step = step.await;
        *length += arrived;
        step
    }

    /// Sends the responses. A client that reads none of them is detected by the watchdog.
    async fn send(&mut self, exchange: &mut Exchange) -> io::Result<()> {
        let mut rest = &self.responses[..];
        while !rest.is_empty() {
            exchange.offer();
            match self.io.write(rest).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = &rest[written..],
            }
            exchange.taken();
        }
        // TLS takes what the socket does not take yet.
        exchange.offer();
        self.io.flush().await?;
        exchange.finish();
        self.responses.clear();
        self.responses.shrink_to(RESPONSES_BYTES_KEPT);
        Ok(())
    }

    /// Closes our side, and reads the client's until it ends: unread bytes would reset the connection, and its last
    /// responses with it.
    async fn close(&mut self) {
        let closing = async {
            self.io.shutdown().await?;
            let mut rest = 0;
            while rest < REST_BYTES_MAX {
                match self.io.read(&mut self.received).await? {
                    0 => break,
                    count => rest += count,
                }
            }
            io::Result::Ok(())
        };
        // The responses were sent: how the connection ends is of no interest.
        let _ = timeout(REST_FOR, closing).await;
    }
}
