//! RESP2 replies.

use std::io::Write as _;

use throttlekit::Retry;
use throttlekit::rate::Timestamp;

use crate::access::AuthError;
use crate::engine::{Answered, Refusal};
use crate::wire_format::{retry_millis, signed};

/// Reason why a command got no decision.
pub(super) enum Failure {
    /// The command is malformed; with the cause.
    Invalid(String),
    /// The caller is not authenticated.
    Unknown(AuthError),
    /// The caller has too many requests in progress.
    Crowded,
    /// It was not decided in time.
    Late,
    /// There is no decision.
    Refused(Refusal),
}

impl Failure {
    /// Writes it as an error. Its first word is for programs: `UNAVAILABLE` may pass.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Invalid(why) => error(out, "ERR", why),
            Self::Unknown(AuthError::NoToken) => error(
                out,
                "NOAUTH",
                "missing token: send AUTH first, or connect with a client certificate that is listed",
            ),
            Self::Unknown(AuthError::ExpiredToken) => {
                error(out, "WRONGPASS", "this token has expired: replace it");
            }
            Self::Unknown(AuthError::WrongToken) => error(out, "WRONGPASS", "unknown token"),
            Self::Crowded => {
                error(out, "UNAVAILABLE", "too many requests of this caller in flight: retry later");
            }
            Self::Late => error(out, "UNAVAILABLE", "request timed out"),
            Self::Refused(refusal) => refused(out, refusal),
        }
    }
}

fn refused(out: &mut Vec<u8>, refusal: &Refusal) {
    let why = refusal.to_string();
    match refusal {
        Refusal::UnknownPolicy(_) => {
            error(
                out,
                "ERR",
                &format!("{why}: write the key as policy:key, with a policy of the policy file"),
            );
        }
        Refusal::Forbidden(_) => error(out, "NOPERM", &why),
        Refusal::Outage => error(out, "UNAVAILABLE", &why),
        Refusal::Store(cause) if cause.may_pass() => error(out, "UNAVAILABLE", &why),
        Refusal::Unsupported(_) | Refusal::Invalid(_) | Refusal::TooMany(_) | Refusal::Store(_) => {
            error(out, "ERR", &why);
        }
    }
}

/// Writes a decision as redis-cell does: denied, limit, remaining, seconds until a retry, seconds until the limit is
/// full. Seconds are rounded up. The retry is -1 if and only if the request is allowed; if retrying never helps it is a
/// day, as in the other APIs, so that clients that wait for it do not fail or spin.
pub(super) fn decision(out: &mut Vec<u8>, answer: &Answered, now: Timestamp) {
    let decided = &answer.decision;
    let retry = match decided.retry_after {
        _ if decided.allowed => -1,
        Retry::Now => 0,
        retry => retry_millis(retry).saturating_add(999) / 1_000,
    };
    let reset = decided.reset_at.since(now).as_nanos().div_ceil(1_000_000_000);
    array(out, 5);
    integer(out, i64::from(!decided.allowed));
    integer(out, signed(decided.limit));
    integer(out, signed(decided.remaining));
    integer(out, retry);
    integer(out, i64::try_from(reset).unwrap_or(i64::MAX));
}

/// Writes the beginning of an array.
pub(super) fn array(out: &mut Vec<u8>, length: usize) {
    put(out, format_args!("*{length}\r\n"));
}

pub(super) fn integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(super) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, format_args!("${}\r\n", bytes.len()));
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn simple(out: &mut Vec<u8>, text: &str) {
    put(out, format_args!("+{text}\r\n"));
}

/// Writes an error. A line end within it would be another reply.
pub(super) fn error(out: &mut Vec<u8>, code: &str, why: &str) {
    put(out, format_args!("-{code} "));
    out.extend(why.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector grows: writing to it does not fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throttlekit::{Decision, Guarantee};

    use super::*;

    fn written(allowed: bool, retry_after: Retry, reset_ms: u64) -> String {
        let now = Timestamp::from_millis(1_000_000);
        let reset_at = Timestamp::from_millis(1_000_000 + reset_ms);
        let decision = Decision { allowed, limit: 10, remaining: 3, reset_at, retry_after };
        let answer = Answered {
            decision,
            guarantee: Guarantee::Exact,
            binding_axis: None,
            limit_name: None,
            policy_denied: false,
            shadow_denied: false,
        };
        let mut out = Vec::new();
        super::decision(&mut out, &answer, now);
        String::from_utf8(out).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn seconds_are_rounded_up_and_only_what_is_allowed_has_no_retry() {
        let after = |ms| Retry::After(Duration::from_millis(ms));
        assert_eq!(written(true, Retry::Now, 0), "*5 :0 :10 :3 :-1 :0 ");
        assert_eq!(written(false, after(1), 1_001), "*5 :1 :10 :3 :1 :2 ");
        assert_eq!(written(false, after(1_000), 1_000), "*5 :1 :10 :3 :1 :1 ");
        assert_eq!(written(false, after(1_001), 1), "*5 :1 :10 :3 :2 :1 ");
        assert_eq!(written(false, Retry::Never, 0), "*5 :1 :10 :3 :86400 :0 ");
        assert_eq!(written(false, Retry::OnRelease, 0), "*5 :1 :10 :3 :1 :0 ");
    }

    #[test]
    fn an_error_is_one_line_whatever_it_repeats() {
        let mut out = Vec::new();
        error(&mut out, "ERR", "a\r\n+OK\r\nb");
        assert_eq!(out, b"-ERR a  +OK  b\r\n");
    }
}
