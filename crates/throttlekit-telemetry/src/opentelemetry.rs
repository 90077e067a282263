//! The counters and histograms as OpenTelemetry metrics, and span attributes of a decision.
//!
//! Uses only the API: the program chooses the SDK and the exporter.
//!
//! | instrument | attributes | counts |
//! |---|---|---|
//! | `throttlekit.decisions` | `throttlekit.policy`, `throttlekit.outcome` | decisions |
//! | `throttlekit.denied_by_axis` | `throttlekit.policy`, `throttlekit.binding_axis` | denials by the axis that denied, `none` if none is known |
//! | `throttlekit.policy_denied` | `throttlekit.policy` | denials by the price |
//! | `throttlekit.guarantees` | `throttlekit.policy`, `throttlekit.guarantee` | decisions by guarantee |
//! | `throttlekit.events_lost` | | events that did not reach subscribers |
//! | `throttlekit.subscribers_removed` | | subscribers removed after a panic |
//!
//! | `throttlekit.cost` | `throttlekit.policy` | histogram: units per call |
//! | `throttlekit.retry_after` | `throttlekit.policy` | histogram: waits that denials reported, in seconds, if known |
//!
//! The counters are observable: read when the SDK collects, so they cost a decision nothing, and they are exact.
//! OpenTelemetry has no observable histogram: [`histograms`] returns a subscriber that records them on the thread of the
//! telemetry, without the events that were lost. There
//! are at most [`TelemetryBuilder::policies_max`](crate::TelemetryBuilder::policies_max) policies and one more. A key is never an
//! attribute.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use throttlekit::Axis;
use throttlekit::observe::Event;

use crate::histogram::boundaries;
use crate::{Attributes, Counts, PolicyCounts, Subscriber};

/// Returns the span attributes of a decision: [`Attributes`] under their names. No others, and never the key.
///
/// `throttlekit.binding_axis` is present only if an axis denied, and `throttlekit.retry_after_ms` only if the wait is a
/// known duration. Numbers above 2⁶³−1 are reported as that.
pub fn attributes(of: impl Into<Attributes>) -> impl IntoIterator<Item = KeyValue> {
    let of = of.into();
    let number =
        |name: &'static str, value: u64| KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX));
    [
        Some(KeyValue::new(Attributes::ALLOWED, of.allowed)),
        Some(number(Attributes::LIMIT, of.limit)),
        Some(number(Attributes::REMAINING, of.remaining)),
        of.retry_after_ms.map(|wait| number(Attributes::RETRY_AFTER_MS, wait)),
        of.binding_axis.map(|axis| KeyValue::new(Attributes::BINDING_AXIS, axis.label())),
        of.limit_name.map(|name| KeyValue::new(Attributes::LIMIT_NAME, name.as_str())),
        Some(KeyValue::new(Attributes::GUARANTEE, of.guarantee.label())),
    ]
    .into_iter()
    .flatten()
}

/// Registers the counters with this meter, which reads them whenever it collects.
pub fn register(meter: &Meter, counts: &Counts) {
    let decisions = |each: &Observed<'_>, policy: &PolicyCounts| {
        each.with("throttlekit.outcome", policy, policy.by_outcome());
    };
    by_policy(meter, counts, "throttlekit.decisions", "Decisions, by outcome", decisions);
    let denied = |each: &Observed<'_>, policy: &PolicyCounts| {
        each.with(Attributes::BINDING_AXIS, policy, policy.by_axis());
    };
    by_policy(meter, counts, "throttlekit.denied_by_axis", "Denials, by the axis that denied", denied);
    let priced = |each: &Observed<'_>, policy: &PolicyCounts| {
        each.0.observe(policy.denied_by(Axis::Price), &[policy_of(policy)]);
    };
    by_policy(meter, counts, "throttlekit.policy_denied", "Denials by the price", priced);
    let worth = |each: &Observed<'_>, policy: &PolicyCounts| {
        each.with(Attributes::GUARANTEE, policy, policy.by_guarantee());
    };
    by_policy(meter, counts, "throttlekit.guarantees", "Decisions, by guarantee", worth);

    let lost = "Events that subscribers did not receive";
    single(meter, counts, "throttlekit.events_lost", lost, Counts::events_lost);
    let removed = "Subscribers removed after a panic";
    single(meter, counts, "throttlekit.subscribers_removed", removed, Counts::subscribers_removed);
}

/// Returns a subscriber that records the histograms with this meter. The number of policies is bounded only by the
/// SDK's cardinality limit.
pub fn histograms(meter: &Meter) -> impl Subscriber + use<> {
    let [costs, waits] = boundaries();
    let cost = meter.u64_histogram("throttlekit.cost").with_description("Units per call");
    let cost = cost.with_boundaries(costs).build();
    let wait = meter.f64_histogram("throttlekit.retry_after").with_unit("s");
    let wait = wait.with_description("Waits that denials reported").with_boundaries(waits).build();
    move |event: &Event<'_>| {
        let policy = [KeyValue::new(Attributes::POLICY, event.policy.to_owned())];
        cost.record(event.cost, &policy);
        if let (false, Some(after)) = (event.decision.allowed, event.decision.retry_after.wait()) {
            wait.record(after.as_secs_f64(), &policy);
        }
    }
}

/// The values of an instrument while it is read.
struct Observed<'a>(&'a dyn AsyncInstrument<u64>);

impl Observed<'_> {
    /// Reports counts by policy and one more attribute.
    fn with(
        &self,
        name: &'static str,
        policy: &PolicyCounts,
        counts: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        for (value, count) in counts {
            self.0.observe(count, &[policy_of(policy), KeyValue::new(name, value)]);
        }
    }
}

fn policy_of(policy: &PolicyCounts) -> KeyValue {
    KeyValue::new(Attributes::POLICY, policy.policy().to_owned())
}

fn by_policy(
    meter: &Meter,
    counts: &Counts,
    name: &'static str,
    help: &'static str,
    observe: impl Fn(&Observed<'_>, &PolicyCounts) + Send + Sync + 'static,
) {
    let counts = counts.clone();
    let read = move |instrument: &dyn AsyncInstrument<u64>| {
        for policy in counts.policies() {
            observe(&Observed(instrument), &policy);
        }
    };
    meter.u64_observable_counter(name).with_description(help).with_callback(read).build();
}

fn single(meter: &Meter, counts: &Counts, name: &'static str, help: &'static str, count: fn(&Counts) -> u64) {
    let counts = counts.clone();
    let read = move |instrument: &dyn AsyncInstrument<u64>| instrument.observe(count(&counts), &[]);
    meter.u64_observable_counter(name).with_description(help).with_callback(read).build();
}
