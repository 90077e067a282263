//! Headers and bodies in the style of a provider.

use std::time::Duration;

use http::response::Builder;

use super::limits::Seen;

/// The API that a provider offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `x-ratelimit-*` with durations, `retry-after-ms`.
    OpenAi,
    /// `anthropic-ratelimit-*` with instants, `retry-after` in seconds.
    Anthropic,
}

impl Style {
    /// Adds what is left of both limits, and the time by the provider's clock, in seconds since the epoch.
    pub fn report(self, response: Builder, requests: Seen, tokens: Seen, now: u64) -> Builder {
        let kinds = [("requests", requests), ("tokens", tokens)];
        kinds.into_iter().fold(response.header("date", http_date(now)), |response, (kind, seen)| {
            let Seen { limit, remaining, reset } = seen;
            match self {
                Self::OpenAi => response
                    .header(format!("x-ratelimit-limit-{kind}"), limit)
                    .header(format!("x-ratelimit-remaining-{kind}"), remaining)
                    .header(format!("x-ratelimit-reset-{kind}"), duration(reset)),
                Self::Anthropic => response
                    .header(format!("anthropic-ratelimit-{kind}-limit"), limit)
                    .header(format!("anthropic-ratelimit-{kind}-remaining"), remaining)
                    .header(format!("anthropic-ratelimit-{kind}-reset"), rfc3339(now + secs_ceil(reset))),
            }
        })
    }

    /// Adds the delay of a refusal.
    pub fn delay(self, response: Builder, wait: Duration) -> Builder {
        let response = response.header("retry-after", secs_ceil(wait).max(1));
        match self {
            Self::OpenAi => response.header("retry-after-ms", millis(wait) + 1),
            Self::Anthropic => response,
        }
    }

    /// Returns the body of a response that took this many tokens.
    pub fn body(self, tokens: u64) -> String {
        let (input, output) = (tokens / 2, tokens - tokens / 2);
        match self {
            Self::OpenAi => format!(
                r#"{{"object":"chat.completion","usage":{{"prompt_tokens":{input},"completion_tokens":{output},"total_tokens":{tokens}}}}}"#
            ),
            Self::Anthropic => {
                format!(r#"{{"type":"message","usage":{{"input_tokens":{input},"output_tokens":{output}}}}}"#)
            }
        }
    }
}

fn secs_ceil(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Formats a duration as Go does: `6m0s`, `1.5s`, `120ms`.
fn duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{}.{:03}s", millis / 1_000, millis % 1_000),
        _ => format!("{}m{}.{:03}s", millis / 60_000, millis % 60_000 / 1_000, millis % 1_000),
    }
}

fn rfc3339(epoch_secs: u64) -> String {
    let (year, month, day) = civil(epoch_secs / 86_400);
    let [hour, minute, second] = time_of_day(epoch_secs);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn http_date(epoch_secs: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = epoch_secs / 86_400;
    let (year, month, day) = civil(days);
    let [hour, minute, second] = time_of_day(epoch_secs);
    let (weekday, month) = (DAYS[days as usize % 7], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

fn time_of_day(epoch_secs: u64) -> [u64; 3] {
    let second = epoch_secs % 86_400;
    [second / 3_600, second % 3_600 / 60, second % 60]
}

/// Returns year, month and day of a number of days since the epoch.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
