//! The body of a request, read whole before its turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{FutureExt, poll};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::listen::{read_rest, within};
use crate::share::{Shares, Who};

/// Bytes that an incomplete body counts for in addition to its own: about what is kept for its request.
const WAITING_BYTES: u64 = 4 * 1024;

pin_project! {
    /// A body that was read whole, or one that is streamed while it is served.
    #[project = Kind]
    pub(crate) enum Whole {
        Came { bytes: Option<Bytes> },
        Comes { #[pin] body: Incoming },
    }
}

impl Whole {
    pub(super) fn of(bytes: Bytes) -> Self {
        Self::Came { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) }
    }

    /// Returns the whole body, if it was read.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Came { bytes } => bytes.as_ref(),
            Self::Comes { .. } => None,
        }
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.project() {
            Kind::Came { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Comes { body } => body.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Came { bytes } => bytes.is_none(),
            Self::Comes { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Came { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Comes { body } => body.size_hint(),
        }
    }
}

/// Reason why a body is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Timeout.
    Late,
    /// Its caller has too much in progress.
    Crowded,
    /// The client aborted.
    Broken,
}

/// Reads a body, at most until it exceeds `bytes_max`: the decoder rejects it then.
pub(super) async fn whole(
    shares: &Arc<Shares>,
    who: &Who,
    read: Read,
    bytes_max: usize,
) -> Result<Whole, Missing> {
    let begun = Instant::now();
    let read = within(|| begun + shares.limits().body_for, rest(shares, who, read, bytes_max)).await;
    let bytes = read.unwrap_or(Err(Missing::Late))?;
    Ok(Whole::of(bytes))
}

/// A body, as far as it was read.
pub(super) struct Read {
    body: Incoming,
    bytes: Bytes,
    pieces: Vec<u8>,
}

impl Read {
    /// Begins to read a body: takes what has arrived, which is usually all of it.
    pub(super) fn begin(body: Incoming, bytes_max: usize) -> Result<Self, Missing> {
        let mut read = Self { body, bytes: Bytes::new(), pieces: Vec::new() };
        while read.is_incomplete(bytes_max) {
            match read.body.frame().now_or_never() {
                Some(Some(frame)) => read.take(frame)?,
                Some(None) => break,
                None => return Ok(read),
            }
        }
        Ok(read)
    }

    /// Returns the body, if it was read.
    pub(super) fn done(self, bytes_max: usize) -> Result<Whole, Self> {
        if self.is_incomplete(bytes_max) { Err(self) } else { Ok(Whole::of(self.into_bytes())) }
    }

    fn is_incomplete(&self, bytes_max: usize) -> bool {
        !self.body.is_end_stream() && self.length() <= bytes_max
    }

    fn length(&self) -> usize {
        self.bytes.len().max(self.pieces.len())
    }

    fn take(&mut self, frame: Result<Frame<Bytes>, hyper::Error>) -> Result<(), Missing> {
        let Ok(data) = frame.map_err(|_| Missing::Broken)?.into_data() else { return Ok(()) };
        if self.bytes.is_empty() {
            self.bytes = data;
        } else {
            if self.pieces.is_empty() {
                self.pieces.extend_from_slice(&self.bytes);
            }
            self.pieces.extend_from_slice(&data);
        }
        Ok(())
    }

    fn into_bytes(self) -> Bytes {
        if self.pieces.is_empty() { self.bytes } else { self.pieces.into() }
    }
}

async fn rest(shares: &Arc<Shares>, who: &Who, mut read: Read, bytes_max: usize) -> Result<Bytes, Missing> {
    let mut held = HeldBytes::of(shares, who);
    while read.is_incomplete(bytes_max) {
        let mut frame = read.body.frame();
        let frame = match poll!(&mut frame) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let length = read.bytes.len().max(read.pieces.len()) as u64;
                if !held.grow(length) {
                    read_rest(read.body).await;
                    return Err(Missing::Crowded);
                }
                frame.await
            }
        };
        let Some(frame) = frame else { break };
        read.take(frame)?;
    }
    Ok(read.into_bytes())
}

/// Capacity for a body that is incomplete, released on drop.
pub(crate) struct HeldBytes {
    shares: Arc<Shares>,
    who: Who,
    units: u64,
}

impl HeldBytes {
    /// Takes no capacity yet.
    pub(crate) fn of(shares: &Arc<Shares>, who: &Who) -> Self {
        Self { shares: shares.clone(), who: who.clone(), units: 0 }
    }

    /// Takes more capacity, for as many bytes and what is kept for their request. Returns whether there is enough.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let more = (WAITING_BYTES + bytes).saturating_sub(self.units);
        let grows = self.shares.take_body_bytes(&self.who, more);
        self.units += if grows { more } else { 0 };
        grows
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.shares.give_back_body_bytes(&self.who, self.units);
    }
}
