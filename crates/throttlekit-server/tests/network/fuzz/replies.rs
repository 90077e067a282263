//! Parses what a server sent on one connection, far enough to classify each input.

use super::session::Outcome;
use crate::http2::{END_STREAM, HEADERS, Head, RST_STREAM};

/// The stream of the last, honest request: the highest there is, as streams must rise.
pub(super) const LAST_STREAM: u32 = 0x7FFF_FFFF;
/// The last, honest request over HTTP/1. Its response has its version, and the server closes the connection after it.
pub(super) const LAST_REQUEST: &[u8] = b"GET /healthz HTTP/1.0\r\n\r\n";

/// The responses received so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replies {
    pub(super) each: Vec<Option<Outcome>>,
    /// True if the last, honest request was answered.
    pub(super) last: bool,
}

impl Replies {
    /// The outcome of each input; `end` where the connection ended without a response.
    pub(super) fn outcomes(&self, end: Outcome) -> Vec<Outcome> {
        let without = if self.last { Outcome::Ignored } else { end };
        self.each.iter().map(|one| one.unwrap_or(without)).collect()
    }
}

/// Parses HTTP/2 frames. Inputs are on the streams 1, 3, 5, …
pub(super) fn http2(mut bytes: &[u8], inputs: usize) -> Replies {
    let mut replies = Replies { each: vec![None; inputs], last: false };
    while let Some((head, rest)) = bytes.split_first_chunk() {
        let head = Head::read(*head);
        let Some(next) = rest.get(head.length..) else { break };
        bytes = next;
        let ends = head.flags & END_STREAM != 0;
        let outcome = match head.kind {
            // An error of gRPC is a response that ends with its headers.
            HEADERS if ends => Outcome::Refused,
            HEADERS => Outcome::Answered,
            RST_STREAM => Outcome::Refused,
            _ => continue,
        };
        if head.stream == LAST_STREAM {
            replies.last |= ends || head.kind == RST_STREAM;
        } else if let Some(one) = replies.each.get_mut(head.stream as usize / 2) {
            one.get_or_insert(outcome);
        }
    }
    replies
}

/// Parses HTTP/1 responses, which come in the order of the requests.
pub(super) fn http1(mut bytes: &[u8], inputs: usize) -> Replies {
    let mut replies = Replies { each: vec![None; inputs], last: false };
    let mut each = replies.each.iter_mut();
    while let Some((head, rest)) = split(bytes, b"\r\n\r\n") {
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let status = head.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0_u16);
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        // The response to HEAD has a length and no body.
        let length = if rest.starts_with(b"HTTP/1.") { 0 } else { length.unwrap_or(0) };
        bytes = rest.get(length..).unwrap_or_default();
        match status {
            100..=199 => {}
            200 if head.starts_with("http/1.0") => replies.last = true,
            _ => {
                let outcome = if status < 400 { Outcome::Answered } else { Outcome::Refused };
                each.next().into_iter().for_each(|one| *one = Some(outcome));
            }
        }
    }
    replies
}

fn split<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = bytes.windows(at.len()).position(|window| window == at)?;
    Some((&bytes[..found], &bytes[found + at.len()..]))
}

#[test]
fn responses_are_classified() {
    use crate::http2::{DATA, END_HEADERS, frame};
    use Outcome::{Answered, Closed, Ignored, Refused};
    let bytes = [
        frame(HEADERS, END_HEADERS, 1, b""),
        frame(DATA, 0, 1, b"message"),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b""),
        frame(HEADERS, END_HEADERS | END_STREAM, 3, b""),
        frame(RST_STREAM, 0, 5, &[0; 4]),
    ]
    .concat();
    assert_eq!(http2(&bytes, 4).outcomes(Closed), [Answered, Refused, Refused, Closed]);
    let bytes = [bytes, frame(HEADERS, END_STREAM, LAST_STREAM, b"")].concat();
    assert_eq!(http2(&bytes, 4).outcomes(Closed), [Answered, Refused, Refused, Ignored]);
    let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}\
        HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(http1(bytes, 3).outcomes(Closed), [Answered, Refused, Closed]);
    let bytes = [bytes, &b"HTTP/1.0 200 OK\r\n\r\n"[..]].concat();
    assert_eq!(http1(&bytes, 3).outcomes(Closed), [Answered, Refused, Ignored]);
}
