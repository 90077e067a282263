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

/// Returns whether a call was not sent, as there was no connection: another server may decide it.
pub(crate) fn was_not_sent(status: &Status) -> bool {
    let mut next = status.source();
    while let Some(cause) = next {
        if cause.is::<ConnectError>() {
            return true;
        }
        next = cause.source();
    }
    false
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
    fn only_a_call_without_a_connection_was_not_sent() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(was_not_sent(&Status::from_error(Box::new(ConnectError(Box::new(refused()))))));
        assert!(!was_not_sent(&Status::from_error(Box::new(refused()))));
        assert!(!was_not_sent(&Status::unavailable("a connection was refused")));
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
