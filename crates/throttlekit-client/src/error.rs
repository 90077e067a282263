//! Errors of a client.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use throttlekit::store::StoreError;
use throttlekit_proto::{CAUSE, STORE_OUTAGE};
use tonic::{Code, Status};

/// Reason why nothing was decided. A denial is never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The server is unreachable, did not respond in time, or its own store is unavailable. May resolve with time.
    Outage(StoreError),
    /// The server's store is unavailable, and the policy fails closed. No [`OnOutage`](crate::OnOutage) of a client
    /// overrides that.
    Closed(Arc<str>),
    /// The server has no policy with this name.
    UnknownPolicy(Arc<str>),
    /// The policy does not support this request.
    Unsupported(Arc<str>),
    /// The request is invalid.
    Invalid(Arc<str>),
    /// The caller is not authenticated, or not authorized.
    Forbidden(Arc<str>),
    /// The maximum number of concurrent calls is reached.
    Busy(Arc<str>),
    /// The server failed with an internal error.
    Failed(Arc<str>),
}

impl ClientError {
    pub(crate) fn invalid(why: impl fmt::Display) -> Self {
        Self::Invalid(why.to_string().into())
    }

    /// Returns whether the error may resolve with time, so that [`OnOutage`](crate::OnOutage) applies.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Outage(_))
    }
}

/// Returns the error in a status that the transport created, not the server.
pub(crate) fn lost(status: &Status) -> Option<StoreError> {
    let source = status.source()?;
    let mut causes = vec![status.message().to_owned()];
    let mut next = Some(source);
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes.dedup();
    Some(StoreError::unavailable(causes.join(": ")))
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        let why = || status.message().into();
        if status.metadata().get(CAUSE).is_some_and(|cause| cause == STORE_OUTAGE) {
            return Self::Closed(why());
        }
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                Self::Outage(StoreError::unavailable(status.message()))
            }
            Code::NotFound => Self::UnknownPolicy(why()),
            Code::Unimplemented => Self::Unsupported(why()),
            Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => Self::Invalid(why()),
            Code::Unauthenticated | Code::PermissionDenied => Self::Forbidden(why()),
            Code::ResourceExhausted => Self::Busy(why()),
            _ => Self::Failed(why()),
        }
    }
}

/// Converts to the library's error: anything but an outage is a misconfiguration.
impl From<ClientError> for StoreError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Outage(error) => error,
            busy @ (ClientError::Busy(_) | ClientError::Closed(_)) => Self::unavailable(busy),
            other => Self::misconfigured(other),
        }
    }
}

impl From<StoreError> for ClientError {
    fn from(error: StoreError) -> Self {
        if error.is_outage() { Self::Outage(error) } else { Self::Failed(error.to_string().into()) }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outage(error) => error.fmt(f),
            Self::UnknownPolicy(why)
            | Self::Unsupported(why)
            | Self::Invalid(why)
            | Self::Forbidden(why)
            | Self::Busy(why)
            | Self::Closed(why)
            | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl Error for ClientError {}
