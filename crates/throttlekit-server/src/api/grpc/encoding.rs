//! Encoding of decisions as they are sent, without building their messages first.

use hyper::body::Bytes;
use prost::bytes::{BufMut, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint};
use throttlekit::Axis;
use throttlekit::admit::LimitName;
use throttlekit_proto::v1::CheckResponse;

use super::calls::{decision, retry_name};
use crate::api::unary::{HEAD_BYTES, framed};
use crate::engine::Answered;
use crate::wire_format::{millis_at, overshoot, retry_millis, signed};

/// Bytes of a response to a check before its decision: the head of the message, a tag, and the length.
const BEFORE: usize = HEAD_BYTES + 2;
/// Capacity for a response; few are longer.
const RESPONSE_BYTES: usize = 96;
/// Maximum length that takes one byte.
const SHORT_MAX: usize = 0x7f;

/// Encodes the response to a check, as gRPC frames it.
pub(super) fn check_response(answer: &Answered) -> Bytes {
    let mut bytes = BytesMut::with_capacity(RESPONSE_BYTES);
    bytes.put_bytes(0, BEFORE);
    put_decision(answer, &mut bytes);
    let length = bytes.len() - BEFORE;
    let Some(short) = u8::try_from(length).ok().filter(|_| length <= SHORT_MAX) else {
        return framed(&CheckResponse { decision: Some(decision(answer)) });
    };
    bytes[HEAD_BYTES - 1] = short + 2;
    encode_key(1, WireType::LengthDelimited, &mut &mut bytes[HEAD_BYTES..]);
    bytes[BEFORE - 1] = short;
    bytes.freeze()
}

/// Encodes a [`Decision`](throttlekit_proto::v1::Decision).
pub(super) fn put_decision(answer: &Answered, out: &mut impl BufMut) {
    let decided = &answer.decision;
    put_number(1, u64::from(decided.allowed), out);
    put_signed(2, signed(decided.limit), out);
    put_signed(3, signed(decided.remaining), out);
    put_signed(4, millis_at(decided.reset_at), out);
    put_signed(5, retry_millis(decided.retry_after), out);
    put_signed(100, i64::from(i32::from(retry_name(decided.retry_after))), out);
    put_text(101, answer.guarantee.label(), out);
    put_signed(102, overshoot(answer.guarantee), out);
    put_text(103, answer.binding_axis.map_or("", Axis::label), out);
    put_number(104, u64::from(answer.shadow_denied), out);
    put_text(105, answer.limit_name.map_or("", LimitName::as_str), out);
}

/// Encodes a number, unless it is the default.
pub(super) fn put_number(tag: u32, number: u64, out: &mut impl BufMut) {
    if number != 0 {
        encode_key(tag, WireType::Varint, out);
        encode_varint(number, out);
    }
}

fn put_signed(tag: u32, number: i64, out: &mut impl BufMut) {
    put_number(tag, number.cast_unsigned(), out);
}

fn put_text(tag: u32, text: &str, out: &mut impl BufMut) {
    if !text.is_empty() {
        put_bytes(tag, text.as_bytes(), out);
    }
}

pub(super) fn put_bytes(tag: u32, bytes: &[u8], out: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use throttlekit::rate::Timestamp;
    use throttlekit::{Decision, Guarantee, Retry};

    use super::*;

    /// Returns answers with short and long fields, and without them.
    pub(in crate::api::grpc) fn answers() -> Vec<Answered> {
        let retries =
            [Retry::Now, Retry::After(Duration::from_micros(1_500)), Retry::OnRelease, Retry::Never];
        let guarantees =
            [Guarantee::Exact, Guarantee::Bounded(u64::MAX), Guarantee::Bounded(7), Guarantee::Open];
        let of = |(retry_after, guarantee): (Retry, Guarantee)| {
            [None].into_iter().chain(Axis::ALL.map(Some)).flat_map(move |binding_axis| {
                [(true, 0), (false, 1), (true, 300), (false, u64::MAX)].map(|(flag, number)| Answered {
                    decision: Decision {
                        allowed: flag,
                        limit: number,
                        remaining: number / 3,
                        reset_at: Timestamp::from_nanos(number),
                        retry_after,
                    },
                    guarantee,
                    binding_axis,
                    limit_name: LimitName::new(if flag { "" } else { "team" }),
                    policy_denied: false,
                    shadow_denied: !flag,
                })
            })
        };
        retries.into_iter().zip(guarantees).flat_map(of).collect()
    }

    #[test]
    fn the_response_to_a_check_is_the_message_of_the_protocol() {
        for answer in answers() {
            let message = CheckResponse { decision: Some(decision(&answer)) };
            assert_eq!(check_response(&answer), framed(&message), "{answer:?}");
        }
    }
}
