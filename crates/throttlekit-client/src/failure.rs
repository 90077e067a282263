//! Reasons why a server decided nothing.

use std::error::Error;
use std::sync::Arc;

use throttlekit::StoreError;
use throttlekit_proto::{CAUSE, STORE_OUTAGE};
use tonic::{Code, ConnectError, Status};

/// Reason why a server decided nothing, as far as this crate distinguishes them. Callers get a [`StoreError`].
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server's store is unavailable, and the policy fails closed. No fallback of a client overrides that.
    Closed(Arc<str>),
    /// The policy does not support this request.
    Unsupported(Arc<str>),
    /// The server holds or runs as much as it may. No fallback of a [`RemotePolicy`](crate::RemotePolicy) applies.
    Busy(Arc<str>),
    /// Any other.
    Other(StoreError),
}

impl Failure {
    /// Returns whether the fallback of a client applies.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Other(error) if error.is_outage())
    }

    /// Returns whether a request that is idempotent is to be sent again.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Other(error) if error.may_pass())
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

/// Reason why no server has processed a call: sent again, it is not charged twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unprocessed {
    /// There is no connection to the server.
    Unreachable,
    /// The connection closed before it carried the call, or its server reported that it has not processed it: by GOAWAY
    /// (RFC 9113, 6.8) or REFUSED_STREAM (8.7). Another connection may work.
    Closed,
}

/// Returns why no server has processed a call. `None` if one may have: its outcome is unknown.
pub(crate) fn unprocessed(status: &Status) -> Option<Unprocessed> {
    let mut next = status.source();
    while let Some(cause) = next {
        if cause.is::<ConnectError>() {
            return Some(Unprocessed::Unreachable);
        }
        if was_not_taken(cause) || was_refused(cause) {
            return Some(Unprocessed::Closed);
        }
        next = cause.source();
    }
    None
}

/// Returns whether a connection closed with the call in its queue.
fn was_not_taken(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
}

/// Returns whether the peer reported that it does not process the call. A connection that breaks after GOAWAY has
/// another error for the calls that the peer processes.
fn was_refused(cause: &(dyn Error + 'static)) -> bool {
    let is_refusal =
        |error: &h2::Error| error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM);
    cause.downcast_ref::<h2::Error>().is_some_and(|error| error.is_remote() && is_refusal(error))
}

/// Returns whether the server does not accept the token.
pub(crate) fn is_forbidden(status: &Status) -> bool {
    matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let why = status.message();
        if status.metadata().get(CAUSE).is_some_and(|cause| cause == STORE_OUTAGE) {
            return Self::Closed(why.into());
        }
        match status.code() {
            Code::Unimplemented => Self::Unsupported(why.into()),
            Code::ResourceExhausted => Self::Busy(why.into()),
            code => Self::Other(store_error(code, why)),
        }
    }
}

fn store_error(code: Code, why: &str) -> StoreError {
    match code {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => StoreError::unavailable(why),
        Code::NotFound
        | Code::InvalidArgument
        | Code::OutOfRange
        | Code::FailedPrecondition
        | Code::Unauthenticated
        | Code::PermissionDenied => StoreError::rejected(why),
        _ => StoreError::misconfigured(why),
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Closed(why) | Failure::Busy(why) => Self::Unavailable(why),
            Failure::Unsupported(why) => Self::Rejected(why),
            Failure::Other(error) => error,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_outages_are_left_to_a_fallback() {
        let failure = |code| Failure::from(Status::new(code, "why"));
        assert!(failure(Code::Unavailable).is_outage());
        for code in [Code::ResourceExhausted, Code::Unimplemented, Code::PermissionDenied, Code::Internal] {
            assert!(!failure(code).is_outage() && !failure(code).may_pass(), "{code:?}");
        }
        let mut closed = Status::unavailable("why");
        closed.metadata_mut().insert(CAUSE, STORE_OUTAGE.parse().unwrap());
        assert!(!Failure::from(closed).is_outage(), "the policy decided: it fails closed");
    }

    #[test]
    fn only_a_call_without_a_connection_is_unprocessed_of_those_with_another_error() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let unreachable = Status::from_error(Box::new(ConnectError(Box::new(refused()))));
        assert_eq!(unprocessed(&unreachable), Some(Unprocessed::Unreachable));
        assert_eq!(unprocessed(&Status::from_error(Box::new(refused()))), None);
        assert_eq!(unprocessed(&Status::unavailable("a connection was refused")), None);
        // Of this side, not of the peer.
        let local = h2::Error::from(h2::Reason::REFUSED_STREAM);
        assert_eq!(unprocessed(&Status::from_error(Box::new(local))), None);
    }

    #[test]
    fn callers_get_the_reason() {
        let error = |code| StoreError::from(Failure::from(Status::new(code, "why")));
        assert_eq!(error(Code::NotFound), StoreError::rejected("why"));
        assert_eq!(error(Code::Unimplemented), StoreError::rejected("why"));
        assert_eq!(error(Code::ResourceExhausted), StoreError::unavailable("why"));
        assert_eq!(error(Code::Internal), StoreError::misconfigured("why"));
    }
}
