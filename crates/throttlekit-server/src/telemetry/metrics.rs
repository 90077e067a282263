//! The page that Prometheus scrapes: the counters of the telemetry, and further state of the server.
//!
//! Counters only grow during the lifetime of a process. Policies have labels up to a maximum; a key is never a label.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use throttlekit::Guarantee;
use throttlekit::limiter::KeyMemory;
use throttlekit_telemetry::{GUARANTEES, OTHER, prometheus};

use super::server_stats::ServerStats;
use super::server_telemetry::{PolicySnapshot, ServerTelemetry, StoreRecord};
use crate::engine::{Engine, GuardView, LeaseUsage, OverridesView, StoreHealth};
use crate::reload::ConfigStatus;

/// Content type of the page.
pub const METRICS_CONTENT_TYPE: &str = prometheus::CONTENT_TYPE;

/// Renders the page with the current values.
pub fn metrics(
    telemetry: &ServerTelemetry,
    engine: &Engine,
    config: &ConfigStatus,
    server: ServerStats,
) -> String {
    let mut registry = Registry::default();
    prometheus::register(&mut registry, &telemetry.counts());
    let ours = registry.sub_registry_with_prefix("throttlekit");
    ours.register_collector(Box::new(Page::read(telemetry, engine, config)));
    ours.register_collector(Box::new(server));
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut page, &registry);
    page
}

/// All metrics that are not part of the telemetry.
struct Page {
    policies: Vec<PolicySnapshot>,
    engine_calls: BTreeMap<String, u64>,
    waiting: BTreeMap<String, u64>,
    guards: Vec<GuardView>,
    leases: LeaseUsage,
    overrides: OverridesView,
    actions: Vec<(&'static str, u64)>,
    health: StoreHealth,
    store: StoreRecord,
    keys: KeyMemory,
    config: ConfigStatus,
    watchers: u64,
    watch_dropped: u64,
}

impl Page {
    fn read(telemetry: &ServerTelemetry, engine: &Engine, config: &ConfigStatus) -> Self {
        let policies = telemetry.policies();
        let running = engine.policies();
        let crowded = running.len() > telemetry.options().policies_max;
        let labelled = |name: &str| !crowded || policies.iter().any(|known| known.counts.policy() == name);
        let (mut engine_calls, mut waiting) = (BTreeMap::new(), BTreeMap::new());
        for policy in &running {
            let label = if labelled(&policy.name) { &policy.name } else { OTHER };
            *engine_calls.entry(label.to_owned()).or_default() += policy.store_calls;
            *waiting.entry(label.to_owned()).or_default() += policy.waiting;
        }
        let mut guards = engine.guards();
        guards.retain(|guard| labelled(&guard.policy));
        Self {
            engine_calls,
            waiting,
            guards,
            leases: engine.lease_usage(),
            overrides: engine.overrides_view(),
            actions: engine.actions().counts().to_vec(),
            health: engine.store_health(),
            store: telemetry.store(),
            keys: engine.key_memory().unwrap_or_default(),
            config: config.clone(),
            watchers: telemetry.watchers().count() as u64,
            watch_dropped: telemetry.watchers().dropped(),
            policies,
        }
    }

