//! Traces: requests with their instants and the expected decisions, as text for review.
//!
//! ```text
//! # a third of a second does not drift
//! limit gcra 3 per 1s burst 1
//! 1700000000.000000000s alice 1 -> allow 0/1 reset 1700000000.333333334s retry now
//! 1700000000.333333333s alice 1 -> deny 0/1 reset 1700000000.333333334s retry 1ns
//! ```
//!
//! A decision reads: allowed or not, units remaining of the limit, when all is free again, how long to wait.

use std::fmt;
use std::str::FromStr;

use throttlekit_core::{Cost, Decision, Retry, Timestamp};

use crate::Spec;
use crate::text::{parse_duration, parse_instant, parse_number, print_duration};

/// A trace: one limit and its decisions on a sequence of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Description of the trace.
    pub about: Vec<String>,
    /// The limit.
    pub spec: Spec,
    /// The requests in order, with the expected decisions.
    pub lines: Vec<Line>,
}

/// One request and the expected decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Time of the request.
    pub now: Timestamp,
    /// The key: any text without blanks.
    pub key: String,
    /// Cost of the request.
    pub cost: Cost,
    /// The expected decision.
    pub answer: Decision,
}

impl Trace {
    /// Returns the earliest instant of the trace.
    pub fn start(&self) -> Timestamp {
        self.lines.iter().map(|line| line.now).min().unwrap_or_default()
    }
}

/// Position and reason of a parse error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// The problem and its fix.
    pub problem: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for about in &self.about {
            writeln!(f, "# {about}")?;
        }
        writeln!(f, "limit {}", self.spec)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} -> {}", self.now, self.key, self.cost, print_answer(&self.answer))
    }
}

/// Formats a decision as in traces.
pub fn print_answer(answer: &Decision) -> String {
    let verb = if answer.allowed { "allow" } else { "deny" };
    let retry = match answer.retry_after {
        Retry::Now => "now".into(),
        Retry::After(wait) => print_duration(wait),
        Retry::OnRelease => "on-release".into(),
        Retry::Never => "never".into(),
    };
    format!("{verb} {}/{} reset {} retry {retry}", answer.remaining, answer.limit, answer.reset_at)
}

impl FromStr for Trace {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (mut about, mut spec, mut lines) = (Vec::new(), None, Vec::new());
        for (index, raw) in text.lines().enumerate() {
            let at = |problem| ParseError { line: index + 1, problem };
            let raw = raw.trim();
            if let Some(words) = raw.strip_prefix('#') {
                about.push(words.trim().to_owned());
            } else if let Some(words) = raw.strip_prefix("limit ") {
                let first = spec.replace(words.parse().map_err(at)?).is_none();
                first.then_some(()).ok_or_else(|| at("a second limit: use one file per limit".into()))?;
            } else if !raw.is_empty() {
                spec.ok_or_else(|| at("a request before the limit: begin with a `limit` line".into()))?;
                lines.push(raw.parse().map_err(at)?);
            }
        }
        let missing = || ParseError { line: 1, problem: "no limit: begin with a `limit` line".into() };
        Ok(Self { about, spec: spec.ok_or_else(missing)?, lines })
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [now, key, cost, "->", verb, left, "reset", reset_at, "retry", retry] = words[..] else {
            return Err(format!(
                "invalid line `{text}`: expected a request and its decision, such as \
                 `1.000000000s key 1 -> allow 4/5 reset 2.000000000s retry now`"
            ));
        };
        let (remaining, limit) = left
            .split_once('/')
            .ok_or_else(|| format!("invalid units `{left}`: expected remaining/limit, such as 4/5"))?;
        let answer = Decision {
            allowed: parse_verb(verb)?,
            limit: parse_number(limit, "limit")?,
            remaining: parse_number(remaining, "number of units")?,
            reset_at: parse_instant(reset_at)?,
            retry_after: parse_retry(retry)?,
        };
        Ok(Self { now: parse_instant(now)?, key: key.into(), cost: parse_number(cost, "cost")?, answer })
    }
}

fn parse_verb(text: &str) -> Result<bool, String> {
    match text {
        "allow" => Ok(true),
        "deny" => Ok(false),
        _ => Err(format!("invalid decision `{text}`: expected `allow` or `deny`")),
    }
}

fn parse_retry(text: &str) -> Result<Retry, String> {
    match text {
        "now" => Ok(Retry::Now),
        "on-release" => Ok(Retry::OnRelease),
        "never" => Ok(Retry::Never),
        wait => parse_duration(wait).map(Retry::after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a third of a second does not drift
limit gcra 3 per 1s burst 1
1700000000.000000000s alice 1 -> allow 0/1 reset 1700000000.333333334s retry now
1700000000.333333333s alice 1 -> deny 0/1 reset 1700000000.333333334s retry 1ns
1700000000.333333333s alice 2 -> deny 0/1 reset 1700000000.333333334s retry never
";

    #[test]
    fn a_trace_prints_as_it_was_read() {
        let trace: Trace = TEXT.parse().unwrap();
        assert_eq!(trace.to_string(), TEXT);
        assert_eq!(trace.lines[1].answer.retry_after.wait_ms(), Some(1));
        for limit in [
            "token-bucket 10 refill 5 per 1s",
            "leaky-bucket 10 per 1s wait 250ms",
            "window 5 every 1s anchor 0.300000000s",
            "window 5 day offset 120",
            "window 5 week sunday offset -60",
            "window 5 month offset 345",
            "sliding-window 10 in 1s buckets 7 retry next-bucket",
            "sliding-log 5 in 1ns",
        ] {
            assert_eq!(limit.parse::<Spec>().map(|spec| spec.to_string()), Ok(limit.into()));
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_its_remedy() {
        let mistake = |from: &str, to: &str| TEXT.replace(from, to).parse::<Trace>().unwrap_err();
        assert_eq!(
            mistake("alice 2", "alice x").to_string(),
            "line 5: invalid cost `x`: expected a whole number"
        );
        assert_eq!(mistake("deny 0/1 reset 1700000000.333333334s retry 1", "no").line, 4);
        assert_eq!(mistake("burst 1", "burst 0").line, 2);
        assert_eq!(mistake("limit gcra", "# limit gcra").line, 3);
        assert!("".parse::<Trace>().unwrap_err().problem.contains("begin with a `limit` line"));
    }
}
