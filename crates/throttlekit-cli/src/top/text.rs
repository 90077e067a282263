//! A snapshot as plain text.

use std::fmt::Write;

use throttlekit_proto::v1::Snapshot;

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
            "denial at={} policy={:?} axis={} limit_name={:?} retry_after_ms={} key={:?}",
            denial.at, denial.policy, denial.axis, denial.limit_name, denial.retry_after_ms, denial.key
        ));
    }
    out
}
