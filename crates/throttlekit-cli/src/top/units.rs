//! Numbers and times for people.

use throttlekit_proto::v1::PolicySummary;

/// Formats a count in at most six characters: `999`, `12.3k`, `4.56M`.
pub(super) fn short(count: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(size, _)| count >= *size) {
        Some((size, unit)) => {
            let part = count / size;
            let digits = if part >= 100.0 { 0 } else { usize::from(part < 10.0) + 1 };
            format!("{part:.digits$}{unit}")
        }
        None if count >= 10.0 || count.fract() == 0.0 => format!("{count:.0}"),
        None => format!("{count:.1}"),
    }
}

/// Formats a time that was measured in milliseconds: `7µs`, `1.24ms`, `3.0s`.
pub(super) fn time(ms: f64) -> String {
    match ms {
        _ if ms <= 0.0 => "–".into(),
        _ if ms < 0.01 => format!("{:.1}µs", ms * 1_000.0),
        _ if ms < 1.0 => format!("{:.0}µs", ms * 1_000.0),
        _ if ms < 100.0 => format!("{ms:.2}ms"),
        _ if ms < 1_000.0 => format!("{ms:.0}ms"),
        _ => format!("{:.1}s", ms / 1_000.0),
    }
}

/// Formats an age in one unit: `4s`, `12m`, `3h`, `2d`.
pub(super) fn ago(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(size, _)| seconds >= *size);
    unit.map_or_else(|| format!("{seconds}s"), |(size, unit)| format!("{}{unit}", seconds / size))
}

/// Formats the time of day in UTC.
pub(super) fn clock(ms: i64) -> String {
    let seconds = ms.rem_euclid(86_400_000) / 1_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Returns the fraction of decisions that denied.
pub(super) fn denied_part(policy: &PolicySummary) -> f64 {
    let all = policy.allowed + policy.denied;
    if all == 0 { 0.0 } else { policy.denied as f64 / all as f64 }
}

/// Returns the number of calls to the store per decision.
pub(super) fn calls_each(policy: &PolicySummary) -> f64 {
    let all = policy.allowed + policy.denied;
    if all == 0 { 0.0 } else { policy.engine_calls as f64 / all as f64 }
}
