//! Snapshots for the monitor, in the wire format.

use std::collections::BTreeMap;
use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};
use throttlekit_proto::v1;
use throttlekit_telemetry::{TopKey, TopKeys};

use super::denials::Denial;
use super::fair_shares;
use super::latency::{Summary, WINDOW};
use super::server_telemetry::{PolicySnapshot, ServerTelemetry};
use super::utc::utc;
use crate::engine::{Engine, GuardView, PolicyView};
use crate::reload::ConfigStatus;
use crate::wire_format::{millis_at, signed};

/// Number of busiest keys of a policy that are shown.
const TOP_SHOWN: usize = 10;
/// Version of the snapshot format.
const FORM: &str = "1";

/// Returns a snapshot of the policies for which `shows` returns true. It is also called with the empty name, which no
/// policy has: whether the caller may see everything, including errors.
///
/// Counts are since the start, latencies over the last minute. A policy without requests is included, with zeros.
pub fn snapshot(
    telemetry: &ServerTelemetry,
    engine: &Engine,
    config: &ConfigStatus,
    shows: impl Fn(&str) -> bool,
) -> v1::Snapshot {
    let mut running: BTreeMap<String, PolicyView> =
        engine.policies().into_iter().map(|policy| (policy.name.clone(), policy)).collect();
    let keys = KeysOf::read(telemetry);
    let asked = telemetry.policies().into_iter().map(|seen| {
        let view = running.remove(seen.counts.policy());
        summary(&seen, view.as_ref(), &keys)
    });
    let mut policies: Vec<_> = asked.collect();
    policies.extend(running.values().map(silent));
    policies.retain(|policy| shows(&policy.name));
    for policy in &mut policies {
        policy.fair_shares = fair_shares::of(telemetry, engine, &policy.name, &keys.busiest);
    }
    // Errors name files, principals and the store: they are for callers that may see everything.
    let shows_errors = shows("");
    let mut snapshot = v1::Snapshot {
        meta: Some(meta(telemetry)),
        policies,
        guards: engine.guards().iter().filter(|guard| shows(&guard.policy)).map(guard).collect(),
        recent_denials: telemetry
            .recent()
            .into_iter()
            .filter(|denial| shows(&denial.policy))
            .map(wire)
            .collect(),
        raw_json: String::new(),
        engine: Some(engine_health(telemetry, engine, shows_errors)),
        config: Some(config_health(config, shows_errors)),
    };
    snapshot.raw_json = super::json::of(&snapshot, telemetry).to_string();
    snapshot
}

fn meta(telemetry: &ServerTelemetry) -> v1::MonitorMeta {
    v1::MonitorMeta {
        generated_at: millis_at(WallClock.now()),
        window_ms: WINDOW.as_millis() as i64,
        mode: "server".into(),
        lens_version: FORM.into(),
        node_id: telemetry.options().node_id.clone(),
    }
}

fn summary(seen: &PolicySnapshot, view: Option<&PolicyView>, keys: &KeysOf) -> v1::PolicySummary {
    let name = seen.counts.policy();
    let axes = seen.counts.by_axis().filter(|(_, count)| *count > 0);
    let priced =
        Some(("price", seen.counts.denied_by(throttlekit::Axis::Price))).filter(|(_, count)| *count > 0);
    let worths = seen.counts.by_guarantee().filter(|(_, count)| *count > 0);
    v1::PolicySummary {
        allowed: signed(seen.counts.allowed()),
        denied: signed(seen.counts.denied()),
        latency: Some(latency(&seen.latency)),
        top_denied: keys.denied.get(name).cloned().unwrap_or_default(),
        top_requested: keys.requested.get(name).cloned().unwrap_or_default(),
        denied_by_axis: axes
            .chain(priced)
            .map(|(axis, count)| v1::AxisCount { axis: axis.into(), count: signed(count) })
            .collect(),
        guarantees: worths
            .map(|(worth, count)| v1::GuaranteeCount { guarantee: worth.into(), count: signed(count) })
            .collect(),
        shadow_denied: signed(seen.shadow_denied),
        name: name.into(),
        ..view.map(silent).unwrap_or_default()
    }
}

