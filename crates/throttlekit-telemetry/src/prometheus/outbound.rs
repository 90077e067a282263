//! Calls to a provider: the statistics of an `Outbound`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use throttlekit::outbound::{KeyLimits, Outbound, OutboundStats, Quota};

use super::family;

/// Adds the statistics of an upstream to a registry, labeled with its name as `upstream`.
///
/// | name | further labels | value |
/// |---|---|---|
/// | `throttlekit_outbound_waiting` | | calls that wait now |
/// | `throttlekit_outbound_calls_total` | `outcome` (`admitted`, `not_ready`) | calls |
/// | `throttlekit_outbound_refusals_total` | `outcome` (`suffered`, `avoided`) | refusals by the provider, and denials that calls waited for instead |
/// | `throttlekit_outbound_retries_total` | | retries of refused calls |
/// | `throttlekit_outbound_wait_seconds` | `le` | histogram: waits of admitted calls |
/// | `throttlekit_outbound_limit` | `unit` (`requests`, `tokens`) | limit by the minute as learned, of the key with the lowest one |
/// | `throttlekit_outbound_remaining` | `unit` | units left by the last response, of the key with the fewest |
///
/// Keys may be API keys, so none is a label. [`Outbound::stats`] has the limits of each key.
///
/// ```
/// use prometheus_client::{encoding::text::encode, registry::Registry};
/// use throttlekit::outbound::Outbound;
/// use throttlekit_telemetry::prometheus;
///
/// let openai = Outbound::builder("openai").requests_per_minute(500).build()?;
/// let mut registry = Registry::default();
/// prometheus::register_outbound(&mut registry, &openai);
/// let mut page = String::new();
/// encode(&mut page, &registry)?;
/// assert!(page.contains(r#"throttlekit_outbound_waiting{upstream="openai"} 0"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn register_outbound(registry: &mut Registry, outbound: &Outbound) {
    registry.register_collector(Box::new(Collected(outbound.clone())));
}

#[derive(Debug)]
struct Collected(Outbound);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (stats, upstream, page) = (self.0.stats(), ("upstream", self.0.name()), &mut encoder);
        let waiting = [([upstream], Some(stats.waiting))];
        gauges(page, "throttlekit_outbound_waiting", "Calls that wait", waiting)?;
        let by = |label, pairs: [(&'static str, u64); 2]| {
            pairs.into_iter().map(move |(value, count)| ([upstream, (label, value)], count))
        };
        let calls = [("admitted", stats.admitted), ("not_ready", stats.not_ready)];
        family(page, "throttlekit_outbound_calls", "Calls, by outcome", by("outcome", calls))?;
        let refusals = [("suffered", stats.refused), ("avoided", stats.avoided)];
        family(page, "throttlekit_outbound_refusals", "Refusals, by outcome", by("outcome", refusals))?;
        let retries = [([upstream], stats.retried)];
        family(page, "throttlekit_outbound_retries", "Retries of refused calls", retries.into_iter())?;
        waits(page, upstream, &stats)?;

        let lowest = |of: fn(&KeyLimits) -> Option<u64>| stats.keys.iter().filter_map(of).min();
        let units = |requests, tokens| {
            [([upstream, ("unit", "requests")], requests), ([upstream, ("unit", "tokens")], tokens)]
        };
        let limits = units(lowest(|key| key.requests_per_minute), lowest(|key| key.tokens_per_minute));
        gauges(page, "throttlekit_outbound_limit", "Lowest learned limit by the minute", limits)?;
        let left = |quota: Option<Quota>| quota.and_then(|quota| quota.remaining);
        let requests_left = stats.keys.iter().filter_map(|key| left(key.requests)).min();
        let tokens_left = stats.keys.iter().filter_map(|key| left(key.tokens)).min();
        let remaining = units(requests_left, tokens_left);
        gauges(page, "throttlekit_outbound_remaining", "Fewest units left by a response", remaining)
    }
}

/// Writes gauges; one without a value is left out.
fn gauges<'a, const LABELS: usize>(
    page: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'a str, &'a str); LABELS], Option<u64>)>,
) -> fmt::Result {
    let mut metric = page.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        if let Some(value) = value {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn waits(page: &mut DescriptorEncoder<'_>, upstream: (&str, &str), stats: &OutboundStats) -> fmt::Result {
    let buckets: Vec<(f64, u64)> = stats
        .waits()
        .map(|(bound, calls)| (bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64()), calls))
        .collect();
    let calls = buckets.iter().map(|(_, calls)| calls).sum();
    let (name, help) = ("throttlekit_outbound_wait_seconds", "Waits of admitted calls");
    let mut metric = page.encode_descriptor(name, help, None, MetricType::Histogram)?;
    let labels = [upstream];
    let mut family = metric.encode_family(&labels)?;
    family.encode_histogram::<[(&str, &str); 0]>(stats.waited.as_secs_f64(), calls, &buckets, None)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use throttlekit::{Limiter, Rate};

    use super::*;

    #[test]
    fn a_page_has_calls_waits_and_limits() {
        let limiter = Limiter::new(Rate::per_minute(60)).expect("a limiter");
        let outbound = Outbound::limited_by("openai", limiter).build().expect("an upstream");
        let response = http::Response::builder().status(429).header("x-ratelimit-limit-requests", "30");
        let response = response.header("x-ratelimit-remaining-requests", "0").body(()).expect("a response");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let mut permit = runtime.block_on(outbound.until_ready("key")).expect("ready");
        permit.observe(&response.into_parts().0);
        permit.dropped();
        let (mut registry, mut page) = (Registry::default(), String::new());
        register_outbound(&mut registry, &outbound);
        encode(&mut page, &registry).expect("a page");
        for line in [
            r#"throttlekit_outbound_calls_total{upstream="openai",outcome="admitted"} 1"#,
            r#"throttlekit_outbound_refusals_total{upstream="openai",outcome="suffered"} 1"#,
            r#"throttlekit_outbound_wait_seconds_count{upstream="openai"} 1"#,
            r#"throttlekit_outbound_limit{upstream="openai",unit="requests"} 30"#,
            r#"throttlekit_outbound_remaining{upstream="openai",unit="requests"} 0"#,
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
