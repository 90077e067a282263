//! A response of a provider, with any headers and any body.

use std::time::Duration;

use throttlekit::Axis;
use throttlekit::admit::LimitInfo;
use throttlekit::outbound::{LearnSettings, Learned, Quota, Reported, Usage, UsageReader};
use throttlekit::rate::Timestamp;

/// Longest delay that is believed.
const DELAY_MAX: Duration = Duration::from_secs(32 * 86_400);
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Reads bytes as a response: a status, headers, an empty line, a body. Reads its limits, learns from them, and reads its
/// usage: what is learned delays the next call by at most a pause, and pieces of a body give the same usage as the whole.
pub fn responses(data: &[u8]) -> bool {
    let (head, body) = split(data);
    let (status, headers) = head_of(head);
    let reported = Reported::of(status, &headers, body, NOW);
    judge(&reported);
    learn(&reported);
    let usage = read_usage(body, body.len() / 2);
    assert_eq!(usage, read_usage(body, 0), "the usage depends on where pieces end");
    reported.is_informative() || usage.is_some()
}

/// Splits at the first empty line.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    match data.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&data[..at], &data[at + 2..]),
        None => (data, b""),
    }
}

fn head_of(head: &[u8]) -> (http::StatusCode, http::HeaderMap) {
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = http::StatusCode::from_bytes(lines.next().unwrap_or_default());
    let headers = lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = http::HeaderName::from_bytes(&line[..colon]).ok()?;
        Some((name, http::HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
    });
    let mut all = http::HeaderMap::new();
    headers.for_each(|(name, value)| _ = all.append(name, value));
    (status.unwrap_or(http::StatusCode::TOO_MANY_REQUESTS), all)
}

fn judge(reported: &Reported) {
    let Reported { requests, tokens, input_tokens, output_tokens, retry_after, .. } = *reported;
    let resets = [requests, tokens, input_tokens, output_tokens]
        .map(|quota| quota.and_then(|quota: Quota| quota.reset));
    for delay in resets.into_iter().chain([retry_after]).flatten() {
        assert!(delay <= DELAY_MAX, "a delay of {delay:?} is believed");
    }
}

fn learn(reported: &Reported) {
    let minute = Duration::from_secs(60);
    let limits =
        [LimitInfo::new(Axis::Rate, 60, Some(minute)), LimitInfo::new(Axis::Cost, 9_000, Some(minute))];
    let mut learned = Learned::new(&limits, LearnSettings::default());
    let sent = learned.start(100, NOW).expect("nothing is learned yet");
    learned.report(reported, sent, NOW);
    assert!(learned.requests_per_minute(NOW) <= Some(60) && learned.tokens_per_minute(NOW) <= Some(9_000));
    let Err(wait) = learned.start(100, NOW) else { return };
    assert!(wait <= LearnSettings::default().max_pause, "a wait of {wait:?}");
    let later = learned.headroom(100, NOW + wait);
    assert!(later.wait.is_zero(), "waited {wait:?}, and {:?} more", later.wait);
}

/// Reads the usage of a body in two pieces.
fn read_usage(body: &[u8], cut: usize) -> Option<Usage> {
    let mut reader = UsageReader::default();
    reader.push(&body[..cut]);
    reader.push(&body[cut..]);
    reader.usage(Usage::default())
}
