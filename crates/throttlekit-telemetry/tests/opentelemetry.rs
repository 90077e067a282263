//! The output to OpenTelemetry, read back from its own SDK.
#![cfg(feature = "opentelemetry")]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::event;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use throttlekit::admit::LimitName;
use throttlekit::observe::{Event, Observer};
use throttlekit::rate::ALLOW_FULL;
use throttlekit::{Axis, Decision, Guarantee, Retry};
use throttlekit_telemetry::{Attributes, Telemetry, opentelemetry as otel};

fn told(event: &Event<'_>) -> BTreeMap<String, Value> {
    otel::attributes(event).into_iter().map(|KeyValue { key, value, .. }| (key.to_string(), value)).collect()
}

#[test]
fn a_denial_by_an_axis_has_exactly_these_attributes() {
    let limit_name = LimitName::new("team");
    let guarantee = Guarantee::Bounded(4);
    let denied = Event { guarantee, limit_name, ..event("chat", false, Some(Axis::Cost)) };
    let expected: [(&str, Value); 7] = [
        ("throttlekit.allowed", false.into()),
        ("throttlekit.binding_axis", "cost".into()),
        ("throttlekit.guarantee", "bounded".into()),
        ("throttlekit.limit", 10_i64.into()),
        ("throttlekit.limit_name", "team".into()),
        ("throttlekit.remaining", 7_i64.into()),
        ("throttlekit.retry_after_ms", 1_501_i64.into()),
    ];
    assert_eq!(told(&denied), expected.map(|(name, value)| (name.to_owned(), value)).into());
}

#[test]
fn the_axis_is_reported_only_on_denial_and_the_wait_only_if_it_is_known() {
    let has = |event: &Event<'_>| {
        let told = told(event);
        [Attributes::BINDING_AXIS, Attributes::RETRY_AFTER_MS].map(|name| told.contains_key(name))
    };
    let denied = event("chat", false, Some(Axis::Concurrency));
    let until = |retry_after| Event { decision: Decision { retry_after, ..denied.decision }, ..denied };
    assert_eq!(has(&event("chat", true, None)), [false, true]);
    assert_eq!(has(&event("chat", true, Some(Axis::Rate))), [false, true]);
    assert_eq!(has(&event("chat", false, Some(Axis::Price))), [false, true]);
    assert_eq!(has(&until(Retry::OnRelease)), [true, false]);
    assert_eq!(has(&until(Retry::Never)), [true, false]);
}

#[test]
fn numbers_too_large_are_clamped() {
    let told = told(&Event { decision: ALLOW_FULL, ..event("chat", true, None) });
    assert_eq!(told["throttlekit.limit"], Value::I64(i64::MAX));
}

/// Returns the exported values of one instrument: counts by the values of their attributes.
fn counts_of(exporter: &InMemoryMetricExporter, name: &str) -> BTreeMap<String, u64> {
    let exported = exporter.get_finished_metrics().unwrap();
    let scopes = exported.last().unwrap().scope_metrics();
    let metrics = scopes.flat_map(ScopeMetrics::metrics).filter(|metric| metric.name() == name);
    let mut counts = BTreeMap::new();
    for metric in metrics {
        let AggregatedMetrics::U64(MetricData::Sum(sum)) = metric.data() else { panic!("{metric:?}") };
        assert!(sum.is_monotonic(), "{name} is a counter");
        for point in sum.data_points() {
            let mut labels: Vec<String> =
                point.attributes().map(|label| format!("{}={}", label.key, label.value)).collect();
            labels.sort();
            counts.insert(labels.join(","), point.value());
        }
    }
    counts
}

#[test]
fn metrics_are_exact_monotonic_and_capped() {
    let exporter = InMemoryMetricExporter::default();
    let provider =
        SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    let telemetry = Telemetry::builder().policies_max(2).queue(1).start().unwrap();
    otel::register(&provider.meter("throttlekit"), &telemetry.counts());
    let round = || {
        for policy in ["chat", "embed", "third", "fourth"] {
            telemetry.observe(&event(policy, true, None));
            telemetry.observe(&event(policy, false, Some(Axis::Rate)));
            telemetry.observe(&event(policy, false, Some(Axis::Fairness)));
            let priced_out = event(policy, false, Some(Axis::Price));
            telemetry.observe(&Event { guarantee: Guarantee::Local, ..priced_out });
        }
    };
    for n in 1..=3_u64 {
        round();
        provider.force_flush().unwrap();
        let at = |name: &str, labels: &str| counts_of(&exporter, name).get(labels).copied();
        let decisions = |outcome: &str, policy: &str| {
            at("throttlekit.decisions", &format!("throttlekit.outcome={outcome},throttlekit.policy={policy}"))
        };
        assert_eq!((decisions("allowed", "chat"), decisions("denied", "chat")), (Some(n), Some(3 * n)));
        assert_eq!(
            (decisions("allowed", "other"), decisions("allowed", "third")),
            (Some(2 * n), None),
            "beyond the cap"
        );
        let by_axis = counts_of(&exporter, "throttlekit.denied_by_axis");
        let of_chat = by_axis.iter().filter(|(labels, _)| labels.ends_with("throttlekit.policy=chat"));
        assert_eq!(of_chat.map(|(_, count)| count).sum::<u64>(), 2 * n);
        assert_eq!(by_axis["throttlekit.binding_axis=rate,throttlekit.policy=embed"], n);
        assert_eq!(at("throttlekit.policy_denied", "throttlekit.policy=chat"), Some(n));
        let local = "throttlekit.guarantee=local,throttlekit.policy=chat";
        assert_eq!(at("throttlekit.guarantees", local), Some(n));
        assert_eq!(by_axis.len(), 3 * 5, "two policies and the others");
        assert!(at("throttlekit.events_lost", "").is_some());
    }
}

#[test]
fn histograms_record_costs_and_waits() {
    let exporter = InMemoryMetricExporter::default();
    let provider =
        SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    let histograms = otel::histograms(&provider.meter("throttlekit"));
    let telemetry = Telemetry::builder().subscribe(histograms).start().unwrap();
    telemetry.observe(&event("chat", true, None));
    telemetry.observe(&event("chat", false, Some(Axis::Rate)));
    assert!(telemetry.flush(Duration::from_secs(5)));
    provider.force_flush().unwrap();
    let exported = exporter.get_finished_metrics().unwrap();
    let read: BTreeMap<_, _> = exported
        .iter()
        .flat_map(|batch| batch.scope_metrics().flat_map(ScopeMetrics::metrics))
        .map(|metric| match metric.data() {
            AggregatedMetrics::U64(MetricData::Histogram(costs)) => {
                let point = costs.data_points().next().unwrap();
                (metric.name(), (point.count(), point.sum() as f64))
            }
            AggregatedMetrics::F64(MetricData::Histogram(waits)) => {
                let point = waits.data_points().next().unwrap();
                (metric.name(), (point.count(), point.sum()))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        read,
        [
            ("throttlekit.cost", (2, 6.0)),
            ("throttlekit.retry_after", (1, Duration::from_micros(1_500_001).as_secs_f64()))
        ]
        .into()
    );
}