    fn write_policies(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let each = || self.policies.iter().map(|policy| (policy.counts.policy(), policy));
        page.counters("allowed", "Allowed decisions", each().map(|(name, p)| (name, p.counts.allowed())))?;
        page.counters("denied", "Denied decisions", each().map(|(name, p)| (name, p.counts.denied())))?;
        page.counters(
            "shadow_denied",
            "Requests that a policy in shadow mode would have denied",
            each().map(|(name, p)| (name, p.shadow_denied)),
        )?;
        let mut family = page.family(
            "guarantee_in_force",
            "1 for the guarantee of the policy's last decision, 0 for the others",
            MetricType::Gauge,
        )?;
        for (name, policy) in each() {
            for guarantee in GUARANTEES {
                let is = policy.worth.is_some_and(|worth| worth.label() == guarantee);
                let labels = [("policy", name), ("guarantee", guarantee)];
                ConstGauge::new(i64::from(is)).encode(family.encode_family(&labels)?)?;
            }
        }
        let bound = |policy: &PolicySnapshot| match policy.worth {
            Some(Guarantee::Bounded(over)) => over,
            _ => 0,
        };
        page.gauges(
            "overshoot_bound",
            "Maximum units beyond the limit, if the last decision was bounded; otherwise 0",
            each().map(|(name, p)| (name, bound(p))),
        )?;
        let mut family = page.family("decision_seconds", "Duration of decisions", MetricType::Histogram)?;
        for (name, policy) in each() {
            let (sum, count, buckets) = &policy.cumulative;
            let labels = [("policy", name)];
            let mut histogram = family.encode_family(&labels)?;
            histogram.encode_histogram::<[(&str, &str); 0]>(*sum, *count, buckets, None)?;
        }
        let calls = self.engine_calls.iter().map(|(name, calls)| (name.as_str(), *calls));
        page.counters("engine_calls", "Calls to the store for this policy", calls)?;
        let waiting = self.waiting.iter().map(|(name, calls)| (name.as_str(), *calls));
        page.gauges("policy_waiting", "Calls that wait until they are allowed", waiting)
    }

    fn write_guards(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let each = || self.guards.iter().map(|guard| (guard.policy.as_str(), guard));
        page.gauges("guard_in_flight", "Slots held here", each().map(|(name, g)| (name, g.in_flight)))?;
        page.gauges(
            "guard_limit",
            "Concurrency limit of this server; 0 if each key has its own",
            each().map(|(name, g)| (name, if g.per_key { 0 } else { g.limit })),
        )?;
        page.gauges(
            "guard_fenced",
            "1 if this server grants no slots: lost contact with the others, or waiting for leases to expire",
            each().map(|(name, g)| (name, u64::from(g.fenced))),
        )?;
        page.gauges(
            "guard_fleet_ceiling",
            "Concurrency limit of all servers together; 0 if there is none",
            each().map(|(name, g)| (name, g.fleet.map_or(0, |(_, ceiling)| ceiling))),
        )?;
        page.gauges("guard_nodes", "Servers that share the limit", each().map(|(name, g)| (name, g.nodes)))?;
        let LeaseUsage { held, max, caller_held, caller_max } = self.leases;
        page.gauge("leases_held", "Leases that clients hold here", held)?;
        page.gauge("leases_max", "Maximum number of leases that clients hold here", max)?;
        page.gauge("leases_caller_held", "Leases of the caller that has most", caller_held)?;
        page.gauge("leases_caller_max", "Maximum number of leases of one caller", caller_max)
    }

    fn write_operators(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let mut family =
            page.family("admin_actions", "Actions of operators that were done", MetricType::Counter)?;
        for (action, count) in &self.actions {
            ConstCounter::new(*count).encode(family.encode_family(&[("action", *action)])?)?;
        }
        let OverridesView { overrides, plans, failures, looked_at } = self.overrides;
        page.gauge("overrides", "Overrides of limits that operators set, as known here", overrides)?;
        page.gauge("plans", "Plans that operators set, as known here", plans)?;
        page.counter(
            "overrides_failures",
            "Times that overrides could not be read from the store",
            failures,
        )?;
        page.gauge(
            "overrides_read_timestamp_seconds",
            "Time at which overrides were last read from the store, since the Unix epoch; 0 if never",
            looked_at.as_millis_ceil() / 1_000,
        )
    }

