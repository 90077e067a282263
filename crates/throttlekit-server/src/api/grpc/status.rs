//! The gRPC status of a refusal. A denial is not a refusal: it is a response.

use throttlekit::store::StoreError;
use throttlekit_proto::{CAUSE, STORE_OUTAGE};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::engine::Refusal;

/// Converts a refusal to a gRPC status.
#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
pub fn status(refusal: Refusal) -> Status {
    let code = match &refusal {
        Refusal::UnknownPolicy(_) => Code::NotFound,
        Refusal::Unsupported(_) => Code::Unimplemented,
        Refusal::Invalid(_) => Code::InvalidArgument,
        Refusal::Forbidden(_) => Code::PermissionDenied,
        Refusal::TooMany(_) => Code::ResourceExhausted,
        Refusal::Outage => Code::Unavailable,
        Refusal::Store(error) if error.may_pass() => Code::Unavailable,
        Refusal::Store(StoreError::Misconfigured(_)) => Code::FailedPrecondition,
        Refusal::Store(_) => Code::Internal,
    };
    let mut status = Status::new(code, refusal.to_string());
    if refusal == Refusal::Outage {
        status.metadata_mut().insert(CAUSE, MetadataValue::from_static(STORE_OUTAGE));
    }
    status
}