/// Creates the summary of a policy without requests.
fn silent(view: &PolicyView) -> v1::PolicySummary {
    v1::PolicySummary {
        name: view.name.clone(),
        kind: view.kind.into(),
        strategy: view.strategy.clone(),
        limit: signed(view.limit),
        latency: Some(v1::LatencySummary::default()),
        engine_calls: signed(view.store_calls),
        ..v1::PolicySummary::default()
    }
}

/// The busiest keys by policy, formatted for display.
struct KeysOf {
    busiest: Vec<TopKey>,
    denied: BTreeMap<String, Vec<v1::KeyCount>>,
    requested: BTreeMap<String, Vec<v1::KeyCount>>,
}

impl KeysOf {
    fn read(telemetry: &ServerTelemetry) -> Self {
        let top = telemetry.top();
        let by_policy = |keys: TopKeys| {
            let mut by: BTreeMap<String, Vec<v1::KeyCount>> = BTreeMap::new();
            for key in keys.keys {
                let list = by.entry(key.policy).or_default();
                if list.len() < TOP_SHOWN {
                    // The lower bound, which is a certain count.
                    list.push(v1::KeyCount {
                        key: telemetry.keys().show(&key.key),
                        count: signed(key.at_least),
                    });
                }
            }
            by.values_mut().for_each(|list| list.sort_by_key(|key| std::cmp::Reverse(key.count)));
            by
        };
        let busiest = top.requested.keys.clone();
        Self { busiest, denied: by_policy(top.denied), requested: by_policy(top.requested) }
    }
}

fn latency(summary: &Summary) -> v1::LatencySummary {
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    v1::LatencySummary {
        avg_ms: ms(summary.avg),
        p50_ms: ms(summary.p50),
        p99_ms: ms(summary.p99),
        max_ms: ms(summary.max),
        n: signed(summary.n),
    }
}

fn guard(view: &GuardView) -> v1::GuardSummary {
    let (share, ceiling) = view.fleet.unwrap_or((view.limit, view.limit));
    v1::GuardSummary {
        name: view.policy.clone(),
        limit: signed(view.limit),
        inflight: signed(view.in_flight),
        share: share as f64,
        l_global: signed(ceiling),
        nodes: signed(view.nodes),
        fenced: view.fenced,
    }
}

fn engine_health(telemetry: &ServerTelemetry, engine: &Engine, shows_errors: bool) -> v1::EngineHealth {
    let (health, store) = (engine.store_health(), telemetry.store());
    let away = store.away_since.map(|since| WallClock.now().since(since));
    v1::EngineHealth {
        kind: health.kind.into(),
        serving: health.serving,
        breaker_open: !health.serving,
        calls: signed(health.calls),
        outages: signed(store.went_away),
        in_flight: signed(health.in_flight),
        last_error: health
            .last_failure
            .filter(|_| shows_errors)
            .map(|last| format!("{} {}", utc(last.at), last.why))
            .unwrap_or_default(),
        last_answer_ms_ago: away.map_or(0, |away| away.as_millis() as i64),
    }
}

fn config_health(config: &ConfigStatus, shows_errors: bool) -> v1::ConfigHealth {
    let error = config.last_error.as_ref().or(config.access_error.as_ref()).filter(|_| shows_errors);
    v1::ConfigHealth {
        version_hash: config.hash.clone(),
        loaded_at: millis_at(config.loaded_at),
        reloads: signed(config.reloads),
        rejected: signed(config.rejected),
        last_error: error.cloned().unwrap_or_default(),
    }
}

impl From<Denial> for v1::DenialEvent {
    fn from(denial: Denial) -> Self {
        wire(denial)
    }
}

fn wire(denial: Denial) -> v1::DenialEvent {
    v1::DenialEvent {
        at: signed(denial.at_ms),
        policy: denial.policy,
        key: denial.key,
        axis: denial.axis.into(),
        limit_name: denial.limit_name.into(),
        limit: signed(denial.limit),
        remaining: signed(denial.remaining),
        retry_after_ms: denial.retry_after_ms,
    }
}
