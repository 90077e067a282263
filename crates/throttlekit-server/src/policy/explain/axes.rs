//! The other axes.

use super::super::model::{ConcurrencySpec, CostSpec, EstimatorSpec, FairSpec, Period, PriceSpec, Scope};
use super::super::span::Span;
use super::LISTED_MAX;
use super::format::{count, each, list, some, whom, zone};

pub(super) fn cost(cost: &CostSpec) -> String {
    let when = match cost.per {
        Period::Span(span) => format!("in each window of {span}"),
        per @ Period::Calendar(_) => {
            format!("{} from midnight at {}", each(per), zone(cost.utc_offset_minutes))
        }
    };
    format!(
        "{} {when} {}, counted as they are used: the debit that crosses the edge still passes and counts in full, so a window can \
         end one largest debit less one above {}.",
        some(cost.budget, "token"),
        whom(cost.by),
        count(cost.budget)
    )
}

pub(super) fn concurrency(slots: &ConcurrencySpec) -> String {
    let whose = match slots.scope {
        Scope::Instance => "in each server, all keys together",
        Scope::InstanceKey => "for each key in each server",
        Scope::Key => "for each key over all servers, counted on the store",
        Scope::Fleet => "over all servers, all keys together",
    };
    let calls = some(slots.limit.into(), "call");
    let silent = Span(slots.slot_lease());
    let ceiling = slots.adaptive.as_ref().map_or(String::new(), |adaptive| {
        let by = match adaptive.algorithm {
            EstimatorSpec::Gradient => "as latency rises and falls",
            EstimatorSpec::Aimd => "up by one, and down when work is dropped",
        };
        format!(
            " to begin with, and then between {} and {} {by},",
            count(adaptive.min.into()),
            count(adaptive.max.into())
        )
    });
    format!(
        "At most {calls} at a time{ceiling} {whose}. A client that is silent for {silent} loses its slot."
    )
}

pub(super) fn fair(fair: &FairSpec) -> String {
    let units = some(fair.limit, "unit");
    let regions = if fair.regions { " and between regions" } else { "" };
    let named: Vec<String> = fair
        .weights
        .iter()
        .take(LISTED_MAX)
        .map(|(key, weight)| format!("`{key}` weighs {weight}"))
        .collect();
    let more = fair.weights.len().saturating_sub(LISTED_MAX) as u64;
    let more = if more > 0 { format!(", {} more have weights", count(more)) } else { String::new() };
    let others = if named.is_empty() {
        "all weigh the same".into()
    } else {
        format!("{}{more}, all others 1", list(named, ", "))
    };
    format!(
        "All keys together have {units} in each window of {}, shared by weight{regions}: {others}. Whoever wants its share gets it; \
         what others leave may be borrowed.",
        fair.per
    )
}

pub(super) fn price(price: &PriceSpec) -> String {
    let parts = [(price.rate, ""), (price.cost, " a token"), (price.hold, " a second held")];
    let parts: Vec<String> =
        parts.iter().filter(|(price, _)| *price != 0.0).map(|(price, of)| format!("{price}{of}")).collect();
    if parts.is_empty() {
        return "Every call is worth its price, which is 0.".into();
    }
    format!(
        "A call that is worth less than {} is turned away before anything is charged.",
        list(parts, " plus ")
    )
}
