//! Errors of the client layer.

use std::error::Error;
use std::fmt;

use crate::http::MissingKey;
use crate::wait::NotReady;

/// Error of a call through an [`OutboundLayer`](super::OutboundLayer).
#[derive(Debug)]
#[non_exhaustive]
pub enum OutboundError<E> {
    /// The call was not sent: it would have had to wait for too long. Retry later.
    NotReady(NotReady),
    /// The call was not sent: it has no key. Correct the request or the layer.
    MissingKey(MissingKey),
    /// The client below the layer failed.
    Client(E),
}

impl<E> fmt::Display for OutboundError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady(_) => "the call was not sent: its limits do not allow it in time",
            Self::MissingKey(_) => "the call was not sent: it has no key for its limits",
            Self::Client(_) => "the call failed",
        })
    }
}

impl<E: Error + 'static> Error for OutboundError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotReady(not_ready) => Some(not_ready),
            Self::MissingKey(_) => None,
            Self::Client(error) => Some(error),
        }
    }
}
