//! Responses as HTTP/1.1 sends them.

use std::time::{Duration, UNIX_EPOCH};

use http::Response;
use throttlekit::clock::{Clock, WallClock};

/// Writes responses. Formats the date once a second.
#[derive(Default)]
pub(super) struct Written {
    second: u64,
    date: String,
}

impl Written {
    /// Appends a response, after which the connection perhaps closes.
    pub(super) fn append(&mut self, response: &Response<String>, closes: bool, out: &mut Vec<u8>) {
        self.append_at(WallClock.now().as_nanos() / 1_000_000_000, response, closes, out);
    }

    fn append_at(&mut self, second: u64, response: &Response<String>, closes: bool, out: &mut Vec<u8>) {
        if second != self.second || self.date.is_empty() {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            (self.second, self.date) = (second, date);
        }
        let (status, body) = (response.status(), response.body());
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        for (name, value) in response.headers() {
            header(out, name.as_str(), value.as_bytes());
        }
        if closes {
            header(out, "connection", b"close");
        }
        header(out, "content-length", itoa::Buffer::new().format(body.len()).as_bytes());
        header(out, "date", self.date.as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(body.as_bytes());
    }
}

/// Ends the line before, and appends a header. A header value holds no line end.
fn header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn a_response_has_its_headers_its_length_and_the_date() {
        let mut response = Response::new("{}".to_owned());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert(RETRY_AFTER, 7.into());
        let (mut written, mut out) = (Written::default(), Vec::new());
        written.append_at(951_782_399, &response, false, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 2\r\n\
             date: Mon, 28 Feb 2000 23:59:59 GMT\r\n\r\n{}"
        );
        let mut out = Vec::new();
        written.append_at(951_782_400, &Response::default(), true, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\ndate: Tue, 29 Feb 2000 00:00:00 GMT\r\n\r\n"
        );
    }
}
