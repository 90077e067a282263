//! Encoding of the responses of a session.

use hyper::body::Bytes;
use prost::bytes::{BufMut, BytesMut};
use prost::encoding::message;
use throttlekit_proto::CAUSE;
use throttlekit_proto::v1::SessionStatus;
use tonic::Status;

use super::calls::{Outcome, PendingCall};
use crate::api::grpc::encoding::{put_bytes, put_decision, put_number};
use crate::api::unary::HEAD_BYTES;

/// About the size of a result.
const RESULT_BYTES: usize = 64;

/// Encodes the results of calls: a [`SessionResponse`](throttlekit_proto::v1::SessionResponse), written without building it.
pub(super) fn results(calls: &[PendingCall], outcomes: &[Outcome], goaway: bool) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + calls.len() * RESULT_BYTES);
    bytes.put_bytes(0, HEAD_BYTES);
    let (mut result, mut decided) =
        (Vec::with_capacity(2 * RESULT_BYTES), Vec::with_capacity(2 * RESULT_BYTES));
    for (call, outcome) in calls.iter().zip(outcomes) {
        result.clear();
        put_number(1, call.id, &mut result);
        match outcome {
            Ok(answer) => {
                decided.clear();
                put_decision(answer, &mut decided);
                put_bytes(2, &decided, &mut result);
            }
            Err(status) => message::encode(3, &wire_status(status), &mut result),
        }
        put_bytes(1, &result, &mut bytes);
    }
    put_number(3, u64::from(goaway), &mut bytes);
    let length = u32::try_from(bytes.len() - HEAD_BYTES).unwrap_or(u32::MAX);
    bytes[1..HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
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

#[cfg(test)]
mod tests {
    use throttlekit_proto::v1::session_result::Result as Wire;
    use throttlekit_proto::v1::{SessionResponse, SessionResult};
    use tokio::time::Instant;

    use super::*;
    use crate::api::grpc::calls::decision;
    use crate::api::grpc::encoding::tests::answers;
    use crate::api::unary::framed;

    #[test]
    fn results_are_the_message_of_the_protocol() {
        let answers = answers();
        let deadline = Instant::now();
        let ids = (0..=answers.len() as u64).map(|id| if id == 1 { u64::MAX } else { id });
        let calls: Vec<_> = ids.map(|id| PendingCall { id, deadline, call: None }).collect();
        let mut outcomes: Vec<Outcome> = answers.iter().map(|answer| Ok(*answer)).collect();
        outcomes.push(Err(Status::not_found("no policy `a` is loaded")));
        let results = outcomes.iter().map(|outcome| match outcome {
            Ok(answer) => Wire::Decision(decision(answer)),
            Err(status) => Wire::Status(wire_status(status)),
        });
        let results = calls.iter().zip(results);
        let results: Vec<_> =
            results.map(|(call, result)| SessionResult { id: call.id, result: Some(result) }).collect();
        for goaway in [false, true] {
            let message = SessionResponse { results: results.clone(), window: 0, goaway };
            assert_eq!(super::results(&calls, &outcomes, goaway), framed(&message));
        }
    }
}
