//! Delays in the bodies of refusals.

use std::time::Duration;

use serde_json::Value;

use super::value;

/// Bytes of a body that are read.
const BYTES_MAX: usize = 64 << 10;
/// Words before a delay, in lower case: OpenAI's, and Azure's.
const BEFORE_DELAY: [&str; 2] = ["try again in ", "retry after "];
const RETRY_INFO: &str = "google.rpc.RetryInfo";

/// Finds the delay in the body of a refusal: `retryDelay` of Gemini, or a sentence such as `Please try again in 1.2s.`
pub(super) fn delay(body: &[u8]) -> Option<Duration> {
    let body = body.get(..body.len().min(BYTES_MAX))?;
    match serde_json::from_slice::<Value>(body) {
        Ok(json) => retry_info(&json).or_else(|| in_sentence(message(&json)?)),
        Err(_) => in_sentence(std::str::from_utf8(body).ok()?),
    }
}

/// Returns the error of a body, which some APIs wrap into a list.
fn error(json: &Value) -> &Value {
    let first = json.get(0).unwrap_or(json);
    first.get("error").unwrap_or(first)
}

fn retry_info(json: &Value) -> Option<Duration> {
    let details = error(json).get("details")?.as_array()?;
    let is_retry_info = |one: &&Value| one["@type"].as_str().is_some_and(|kind| kind.ends_with(RETRY_INFO));
    value::span(details.iter().find(is_retry_info)?.get("retryDelay")?.as_str()?)
}

fn message(json: &Value) -> Option<&str> {
    let error = error(json);
    error.as_str().or_else(|| error.get("message")?.as_str())
}

fn in_sentence(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    BEFORE_DELAY.iter().find_map(|before| value::span(lower.split(before).nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_found_as_providers_write_them() {
        for (body, millis) in [
            (
                r#"{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.Help"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37s"}]}}"#,
                37_000,
            ),
            (
                r#"[{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.5s"}]}}]"#,
                500,
            ),
            (
                r#"{"error":{"message":"Rate limit reached for gpt-4. Please try again in 1.2s. Visit https://x.","type":"tokens"}}"#,
                1_200,
            ),
            (r#"{"error":{"message":"Limit 3, Used 3. Please try again in 6m0s."}}"#, 360_000),
            (r#"{"error":{"message":"Please retry after 26 seconds."}}"#, 26_000),
            (r#"{"error":"Please Try Again In 20ms"}"#, 20),
            ("too many requests, retry after 3s", 3_000),
        ] {
            assert_eq!(delay(body.as_bytes()), Some(Duration::from_millis(millis)), "{body}");
        }
    }

    #[test]
    fn other_bodies_have_no_delay() {
        let deep = "[".repeat(100_000);
        for body in [
            "",
            "{}",
            "[]",
            "null",
            "7",
            r#"{"error":{"message":"try again in -1s"}}"#,
            "retry after NaN",
            &deep,
        ] {
            assert_eq!(delay(body.as_bytes()), None);
        }
        assert_eq!(delay(b"\xff\xfe try again in 1s"), None);
        let retry =
            r#"{"error":{"details":[{"@type":"google.rpc.RetryInfo","retryDelay":"99999999999999999s"}]}}"#;
        assert_eq!(delay(retry.as_bytes()), None);
    }
}
