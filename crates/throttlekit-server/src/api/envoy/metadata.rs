//! Dynamic metadata for Envoy's access logs and filters: the policy that decided, its axis and its guarantee.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use throttlekit::{Guarantee, Retry};

use super::request::{Charge, Judged};
use super::response::Told;
use crate::engine::Answered;

/// Creates the metadata: the binding response, and all of them in the order of the descriptors. Returns `None` if no
/// descriptor was counted or refused.
pub(super) fn of(binding: Option<(&str, &Answered)>, told: &[Told<'_>]) -> Option<Struct> {
    let refused = told.iter().any(|told| matches!(told.judged, Judged::Refused));
    let mut fields = binding.map_or_else(Vec::new, |(policy, answer)| fields(policy, answer));
    if refused {
        fields.push(("refused", Kind::BoolValue(true)));
    }
    if fields.is_empty() {
        return None;
    }
    let each = told.iter().map(|told| Kind::StructValue(descriptor(told)).into());
    fields.push(("descriptors", Kind::ListValue(ListValue { values: each.collect() })));
    Some(structure(fields))
}

fn descriptor(told: &Told<'_>) -> Struct {
    match (told.answered(), told.charge) {
        (Some((policy, answer)), _) => structure(fields(policy, answer)),
        (None, Charge::Unlimited) => structure(vec![("unlimited", Kind::BoolValue(true))]),
        (None, _) if matches!(told.judged, Judged::Refused) => {
            structure(vec![("refused", Kind::BoolValue(true))])
        }
        (None, _) => structure(vec![("unlimited", Kind::BoolValue(false))]),
    }
}

/// Omits fields without a value: a log shows `-` for them.
fn fields(policy: &str, answer: &Answered) -> Vec<(&'static str, Kind)> {
    let decision = &answer.decision;
    let mut fields = vec![
        ("policy", text(policy)),
        ("allowed", Kind::BoolValue(decision.allowed)),
        ("shadow_denied", Kind::BoolValue(answer.shadow_denied)),
        ("guarantee", text(answer.guarantee.label())),
    ];
    if decision.limit != u64::MAX {
        fields.push(("limit", number(decision.limit)));
        fields.push(("remaining", number(decision.remaining)));
    }
    fields.extend(answer.binding_axis.map(|axis| ("binding_axis", text(axis.label()))));
    fields.extend(answer.limit_name.map(|name| ("limit_name", text(name.as_str()))));
    match answer.guarantee {
        Guarantee::Exact => fields.push(("overshoot_bound", number(0))),
        Guarantee::Bounded(units) => fields.push(("overshoot_bound", number(units))),
        Guarantee::Local | Guarantee::Open | Guarantee::Closed => {}
    }
    if !decision.allowed {
        let retry = match decision.retry_after {
            Retry::Now => "now",
            Retry::After(_) => "after",
            Retry::OnRelease => "on_release",
            Retry::Never => "never",
        };
        fields.push(("retry", text(retry)));
        fields.extend(decision.retry_after.wait_ms().map(|wait| ("retry_after_ms", number(wait))));
    }
    fields
}

fn structure(fields: Vec<(&str, Kind)>) -> Struct {
    Struct { fields: fields.into_iter().map(|(name, kind)| (name.to_owned(), Value::from(kind))).collect() }
}

fn text(text: &str) -> Kind {
    Kind::StringValue(text.to_owned())
}

/// Converts a number. Numbers in a `Struct` are floats: exact up to 2⁵³.
fn number(number: u64) -> Kind {
    Kind::NumberValue(number as f64)
}
