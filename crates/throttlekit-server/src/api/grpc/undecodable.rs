//! Messages that cannot be decoded are client errors, and reported as such.

use http::{HeaderValue, Response};
use tonic::Code;

const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";
/// Prefixes of the error messages that tonic returns as INTERNAL when it fails to read a request. They are
/// percent-encoded. A compressed message without a negotiated encoding stays INTERNAL, as gRPC requires.
const UNREAD: [&str; 3] =
    ["failed%20to%20decode%20Protobuf", "Unexpected%20EOF%20decoding", "Missing%20request%20message"];

/// Converts INTERNAL to INVALID_ARGUMENT if the request could not be decoded.
pub fn undecodable_is_invalid<B>(mut response: Response<B>) -> Response<B> {
    let headers = response.headers();
    let internal =
        headers.get(STATUS).is_some_and(|status| status == (Code::Internal as i32).to_string().as_str());
    let unread =
        |message: &HeaderValue| UNREAD.iter().any(|unread| message.as_bytes().starts_with(unread.as_bytes()));
    if internal && headers.get(MESSAGE).is_some_and(unread) {
        response.headers_mut().insert(STATUS, (Code::InvalidArgument as i32).into());
    }
    response
}
