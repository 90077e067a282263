use http::HeaderValue;

use super::*;

/// 2023-11-14T22:13:20Z.
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const DATE: (&str, &str) = ("date", "Tue, 14 Nov 2023 22:13:20 GMT");

fn read(status: u16, pairs: &[(&str, &str)], body: &str, now: Timestamp) -> Reported {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = http::HeaderName::try_from(*name).expect("a name");
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    let status = StatusCode::from_u16(status).expect("a status");
    Reported::of(status, &headers, body.as_bytes(), now)
}

fn quota(limit: u64, remaining: u64, reset_ms: u64, period_secs: Option<u64>) -> Option<Quota> {
    Some(Quota {
        limit: Some(limit),
        remaining: Some(remaining),
        reset: Some(Duration::from_millis(reset_ms)),
        period: period_secs.map(Duration::from_secs),
    })
}

#[test]
fn openai_reports_requests_and_tokens() {
    let reported = read(
        200,
        &[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "75000"),
            ("x-ratelimit-reset-tokens", "30s"),
        ],
        "",
        NOW,
    );
    assert_eq!(reported.requests, quota(60, 59, 1_000, Some(60)));
    assert_eq!(reported.tokens, quota(150_000, 75_000, 30_000, Some(60)));
    assert!(reported.is_informative() && !reported.is_refusal());
}

#[test]
fn a_daily_limit_is_recognized_by_the_time_in_which_it_fills() {
    let names =
        ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
    let day = read(200, &[(names[0], "14400"), (names[1], "14370"), (names[2], "2m59.56s")], "", NOW);
    assert_eq!(day.requests, quota(14_400, 14_370, 179_560, Some(86_400)));
    // A window that ends in seven seconds, of which half is left.
    let window = read(200, &[(names[0], "100"), (names[1], "50"), (names[2], "7s")], "", NOW);
    assert_eq!(window.requests.and_then(|requests| requests.refill()), None);
}

#[test]
fn anthropic_reports_instants_which_are_compared_with_the_date_of_the_response() {
    let pairs = [
        DATE,
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2023-11-14T22:14:20Z"),
        ("anthropic-ratelimit-input-tokens-limit", "40000"),
        ("anthropic-ratelimit-input-tokens-remaining", "39000"),
        ("anthropic-ratelimit-input-tokens-reset", "2023-11-14T22:13:22Z"),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "100"),
        ("anthropic-ratelimit-output-tokens-reset", "2023-11-14T22:14:19Z"),
    ];
    for now in [NOW, Timestamp::EPOCH, NOW + Duration::from_secs(86_400 * 365)] {
        let reported = read(200, &pairs, "", now);
        assert_eq!(reported.requests, quota(50, 0, 60_000, Some(60)));
        assert_eq!(reported.input_tokens, quota(40_000, 39_000, 2_000, Some(60)));
        assert_eq!(reported.all_tokens(), quota(8_000, 100, 59_000, Some(60)), "the part that leaves less");
    }
    let without_date = read(200, &pairs[1..], "", NOW + Duration::from_secs(30));
    assert_eq!(without_date.requests.and_then(|requests| requests.reset), Some(Duration::from_secs(30)));
}

#[test]
fn azure_reports_what_remains_and_milliseconds() {
    let pairs = [("x-ratelimit-remaining-requests", "9"), ("retry-after-ms", "1250"), ("retry-after", "2")];
    let reported = read(429, &pairs, "", NOW);
    let requests = reported.requests.expect("requests");
    assert_eq!((requests.limit, requests.remaining, requests.reset), (None, Some(9), None));
    assert_eq!(reported.retry_after, Some(Duration::from_millis(1_250)));
}

#[test]
fn the_ietf_fields_are_read_in_all_drafts() {
    let list = [
        ("ratelimit-policy", r#""burst";q=100;w=60,"daily";q=1000;w=86400"#),
        ("ratelimit", r#""burst";r=50;t=30"#),
    ];
    assert_eq!(read(200, &list, "", NOW).requests, quota(100, 50, 30_000, Some(60)));
    let two = [
        ("ratelimit-policy", r#""api-rate";q=60;w=60"#),
        ("ratelimit-policy", r#""api-cost";q=900;w=60"#),
        ("ratelimit", r#""api-rate";r=5;t=55"#),
        ("ratelimit", r#""api-cost";r=7;t=3"#),
    ];
    let reported = read(200, &two, "", NOW);
    assert_eq!(
        (reported.requests, reported.tokens),
        (quota(60, 5, 55_000, Some(60)), quota(900, 7, 3_000, Some(60)))
    );
    let dictionary = [("ratelimit", "limit=100, remaining=50, reset=5"), ("ratelimit-policy", "100;w=60")];
    assert_eq!(read(200, &dictionary, "", NOW).requests, quota(100, 50, 5_000, Some(60)));
    let three =
        [("ratelimit-limit", "100, 100;w=60"), ("ratelimit-remaining", "50"), ("ratelimit-reset", "5")];
    assert_eq!(read(200, &three, "", NOW).requests, quota(100, 50, 5_000, None));
    for hostile in [r#""a";r=-1"#, r#""a";r=99999999999999999999"#, "(((", "\"a", "a;r=1.5", ""] {
        let remaining =
            read(200, &[("ratelimit", hostile)], "", NOW).requests.and_then(|quota| quota.remaining);
        assert_eq!(remaining, None, "{hostile}");
    }
}

#[test]
fn github_reports_seconds_since_the_epoch() {
    let pairs = [
        DATE,
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1700000030"),
    ];
    let reported = read(403, &pairs, "", Timestamp::EPOCH);
    assert_eq!(reported.requests, quota(5_000, 0, 30_000, None));
    assert!(reported.is_refusal(), "an exhausted limit");
    assert!(!read(403, &pairs[..2], "", NOW).is_refusal());
}

#[test]
fn delays_are_of_errors_only() {
    let date = [DATE, ("retry-after", "Tue, 14 Nov 2023 22:13:27 GMT")];
    assert_eq!(read(503, &date, "", Timestamp::EPOCH).retry_after, Some(Duration::from_secs(7)));
    assert_eq!(read(301, &date, "", NOW).retry_after, None);
    let body = r#"{"error":{"message":"Please try again in 1.2s."}}"#;
    for status in [429, 503, 529] {
        assert_eq!(read(status, &[], body, NOW).retry_after, Some(Duration::from_millis(1_200)));
        assert!(read(status, &[], body, NOW).is_refusal());
    }
    for status in [200, 400, 500] {
        assert_eq!(read(status, &[], body, NOW).retry_after, None);
    }
}

#[test]
fn values_that_cannot_be_true_are_ignored() {
    for value in ["-1", "NaN", "inf", "1e9", "99999999999999999999999", "\u{ff}", "", "a;b"] {
        let pairs = [
            ("x-ratelimit-limit-requests", value),
            ("x-ratelimit-remaining-requests", value),
            ("x-ratelimit-reset-requests", value),
            ("retry-after", value),
            ("retry-after-ms", value),
            ("date", value),
        ];
        let reported = read(429, &pairs, value, NOW);
        assert_eq!((reported.requests, reported.retry_after), (None, None), "{value}");
    }
}
