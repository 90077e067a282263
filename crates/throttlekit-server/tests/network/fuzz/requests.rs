//! HTTP/1.1 inputs: requests with a mutated path or body, and requests that are mutated as a whole.

use throttlekit_fuzz::mutate::{Random, change, input};
use throttlekit_fuzz::seeds::Seeds;

/// Each route with a good request; `@` stands for the name of a policy.
const ROUTES: &[(&str, &str, &str)] = &[
    ("POST", "/v1/check", r#"{"policy":"@","key":"k","cost":2,"keys":["z"]}"#),
    ("POST", "/v1/check?status=429", r#"{"policy":"@","key":"k"}"#),
    (
        "POST",
        "/v1/check_many",
        r#"{"policy":"@","keys":["k","root","vip"],"cost":1,"others":[["z"],[],["z"]]}"#,
    ),
    ("POST", "/v1/peek", r#"{"policy":"@","key":"k"}"#),
    ("POST", "/v1/admin/reset", r#"{"policy":"@","key":"k","keys":["z"]}"#),
    ("POST", "/v1/admin/grant", r#"{"policy":"@","key":"k","keys":["z"],"units":2,"id":"i"}"#),
    (
        "POST",
        "/v1/admin/set_override",
        r#"{"policy":"@","key":"k*","limits":{"rates":[{"limit":9}]},"for_ms":9}"#,
    ),
    ("POST", "/v1/admin/list_overrides", r#"{"policy":"@","prefix":"k","page_size":2}"#),
    ("POST", "/v1/admin/remove_override", r#"{"policy":"@","key":"k*"}"#),
    ("POST", "/v1/admin/set_plan", r#"{"policy":"@","name":"gold","limits":{"budgets":[{"budget":7}]}}"#),
    ("POST", "/v1/admin/list_plans", r#"{"policy":"@"}"#),
    ("POST", "/v1/admin/remove_plan", r#"{"policy":"@","name":"gold"}"#),
    ("POST", "/v1/admin/list_leases", r#"{"filter":{"policy":"@","key":"k"},"page_size":2}"#),
    ("POST", "/v1/admin/release_leases", r#"{"filter":{"policy":"@"}}"#),
    ("POST", "/v1/admin/reload", "{}"),
    ("POST", "/v1/admin/set_log_filter", r#"{"filter":"info"}"#),
    ("POST", "/v1/admin/get_config", "{}"),
    ("POST", "/v1/admin/drain", "{}"),
    ("POST", "/v1/forecast", r#"{"policy":"@","key":"k","cost":3}"#),
    (
        "POST",
        "/v1/debit",
        r#"{"policy":"@","key":"k","tokens":40,"stream":"00112233445566778899aabbccddeeff","number":1}"#,
    ),
    (
        "POST",
        "/v1/admit",
        r#"{"policy":"@","key":"k","cost":5,"hold":20,"value":9,"wait_ms":1,"priority":1}"#,
    ),
    (
        "POST",
        "/v1/release",
        r#"{"lease_id":"00112233445566778899aabbccddeeff","dropped":true,"actual_cost":7,"latency_ms":11}"#,
    ),
    ("POST", "/v1/heartbeat", r#"{"lease_ids":["00112233445566778899aabbccddeeff","b"]}"#),
    (
        "POST",
        "/v1/reserve",
        r#"{"policy":"@","key":"k","wants":10,"least":2,"returned":{"return_id":"a","units":3}}"#,
    ),
    ("GET", "/v1/forward-auth/@?key=k&cost=2&deny=403", ""),
    ("PUT", "/v1/forward-auth/@?key_header=x-key", "body"),
    ("GET", "/healthz", ""),
    ("GET", "/readyz", ""),
    ("GET", "/openapi.json", ""),
];
/// Checks that are allowed and checks that are denied, of the key [`KEY`].
const CHECKS: &[(&str, &str, &str)] = &[
    ("POST", "/v1/check", r#"{"policy":"@","key":"k0000000","cost":2,"keys":["z"]}"#),
    ("POST", "/v1/check?status=429", r#"{"policy":"@","key":"k0000000"}"#),
    ("POST", "/v1/check?status=429", r#"{"policy":"@","key":"k0000000","cost":3000000000}"#),
];
/// The key of checks, to be replaced by one of the same length.
pub(super) const KEY: &[u8] = b"k0000000";
/// The routes of the metrics listener.
const METRICS_ROUTES: &[(&str, &str, &str)] =
    &[("GET", "/metrics", ""), ("GET", "/healthz", ""), ("GET", "/readyz", ""), ("POST", "/readyz", "")];

const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b": ",
    b"%",
    b"%00",
    b"../",
    b"?",
    b"content-length: 5\r\n",
    b"content-length: 18446744073709551616\r\n",
    b"content-length: -1\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip, chunked\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"expect: 100-continue\r\n",
    b"upgrade: h2c\r\nconnection: upgrade\r\n",
    b"connection: close\r\n",
    b"content-type: application/grpc\r\n",
    b"grpc-timeout: 1n\r\n",
    b"authorization: Bearer k\r\n",
    b"x-forwarded-for: 192.0.2.1, ::1\r\n",
    b"HEAD ",
    b"OPTIONS * ",
    b"CONNECT ",
    b"{",
    b"[",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"1e400",
    b"-1",
    b"18446744073709551616",
    b"null",
    b"\"policy\":\"k\"",
    b"\"cost\":0",
    b"\"units\":1.5",
];

/// Pieces of a path or a query.
const PATH_WORDS: &[&str] =
    &["%", "%00", "%2f", "%F0%9F", "//", "/..", "?", "&", "&cost=0", "&key=", "&deny=1", "status=200", "~"];

/// Headers that a good request may have.
const EXTRA: &[&str] = &[
    "",
    "",
    "",
    "accept: */*\r\n",
    "expect: 100-continue\r\n",
    "authorization: Bearer k\r\n",
    "x-key: k\r\n",
    "x-forwarded-for: 192.0.2.1, 192.0.2.2\r\n",
    "grpc-timeout: 1m\r\n",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
];

/// Makes requests for one listener.
pub(super) struct Requests {
    routes: &'static [(&'static str, &'static str, &'static str)],
    whole: Seeds,
}

impl Requests {
    pub(super) fn api() -> Self {
        Self::of(ROUTES)
    }

    /// Checks of one key only.
    pub(super) fn checks() -> Self {
        Self::of(CHECKS)
    }

    pub(super) fn metrics() -> Self {
        Self::of(METRICS_ROUTES)
    }

    fn of(routes: &'static [(&'static str, &'static str, &'static str)]) -> Self {
        let inputs = routes.iter().flat_map(|(method, path, body)| {
            [false, true]
                .map(|chunked| request(method, &path.replace('@', "a"), "", body.as_bytes(), chunked))
        });
        Self { routes, whole: Seeds { inputs: inputs.collect(), words: WORDS.to_vec() } }
    }

    /// A request with a mutated path or body and valid framing: the server finds the next request after it.
    pub(super) fn framed(&self, random: &mut Random) -> Vec<u8> {
        let Some((method, path, body)) = random.one(self.routes) else { return Vec::new() };
        let policy = char::from(b'a' + random.below(24) as u8).to_string();
        let mut body = body.replace('@', &policy).into_bytes();
        // Where no body is due, the server closes the connection after one.
        let changes = if body.is_empty() { 0 } else { random.below(3) };
        for _ in 0..changes {
            change(random, &self.whole, &mut body);
        }
        let mut path = path.replace('@', &policy);
        if random.once_in(8) {
            path.insert_str(
                1 + random.place(path.len()),
                random.one(PATH_WORDS).copied().unwrap_or_default(),
            );
        }
        let extra = random.one(EXTRA).copied().unwrap_or_default();
        request(method, &path, extra, &body, random.once_in(4))
    }

    /// A request that is mutated as a whole.
    pub(super) fn mutated(&self, random: &mut Random) -> Vec<u8> {
        input(random, &self.whole)
    }
}

fn request(method: &str, path: &str, extra: &str, body: &[u8], chunked: bool) -> Vec<u8> {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{extra}");
    if chunked {
        let (first, second) = body.split_at(body.len() / 2);
        let chunks = [first, second].into_iter().filter(|chunk| !chunk.is_empty());
        let chunks =
            chunks.map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        let body = [chunks.collect::<Vec<_>>().concat(), b"0\r\n\r\n".to_vec()].concat();
        return [head.as_bytes(), b"transfer-encoding: chunked\r\n\r\n", &body].concat();
    }
    [head.as_bytes(), format!("content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

#[test]
fn every_route_is_among_the_seeds() {
    let document = throttlekit_server::internals::api::http::document();
    let paths = document["paths"].as_object().expect("paths").keys();
    for path in paths.map(|path| path.replace("{policy}", "@")) {
        let is_known = ROUTES.iter().any(|(_, known, _)| known.split('?').next() == Some(path.as_str()));
        assert!(is_known, "{path} has no seed");
    }
}
