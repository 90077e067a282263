//! The idempotency key of a debit, as clients send it.

use throttlekit::store::DebitId;

use super::lease_id;
use crate::engine::Refusal;

/// The stream of a debit on the wire: 128 random bits, or empty.
#[derive(Clone, Copy)]
pub(super) enum Stream<'a> {
    /// As 16 bytes.
    Bytes(&'a [u8]),
    /// As 32 hexadecimal digits, like leases.
    Digits(&'a str),
}

/// Returns the idempotency key of a debit, if it has one.
pub(super) fn name(stream: Stream<'_>, number: u64) -> Result<Option<DebitId>, Refusal> {
    let (unnamed, read, form) = match stream {
        Stream::Bytes(bytes) => {
            (bytes.is_empty(), bytes.try_into().ok().map(u128::from_be_bytes), "16 bytes")
        }
        Stream::Digits(text) => {
            (text.is_empty(), lease_id::read(text).map(|name| name.0), "32 hexadecimal digits")
        }
    };
    if unnamed {
        return Ok(None);
    }
    let stream =
        read.ok_or_else(|| Refusal::Invalid(format!("invalid stream: expected {form}, chosen at random")))?;
    if number == 0 {
        return Err(Refusal::Invalid(
            "invalid debit number: number the debits of a stream from 1 upwards".into(),
        ));
    }
    Ok(Some(DebitId { stream, number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_stream_has_one_name_on_both_wires() {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let by_bytes = name(Stream::Bytes(&bytes), 7);
        assert_eq!(by_bytes, name(Stream::Digits("000102030405060708090a0b0c0d0e0f"), 7));
        assert_eq!(by_bytes, Ok(Some(DebitId { stream: u128::from_be_bytes(bytes), number: 7 })));
    }

    #[test]
    fn no_stream_is_no_name_and_half_a_name_is_none() {
        for unnamed in [Stream::Bytes(&[]), Stream::Digits("")] {
            assert_eq!(name(unnamed, 0), Ok(None));
            assert_eq!(name(unnamed, 9), Ok(None));
        }
        for wrong in [Stream::Bytes(&[1; 15]), Stream::Digits("12")] {
            assert!(matches!(name(wrong, 1), Err(Refusal::Invalid(_))));
        }
        assert!(matches!(name(Stream::Bytes(&[1; 16]), 0), Err(Refusal::Invalid(_))));
    }
}
