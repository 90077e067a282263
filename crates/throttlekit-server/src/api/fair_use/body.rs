//! The body of a request, read whole before its turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::poll;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::timeout;

use crate::listen::read_rest;
use crate::share::{Shares, Who};

/// Bytes that an incomplete body counts for in addition to its own: about what is kept for its request.
const WAITING_BYTES: u64 = 4 * 1024;

pin_project! {
    /// A body that was read whole, or one that is streamed while it is served.
    #[project = Kind]
    pub(crate) enum Whole {
        Came { #[pin] body: Full<Bytes> },
        Comes { #[pin] body: Incoming },
    }
}

impl Whole {
    pub(super) fn of(bytes: Bytes) -> Self {
        Self::Came { body: Full::new(bytes) }
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
            Kind::Came { body } => body.poll_frame(context).map_err(|never| match never {}),
            Kind::Comes { body } => body.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Came { body } => body.is_end_stream(),
            Self::Comes { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Came { body } => body.size_hint(),
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
    body: Incoming,
    bytes_max: usize,
) -> Result<Whole, Missing> {
    let read = timeout(shares.limits().body_for, read(shares, who, body, bytes_max)).await;
    let bytes = read.unwrap_or(Err(Missing::Late))?;
    Ok(Whole::of(bytes))
}

async fn read(
    shares: &Arc<Shares>,
    who: &Who,
    mut body: Incoming,
    bytes_max: usize,
) -> Result<Bytes, Missing> {
    let (mut bytes, mut pieces) = (Bytes::new(), Vec::new());
    let mut held = None;
    while !body.is_end_stream() && bytes.len().max(pieces.len()) <= bytes_max {
        let mut frame = body.frame();
        // Usually it arrives with its headers, and nothing is counted.
        let frame = match poll!(&mut frame) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let length = bytes.len().max(pieces.len()) as u64;
                let held = held.get_or_insert_with(|| HeldBytes::of(shares, who));
                if !held.grow(length) {
                    read_rest(body).await;
                    return Err(Missing::Crowded);
                }
                frame.await
            }
        };
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|_| Missing::Broken)?.into_data() else { continue };
        if bytes.is_empty() {
            bytes = data;
        } else {
            if pieces.is_empty() {
                pieces.extend_from_slice(&bytes);
            }
            pieces.extend_from_slice(&data);
        }
    }
    Ok(if pieces.is_empty() { bytes } else { pieces.into() })
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
