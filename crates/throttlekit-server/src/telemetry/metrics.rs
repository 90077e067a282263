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
use crate::engine::{Engine, GuardView, StoreHealth};
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
    guards: Vec<GuardView>,
    leases: u64,
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
        let mut engine_calls = BTreeMap::new();
        for policy in &running {
            let label = if labelled(&policy.name) { &policy.name } else { OTHER };
            *engine_calls.entry(label.to_owned()).or_default() += policy.store_calls;
        }
        let mut guards = engine.guards();
        guards.retain(|guard| labelled(&guard.policy));
        Self {
            engine_calls,
            guards,
            leases: engine.leases_held(),
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
        page.counters(
            "allowed",
            "Decisions that let pass",
            each().map(|(name, p)| (name, p.counts.allowed())),
        )?;
        page.counters("denied", "Decisions that did not", each().map(|(name, p)| (name, p.counts.denied())))?;
        page.counters(
            "shadow_denied",
            "Let pass, though a policy that is only tried would have denied",
            each().map(|(name, p)| (name, p.shadow_denied)),
        )?;
        let mut family = page.family(
            "guarantee_in_force",
            "What the policy's last answer was worth: 1 for one of them",
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
            "Units beyond the limit that the last answer allowed for, at the most",
            each().map(|(name, p)| (name, bound(p))),
        )?;
        let mut family = page.family("decision_seconds", "How long decisions took", MetricType::Histogram)?;
        for (name, policy) in each() {
            let (sum, count, buckets) = &policy.cumulative;
            let labels = [("policy", name)];
            let mut histogram = family.encode_family(&labels)?;
            histogram.encode_histogram::<[(&str, &str); 0]>(*sum, *count, buckets, None)?;
        }
        let calls = self.engine_calls.iter().map(|(name, calls)| (name.as_str(), *calls));
        page.counters("engine_calls", "Calls to the store for this policy", calls)
    }

    fn write_guards(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let each = || self.guards.iter().map(|guard| (guard.policy.as_str(), guard));
        page.gauges("guard_in_flight", "Slots held here", each().map(|(name, g)| (name, g.in_flight)))?;
        page.gauges(
            "guard_limit",
            "The ceiling here; 0 where each key has its own",
            each().map(|(name, g)| (name, g.limit)),
        )?;
        page.gauges(
            "guard_fenced",
            "1 if this instance lost touch with the others and lets nobody in",
            each().map(|(name, g)| (name, u64::from(g.fenced))),
        )?;
        page.gauges(
            "guard_fleet_ceiling",
            "The ceiling of the whole fleet; 0 where there is none",
            each().map(|(name, g)| (name, g.fleet.map_or(0, |(_, ceiling)| ceiling))),
        )?;
        page.gauges("guard_nodes", "Instances that share it", each().map(|(name, g)| (name, g.nodes)))?;
        page.gauge("leases_held", "Leases that clients hold here", self.leases)
    }

    fn write_server(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let kind = [("store", self.health.kind)];
        let mut family = page.family("store_up", "1 if the store answers", MetricType::Gauge)?;
        ConstGauge::new(i64::from(self.health.serving)).encode(family.encode_family(&kind)?)?;
        page.counter("store_calls", "Calls sent to the store", self.health.calls)?;
        page.counter(
            "store_calls_unanswered",
            "Calls to the store without an answer in time, or not sent for that",
            self.health.outages,
        )?;
        page.counter("store_outages", "Times that the store went away", self.store.went_away)?;
        page.gauge("store_in_flight", "Calls to the store under way", self.health.in_flight)?;

        let KeyMemory {
            budget_bytes, used_bytes, live_keys, keys_max, estimated, strangers_short_ppm, ..
        } = self.keys;
        for (name, help, level) in [
            ("key_memory_budget_bytes", "What keys may take; 0 where the store is elsewhere", budget_bytes),
            ("key_memory_bytes", "What keys have taken", used_bytes),
            ("keys_live", "Keys that are counted exactly and owe something", live_keys),
            ("keys_max", "Keys that can be counted exactly", keys_max),
            (
                "keys_short_ppm",
                "Of a million new keys, how many would start short of their limit",
                strangers_short_ppm as usize,
            ),
        ] {
            page.gauge(name, help, level as u64)?;
        }
        page.counter("keys_estimated", "Charges to keys beyond the memory for keys", estimated)?;

        let version = [("version", self.config.hash.as_str())];
        let mut family = page.family("config_info", "The policy file in force", MetricType::Gauge)?;
        ConstGauge::new(1_i64).encode(family.encode_family(&version)?)?;
        page.gauge(
            "config_loaded_timestamp_seconds",
            "When it was taken up, since the Unix epoch",
            self.config.loaded_at.as_millis_ceil() / 1_000,
        )?;
        page.counter("config_reloads", "Files taken up after the first", self.config.reloads)?;
        page.counter("config_rejected", "Files refused", self.config.rejected)?;
        page.counter(
            "log_lines_dropped",
            "Lines of the log that were dropped, as their reader was too slow",
            super::logs::dropped(),
        )?;
        page.gauge(
            "access_failing",
            "Tokens and secrets that cannot be used now, and are refused",
            self.config.access_failing,
        )?;
        page.counter(
            "access_failures",
            "Tokens and secrets that became unusable",
            self.config.access_failures,
        )?;
        page.gauge("watchers", "Streams of denials that are open", self.watchers)?;
        page.counter("watch_dropped", "Denials that a stream was not told of", self.watch_dropped)
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut Writer(&mut encoder);
        self.write_policies(page)?;
        self.write_guards(page)?;
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