    fn write_server(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let kind = [("store", self.health.kind)];
        let mut family = page.family(
            "store_up",
            "1 if the store is available, 0 while the circuit breaker is open",
            MetricType::Gauge,
        )?;
        ConstGauge::new(i64::from(self.health.serving)).encode(family.encode_family(&kind)?)?;
        page.counter("store_calls", "Calls sent to the store", self.health.calls)?;
        page.counter(
            "store_calls_unanswered",
            "Calls to the store that failed, timed out, or were rejected by the open circuit breaker",
            self.health.outages,
        )?;
        page.counter("store_outages", "Times that the store became unavailable", self.store.went_away)?;
        page.gauge("store_in_flight", "Calls to the store in flight", self.health.in_flight)?;

        let KeyMemory {
            budget_bytes, used_bytes, live_keys, keys_max, estimated, strangers_short_ppm, ..
        } = self.keys;
        for (name, help, level) in [
            (
                "key_memory_budget_bytes",
                "Memory budget for keys; 0 if the store is not in memory",
                budget_bytes,
            ),
            ("key_memory_bytes", "Memory used by keys", used_bytes),
            ("keys_live", "Keys that are counted exactly and have usage", live_keys),
            ("keys_max", "Estimated number of keys that the memory budget counts exactly", keys_max),
            (
                "keys_short_ppm",
                "Number of new keys in a million that would start short of their limit",
                strangers_short_ppm as usize,
            ),
        ] {
            page.gauge(name, help, level as u64)?;
        }
        page.counter(
            "keys_estimated",
            "Charges to keys that are estimated, beyond the memory budget",
            estimated,
        )?;

        let version = [("version", self.config.hash.as_str())];
        let mut family = page.family("config_info", "Current policy file", MetricType::Gauge)?;
        ConstGauge::new(1_i64).encode(family.encode_family(&version)?)?;
        page.gauge(
            "config_loaded_timestamp_seconds",
            "Load time of the current policy file, since the Unix epoch",
            self.config.loaded_at.as_millis_ceil() / 1_000,
        )?;
        page.counter("config_reloads", "Policy files loaded after the first", self.config.reloads)?;
        page.counter("config_rejected", "Policy files rejected", self.config.rejected)?;
        page.counter(
            "log_lines_dropped",
            "Log lines dropped because their reader was too slow",
            super::logs::dropped(),
        )?;
        page.gauge(
            "access_failing",
            "Tokens and secrets that are unusable now, and are rejected",
            self.config.access_failing,
        )?;
        page.counter(
            "access_failures",
            "Times that a token or secret became unusable",
            self.config.access_failures,
        )?;
        page.gauge("watchers", "Open streams of denials", self.watchers)?;
        page.counter("watch_dropped", "Denials that a stream missed", self.watch_dropped)
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut Writer(&mut encoder);
        self.write_policies(page)?;
        self.write_guards(page)?;
        self.write_operators(page)?;
        self.write_server(page)
    }
}

throttlekit::debug_fields!([] Page, |it| policies = it.policies.len());

/// Writes families with the common prefix of our names.
struct Writer<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Writer<'_, '_> {
    fn family<'s>(
        &'s mut self,
        name: &'static str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn counters<'p>(
        &mut self,
        name: &'static str,
        help: &str,
        each: impl Iterator<Item = (&'p str, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (policy, count) in each {
            ConstCounter::new(count).encode(family.encode_family(&[("policy", policy)])?)?;
        }
        Ok(())
    }

    fn gauges<'p>(
        &mut self,
        name: &'static str,
        help: &str,
        each: impl Iterator<Item = (&'p str, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (policy, level) in each {
            gauge_of(level).encode(family.encode_family(&[("policy", policy)])?)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &'static str, help: &str, count: u64) -> fmt::Result {
        ConstCounter::new(count).encode(self.family(name, help, MetricType::Counter)?)
    }

    fn gauge(&mut self, name: &'static str, help: &str, level: u64) -> fmt::Result {
        gauge_of(level).encode(self.family(name, help, MetricType::Gauge)?)
    }
}

fn gauge_of(level: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(level).unwrap_or(i64::MAX))
}
