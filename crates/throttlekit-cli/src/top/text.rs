//! Numbers and times for people, and a snapshot as plain text.

use std::fmt::Write;

use throttlekit_proto::v1::{PolicySummary, Snapshot};

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

/// Formats a snapshot as plain text, for scripts: one line per item, its kind first.
pub(super) fn plain(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let meta = snapshot.meta.clone().unwrap_or_default();
    let engine = snapshot.engine.clone().unwrap_or_default();
    let config = snapshot.config.clone().unwrap_or_default();
    let mut line = |text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{text}");
    };
    line(format!("server node={:?} at={}", meta.node_id, meta.generated_at));
    line(format!(
        "store kind={} serving={} calls={} outages={} in_flight={} last_error={:?}",
        engine.kind, engine.serving, engine.calls, engine.outages, engine.in_flight, engine.last_error
    ));
    line(format!(
        "config version={} loaded_at={} reloads={} rejected={} last_error={:?}",
        config.version_hash, config.loaded_at, config.reloads, config.rejected, config.last_error
    ));
    for policy in &snapshot.policies {
        let latency = policy.latency.unwrap_or_default();
        line(format!(
            "policy name={:?} kind={} allowed={} denied={} shadow_denied={} limit={} engine_calls={} p50_ms={:.4} p99_ms={:.4}",
            policy.name,
            policy.kind,
            policy.allowed,
            policy.denied,
            policy.shadow_denied,
            policy.limit,
            policy.engine_calls,
            latency.p50_ms,
            latency.p99_ms
        ));
        for axis in &policy.denied_by_axis {
            line(format!("axis policy={:?} axis={} denied={}", policy.name, axis.axis, axis.count));
        }
        for (list, keys) in [("requested", &policy.top_requested), ("denied", &policy.top_denied)] {
            for key in keys {
                line(format!("key policy={:?} {list}={} key={:?}", policy.name, key.count, key.key));
            }
        }
        for share in &policy.fair_shares {
            line(format!(
                "share policy={:?} used={} guaranteed={} weight={} tenant={:?}",
                policy.name, share.used, share.guaranteed, share.weight, share.tenant
            ));
        }
    }
    for guard in &snapshot.guards {
        line(format!(
            "slots policy={:?} in_flight={} limit={} share={} ceiling={} nodes={} fenced={}",
            guard.name, guard.inflight, guard.limit, guard.share, guard.l_global, guard.nodes, guard.fenced
        ));
    }
    for denial in &snapshot.recent_denials {
        line(format!(
            "denial at={} policy={:?} axis={} retry_after_ms={} key={:?}",
            denial.at, denial.policy, denial.axis, denial.retry_after_ms, denial.key
        ));
    }
    out
}
