//! A snapshot as JSON, with the JSON names of the wire's fields, and fields that the wire does not have.

use serde_json::{Value, json};
use throttlekit_proto::v1;

use super::server_telemetry::ServerTelemetry;

pub(super) fn of(snapshot: &v1::Snapshot, telemetry: &ServerTelemetry) -> Value {
    let meta = snapshot.meta.clone().unwrap_or_default();
    let engine = snapshot.engine.clone().unwrap_or_default();
    let config = snapshot.config.clone().unwrap_or_default();
    json!({
        "meta": {
            "generatedAt": meta.generated_at,
            "windowMs": meta.window_ms,
            "mode": meta.mode,
            "lensVersion": meta.lens_version,
            "nodeId": meta.node_id,
        },
        "policies": snapshot.policies.iter().map(policy).collect::<Vec<_>>(),
        "guards": snapshot.guards.iter().map(guard).collect::<Vec<_>>(),
        "recentDenials": snapshot.recent_denials.iter().map(denial).collect::<Vec<_>>(),
        "engine": {
            "kind": engine.kind,
            "serving": engine.serving,
            "breakerOpen": engine.breaker_open,
            "calls": engine.calls,
            "outages": engine.outages,
            "inFlight": engine.in_flight,
            "lastError": engine.last_error,
            "lastAnswerMsAgo": engine.last_answer_ms_ago,
        },
        "config": {
            "versionHash": config.version_hash,
            "loadedAt": config.loaded_at,
            "reloads": config.reloads,
            "rejected": config.rejected,
            "lastError": config.last_error,
        },
        "eventsLost": telemetry.counts().events_lost(),
        "watchers": telemetry.watchers().count(),
        "watchDropped": telemetry.watchers().dropped(),
        "hashedKeys": telemetry.options().hash_keys,
    })
}

fn policy(policy: &v1::PolicySummary) -> Value {
    let latency = policy.latency.unwrap_or_default();
    let keys = |keys: &[v1::KeyCount]| {
        keys.iter().map(|key| json!({"key": key.key, "count": key.count})).collect::<Vec<_>>()
    };
    let axes = policy.denied_by_axis.iter().map(|axis| (axis.axis.clone(), axis.count.into()));
    let worths = policy.guarantees.iter().map(|worth| (worth.guarantee.clone(), worth.count.into()));
    json!({
        "name": policy.name,
        "kind": policy.kind,
        "strategy": policy.strategy,
        "allowed": policy.allowed,
        "denied": policy.denied,
        "limit": policy.limit,
        "latency": {
            "avgMs": latency.avg_ms,
            "p50Ms": latency.p50_ms,
            "p99Ms": latency.p99_ms,
            "maxMs": latency.max_ms,
            "n": latency.n,
        },
        "topDenied": keys(&policy.top_denied),
        "topRequested": keys(&policy.top_requested),
        "deniedByAxis": axes.collect::<serde_json::Map<_, Value>>(),
        "guarantees": worths.collect::<serde_json::Map<_, Value>>(),
        "engineCalls": policy.engine_calls,
        "shadowDenied": policy.shadow_denied,
        "fairShares": policy.fair_shares.iter().map(share).collect::<Vec<_>>(),
    })
}

fn share(share: &v1::FairShare) -> Value {
    json!({
        "tenant": share.tenant,
        "used": share.used,
        "guaranteed": share.guaranteed,
        "weight": share.weight,
    })
}

fn guard(guard: &v1::GuardSummary) -> Value {
    json!({
        "name": guard.name,
        "limit": guard.limit,
        "inflight": guard.inflight,
        "share": guard.share,
        "lGlobal": guard.l_global,
        "nodes": guard.nodes,
        "fenced": guard.fenced,
    })
}

fn denial(denial: &v1::DenialEvent) -> Value {
    json!({
        "at": denial.at,
        "policy": denial.policy,
        "key": denial.key,
        "axis": denial.axis,
        "limitName": denial.limit_name,
        "limit": denial.limit,
        "remaining": denial.remaining,
        "retryAfterMs": denial.retry_after_ms,
    })
}
