//! The counters as a page for Prometheus to scrape.
//!
//! | name | labels | counts |
//! |---|---|---|
//! | `throttlekit_decisions_total` | `policy`, `outcome` (`allowed`, `denied`) | decisions |
//! | `throttlekit_denied_by_axis_total` | `policy`, `axis` (`concurrency`, `rate`, `cost`, `fairness`, `none`) | denials by the axis that denied |
//! | `throttlekit_policy_denied_total` | `policy` | denials by the price |
//! | `throttlekit_guarantee_total` | `policy`, `guarantee` (`exact`, `bounded`, `local`, `open`, `closed`) | decisions by guarantee |
//! | `throttlekit_cost` | `policy`, `le` | histogram: units per call |
//! | `throttlekit_retry_after_seconds` | `policy`, `le` | histogram: waits that denials reported, if known |
//! | `throttlekit_events_lost_total` | | events that did not reach subscribers |
//! | `throttlekit_subscribers_removed_total` | | subscribers removed after a panic |
//!
//! In one scrape `denied` is the sum of denials by axis and by the price, and `allowed + denied` the sum over
//! guarantees, for each policy. There are at most [`TelemetryBuilder::policies_max`](crate::TelemetryBuilder::policies_max) policies and
//! one more for all others. A key is never a label.
//!
//! ```
//! use throttlekit_telemetry::{Telemetry, prometheus};
//!
//! let telemetry = Telemetry::builder().start()?;
//! let page = prometheus::text(&telemetry.counts());
//! assert!(page.contains("throttlekit_events_lost_total 0"));
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(feature = "outbound")]
mod outbound;

use std::fmt;

#[cfg(feature = "outbound")]
pub use outbound::register_outbound;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use throttlekit::Axis;

use crate::{Counts, Histogram, PolicyCounts};

/// The content type of the page.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the page: the current value of all counters.
pub fn text(counts: &Counts) -> String {
    let mut registry = Registry::default();
    register(&mut registry, counts);
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut page, &registry);
    page
}

/// Adds the counters to an existing registry.
pub fn register(registry: &mut Registry, counts: &Counts) {
    registry.register_collector(Box::new(Collected(counts.clone())));
}

#[derive(Debug)]
struct Collected(Counts);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Read once, so that the page is consistent.
        let mut policies = self.0.policies();
        policies.sort_unstable_by(|a, b| a.policy().cmp(b.policy()));
        let page = &mut encoder;

        let decisions = with_label("outcome", &policies, PolicyCounts::by_outcome);
        family(page, "throttlekit_decisions", "Decisions, by outcome", decisions)?;
        let denied = with_label("axis", &policies, PolicyCounts::by_axis);
        family(page, "throttlekit_denied_by_axis", "Denials, by the axis that denied", denied)?;
        let priced =
            policies.iter().map(|policy| ([("policy", policy.policy())], policy.denied_by(Axis::Price)));
        family(page, "throttlekit_policy_denied", "Denials by the price", priced)?;
        let worth = with_label("guarantee", &policies, PolicyCounts::by_guarantee);
        family(page, "throttlekit_guarantee", "Decisions, by guarantee", worth)?;
        histograms(page, "throttlekit_cost", "Units per call", &policies, PolicyCounts::costs)?;
        let waits = "Waits that denials reported, if known";
        histograms(page, "throttlekit_retry_after_seconds", waits, &policies, PolicyCounts::waits)?;

        let lost = self.0.events_lost();
        single(page, "throttlekit_events_lost", "Events that subscribers did not receive", lost)?;
        let removed = self.0.subscribers_removed();
        single(page, "throttlekit_subscribers_removed", "Subscribers removed after a panic", removed)
    }
}

/// Writes counts by policy and one more label.
fn with_label<'a, C: IntoIterator<Item = (&'static str, u64)> + 'a>(
    label: &'a str,
    policies: &'a [PolicyCounts],
    counts: impl Fn(&'a PolicyCounts) -> C + 'a,
) -> impl Iterator<Item = ([(&'a str, &'a str); 2], u64)> {
    policies.iter().flat_map(move |policy| {
        let labels = move |value| [("policy", policy.policy()), (label, value)];
        counts(policy).into_iter().map(move |(value, count)| (labels(value), count))
    })
}

fn family<'a, const LABELS: usize>(
    page: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl Iterator<Item = ([(&'a str, &'a str); LABELS], u64)>,
) -> fmt::Result {
    let mut metric = page.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in counts {
        ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn histograms(
    page: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    policies: &[PolicyCounts],
    of: fn(&PolicyCounts) -> &Histogram,
) -> fmt::Result {
    let mut metric = page.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for policy in policies {
        let (labels, read) = ([("policy", policy.policy())], of(policy));
        let mut family = metric.encode_family(&labels)?;
        family.encode_histogram::<[(&str, &str); 0]>(read.sum(), read.count(), read.buckets(), None)?;
    }
    Ok(())
}

fn single(page: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    ConstCounter::new(count).encode(page.encode_descriptor(name, help, None, MetricType::Counter)?)
}
