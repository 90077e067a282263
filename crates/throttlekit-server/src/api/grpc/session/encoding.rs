//! Encoding of the responses of a session.

use hyper::body::Bytes;
use prost::Message;
use prost::bytes::{BufMut, BytesMut};
use throttlekit_proto::CAUSE;
use throttlekit_proto::v1::session_result::Result as Wire;
use throttlekit_proto::v1::{SessionResponse, SessionResult, SessionStatus};
use tonic::Status;

use super::calls::{Outcome, PendingCall};
use super::messages::HEAD_BYTES;
use crate::api::grpc::calls::decision;

/// Encodes the results of calls.
pub(super) fn results(calls: &[PendingCall], outcomes: &[Outcome], goaway: bool) -> Bytes {
    let result = |(call, outcome): (&PendingCall, &Outcome)| {
        let result = match outcome {
            Ok(answer) => Wire::Decision(decision(answer)),
            Err(status) => Wire::Status(wire_status(status)),
        };
        SessionResult { id: call.id, result: Some(result) }
    };
    let results = calls.iter().zip(outcomes).map(result).collect();
    framed(&SessionResponse { results, window: 0, goaway })
}

/// Encodes a message as gRPC frames it.
pub(super) fn framed(message: &SessionResponse) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

fn wire_status(status: &Status) -> SessionStatus {
    let cause = status.metadata().get(CAUSE).and_then(|cause| cause.to_str().ok());
    SessionStatus {
        code: status.code() as i32,
        message: status.message().to_owned(),
        cause: cause.unwrap_or_default().to_owned(),
    }
}
