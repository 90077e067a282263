//! The subset of HTTP/1.1 that the fast path reads.

use std::mem::MaybeUninit;
use std::ops::Range;

use http::StatusCode;

use super::super::body::names_json;

/// Bytes that each request of the subset begins with.
const BEGINNING: &[u8] = b"POST /v1/check";
/// Maximum number of headers.
const HEADERS_MAX: usize = 32;
/// Headers that change how a body is sent, how long a request may take, or who sends it.
const FOREIGN: [&str; 10] = [
    "content-encoding",
    "expect",
    "grpc-timeout",
    "http2-settings",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-fleet-secret",
    "x-monitor-secret",
];

/// The beginning of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A head that is incomplete, and of the subset so far.
    Part,
    /// A whole request of the subset.
    Plain(Plain),
    /// Anything else.
    Foreign,
}

/// A request, as ranges of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    /// The value of the header `authorization`.
    pub(super) authorization: Option<Range<usize>>,
    /// Its body, which ends the request.
    pub(super) body: Range<usize>,
    /// Status of a denial.
    pub(super) denied: StatusCode,
}

/// Parses a request with at most this number of headers and this size of the body.
///
/// A request whose body has not arrived is foreign: bodies that come slowly have limits of their own.
pub(super) fn parse(received: &[u8], headers_max: usize, body_max: usize) -> Parsed {
    let begun = received.len().min(BEGINNING.len());
    if received[..begun] != BEGINNING[..begun] {
        return Parsed::Foreign;
    }
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let head = match request.parse_with_uninit_headers(received, &mut headers[..headers_max.min(HEADERS_MAX)])
    {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Parsed::Part,
        Err(_) => return Parsed::Foreign,
    };
    match plain(&request, received, head).filter(|request| request.body.len() <= body_max) {
        Some(request) if request.body.end <= received.len() => Parsed::Plain(request),
        _ => Parsed::Foreign,
    }
}

/// Returns the request, if its head of this length belongs to the subset.
fn plain(request: &httparse::Request<'_, '_>, received: &[u8], head: usize) -> Option<Plain> {
    let denied = match request.path? {
        "/v1/check" | "/v1/check?status=200" => StatusCode::OK,
        "/v1/check?status=429" => StatusCode::TOO_MANY_REQUESTS,
        _ => return None,
    };
    let is_post_1_1 = request.method == Some("POST") && request.version == Some(1);
    let (mut length, mut kind, mut authorization) = (None, None, None);
    for header in &*request.headers {
        let is = |name: &&str| header.name.eq_ignore_ascii_case(name);
        if is(&"content-length") {
            once(&mut length, number(header.value)?)?;
        } else if is(&"content-type") {
            once(&mut kind, names_json(header.value))?;
        } else if is(&"authorization") {
            once(&mut authorization, range(received, header.value)?)?;
        } else if is(&"connection") && !header.value.eq_ignore_ascii_case(b"keep-alive")
            || FOREIGN.iter().any(is)
        {
            return None;
        }
    }
    let is_plain = is_post_1_1 && kind?;
    is_plain.then_some(Plain { authorization, body: head..head.checked_add(length?)?, denied })
}

