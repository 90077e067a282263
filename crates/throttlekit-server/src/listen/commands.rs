//! Connections of protocols that send commands one after the other, without HTTP.
//!
//! What one read brought is answered in order, and one write sends the responses.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
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
const RECEIVED_BYTES_MAX: usize = 8 << 10;
/// Size of the responses for which memory is kept.
const RESPONSES_BYTES_KEPT: usize = 4 << 10;

/// Answers the commands of one connection.
pub(crate) trait Session: Send {
    /// Checks whether there is something to answer: a complete command, or an error.
    fn is_ready(&self, received: &[u8]) -> bool;

    /// Answers commands at the beginning of `received` in order, and appends the responses. Bounds their size.
    fn answer(&mut self, received: &[u8], responses: &mut Vec<u8>) -> impl Future<Output = Step> + Send;
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
        let session = (self.open)(peer, self.bytes_max);
        let activity = Activity::of_commands();
        let received = vec![0; self.bytes_max].into_boxed_slice();
        let (length, responses) = (0, Vec::new());
        let exchanges = Exchanges { io, session, activity: activity.clone(), received, length, responses };
        // The task that sets it polls the connection right after: nobody has to be woken.
        let leaving = AtomicBool::new(false);
        let mut connection = pin!(exchanges.run(&leaving));
        let poll = |cx: &mut Context<'_>, leaves| {
            if leaves {
                leaving.store(true, Relaxed);
            }
            connection.as_mut().poll(cx)
        };
        match supervise(&activity, shared, closing, poll).await {
            Some(Ok(Next::Reject)) => count(&shared.counters.sent_away),
            Some(Err(_)) => count(&shared.counters.broken),
            Some(Ok(_)) | None => {}
        }
    }
}

/// One connection: what it received, and what it sends.
struct Exchanges<I, S> {
    io: I,
    session: S,
    activity: Arc<Activity>,
    received: Box<[u8]>,
    /// Number of received bytes that are not answered yet.
    length: usize,
    responses: Vec<u8>,
}

impl<I: AsyncRead + AsyncWrite + Unpin, S: Session> Exchanges<I, S> {
    /// Answers commands until the client closes the connection, or has to leave.
    async fn run(mut self, leaving: &AtomicBool) -> io::Result<Next> {
        let mut next = Next::Read;
        while next == Next::Read {
            let read = {
                let mut read = pin!(self.io.read(&mut self.received[self.length..]));
                let read = poll_fn(|cx| match leaving.load(Relaxed) {
                    true => Poll::Ready(None),
                    false => read.as_mut().poll(cx).map(Some),
                });
                read.await.transpose()?
            };
            next = match read {
                Some(0) => return Ok(Next::Close),
                Some(count) => self.answer(count).await?,
                // Answers what has arrived, so that few commands are lost.
                None => match self.io.read(&mut self.received[self.length..]).now_or_never() {
                    Some(read) => match self.answer(read?).await? {
                        Next::Read => Next::Close,
                        next => next,
                    },
                    None => Next::Close,
                },
            };
        }
        self.close().await;
        Ok(next)
    }

    /// Answers what is complete after a read of `count` bytes.
    async fn answer(&mut self, count: usize) -> io::Result<Next> {
        self.activity.receive(&self.received[self.length..self.length + count]);
        self.length += count;
        while self.session.is_ready(&self.received[..self.length]) {
            let mut exchange = Exchange::begin(self.activity.clone());
            let step = self.session.answer(&self.received[..self.length], &mut self.responses).await;
            self.received.copy_within(step.answered_bytes..self.length, 0);
            self.length -= step.answered_bytes;
            self.send(&mut exchange).await?;
            if step.next != Next::Answer {
                return Ok(step.next);
            }
        }
        Ok(Next::Read)
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