/// Sets a value that may be there once only.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// Parses a number of at most seven digits.
fn number(text: &[u8]) -> Option<usize> {
    if !(1..=7).contains(&text.len()) || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

/// Returns the range of a part of the received bytes.
fn range(received: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let begin = (part.as_ptr() as usize).checked_sub(received.as_ptr() as usize)?;
    Some(begin..begin + part.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"policy":"a","key":"k"}"#;

    fn parsed(head: &str) -> Parsed {
        parse(format!("{head}{BODY}").as_bytes(), 100, 1 << 10)
    }

    fn with(path: &str, headers: &str) -> Parsed {
        parsed(&format!("POST {path} HTTP/1.1\r\n{headers}\r\n"))
    }

    const PLAIN: &str = "content-type: application/json\r\ncontent-length: 24\r\n";

    #[test]
    fn a_plain_check_is_read() {
        let Parsed::Plain(plain) =
            with("/v1/check", &format!("Host: a\r\nAuthorization: Bearer b\r\n{PLAIN}"))
        else {
            panic!()
        };
        assert_eq!((plain.body.len(), plain.denied), (BODY.len(), StatusCode::OK));
        assert_eq!(plain.authorization.map(|token| token.len()), Some("Bearer b".len()));
        for (path, denied) in [("/v1/check?status=429", 429), ("/v1/check?status=200", 200)] {
            let Parsed::Plain(plain) = with(path, PLAIN) else { panic!("{path}") };
            assert_eq!(plain.denied, denied);
        }
        for headers in [
            "Content-Type: Application/JSON; charset=utf-8\r\nContent-Length: 24\r\n",
            "connection: Keep-Alive\r\ncontent-type: application/json\r\ncontent-length: 024\r\n",
        ] {
            assert!(matches!(with("/v1/check", headers), Parsed::Plain(_)), "{headers}");
        }
    }

    #[test]
    fn every_beginning_of_a_head_is_a_part_and_a_body_that_is_missing_is_foreign() {
        let head = format!("POST /v1/check HTTP/1.1\r\n{PLAIN}\r\n");
        for length in 0..head.len() {
            assert_eq!(parse(&head.as_bytes()[..length], 100, 1 << 10), Parsed::Part, "{length}");
        }
        assert_eq!(parse(head.as_bytes(), 100, 1 << 10), Parsed::Foreign);
    }

    #[test]
    fn what_changes_how_a_request_is_read_is_foreign() {
        let also = |header: &str| with("/v1/check", &format!("{header}\r\n{PLAIN}"));
        for header in [
            "transfer-encoding: chunked",
            "Transfer-Encoding: identity",
            "content-encoding: gzip",
            "expect: 100-continue",
            "connection: close",
            "connection: upgrade",
            "connection: keep-alive, te",
            "upgrade: h2c",
            "http2-settings: AAMAAABk",
            "te: trailers",
            "trailer: a",
            "grpc-timeout: 1m",
            "x-monitor-secret: a",
            "x-fleet-secret: a",
            "content-length: 24",
            "content-length: 23",
            "content-type: application/json",
            "authorization: a\r\nauthorization: b",
            "folded: a\r\n b",
            "no colon",
            "name : a",
            ": a",
            "nul: \0",
        ] {
            assert_eq!(also(header), Parsed::Foreign, "{header}");
        }
        for headers in [
            "content-type: application/json\r\n",
            "content-length: 24\r\n",
            "content-type: text/plain\r\ncontent-length: 24\r\n",
            "content-type: application/json\r\ncontent-length: +24\r\n",
            "content-type: application/json\r\ncontent-length: 24, 24\r\n",
            "content-type: application/json\r\ncontent-length: 0x18\r\n",
            "content-type: application/json\r\ncontent-length: -1\r\n",
            "content-type: application/json\r\ncontent-length:\r\n",
            "content-type: application/json\r\ncontent-length: 99999999999999999999\r\n",
        ] {
            assert_eq!(with("/v1/check", headers), Parsed::Foreign, "{headers}");
        }
        for path in ["/v1/check/", "/v1/check_many", "/v1/check?status=500", "/v1/check?", "/v1/check#a"] {
            assert_eq!(with(path, PLAIN), Parsed::Foreign, "{path}");
        }
        for line in [
            "GET /v1/check HTTP/1.1",
            "post /v1/check HTTP/1.1",
            "POST /v1/check HTTP/1.0",
            "POST /v1/check HTTP/2.0",
            "POST /v1/check",
            "POST  /v1/check HTTP/1.1",
            "POST http://a/v1/check HTTP/1.1",
            "PRI * HTTP/2.0",
        ] {
            assert_eq!(parsed(&format!("{line}\r\n{PLAIN}\r\n")), Parsed::Foreign, "{line}");
        }
    }

    #[test]
    fn limits_on_headers_and_body_are_those_of_the_listener() {
        let request = format!("POST /v1/check HTTP/1.1\r\n{PLAIN}\r\n{BODY}");
        let parse = |headers_max, body_max| parse(request.as_bytes(), headers_max, body_max);
        assert!(matches!(parse(2, 24), Parsed::Plain(_)));
        assert_eq!(parse(1, 24), Parsed::Foreign);
        assert_eq!(parse(2, 23), Parsed::Foreign);
        let many = "a: b\r\n".repeat(HEADERS_MAX - 1);
        assert_eq!(with("/v1/check", &format!("{many}{PLAIN}")), Parsed::Foreign);
    }

    #[test]
    fn a_request_ends_where_the_next_one_begins() {
        let one = format!("POST /v1/check HTTP/1.1\r\n{PLAIN}\r\n{BODY}");
        let two = format!("{one}{one}");
        let Parsed::Plain(plain) = parse(two.as_bytes(), 100, 1 << 10) else { panic!() };
        assert_eq!(plain.body.end, one.len());
    }
}
