//! The other axes.

use super::super::model::{
    ConcurrencySpec, CostSpec, EstimatorSpec, FairSpec, LearnSpec, Period, PriceSpec, Scope, WaitSpec,
};
use super::super::span::Span;
use super::LISTED_MAX;
use super::format::{anchored, clocks, count, each, list, some, starting, whom_all};

pub(super) fn cost(cost: &CostSpec) -> String {
    let when = match cost.per {
        Period::Span(span) => format!("in each window of {span}{}", anchored(cost.anchor.as_deref())),
        per @ Period::Calendar(_) => {
            let (starting, clocks) = (starting(&cost.calendar()), clocks(&cost.calendar()));
            format!("{}{starting} from midnight {clocks}", each(per))
        }
        Period::Total(_) => "in all".into(),
    };
    let name = cost.name.as_ref().map_or(String::new(), |name| format!("Budget `{name}`: "));
    let what = if matches!(cost.per, Period::Total(_)) { "their sum" } else { "a window" };
    format!(
        "{name}{} {when} {}, debited as they are used: the debit that exceeds the budget is still allowed and \
         counts in full, so {what} can exceed {} by at most the largest debit minus one.",
        some(cost.budget, "token"),
        whom_all(&cost.by),
        count(cost.budget)
    )
}

pub(super) fn concurrency(slots: &ConcurrencySpec) -> String {
    let whose = match slots.scope {
        Scope::Instance => "in each server, all keys together",
        Scope::InstanceKey => "for each key in each server",
        Scope::Key => "for each key across all servers, counted on the store",
        Scope::Fleet => "across all servers, all keys together",
    };
    let calls = some(slots.limit.into(), "concurrent call");
    let silent = Span(slots.slot_lease());
    let ceiling = slots.adaptive.as_ref().map_or(String::new(), |adaptive| {
        let by = match adaptive.algorithm {
            EstimatorSpec::Gradient => "depending on latency",
            EstimatorSpec::Aimd => "(increased by one, decreased when work is dropped)",
        };
        format!(
            " initially, then between {} and {} {by},",
            count(adaptive.min.into()),
            count(adaptive.max.into())
        )
    });
    format!("At most {calls}{ceiling} {whose}. A slot is freed after {silent} without a heartbeat.")
}

pub(super) fn fair(fair: &FairSpec) -> String {
    let units = some(fair.limit, "unit");
    let regions = if fair.regions { " and between regions" } else { "" };
    let named: Vec<String> = fair
        .weights
        .iter()
        .take(LISTED_MAX)
        .map(|(key, weight)| format!("`{key}` has weight {weight}"))
        .collect();
    let more = fair.weights.len().saturating_sub(LISTED_MAX) as u64;
    let more = if more > 0 { format!(", {} more have weights", count(more)) } else { String::new() };
    let others = if named.is_empty() {
        "all weights are equal".into()
    } else {
        format!("{}{more}, all others 1", list(named, ", "))
    };
    format!(
        "All keys share {units} in each window of {}, by weight{regions}: {others}. Each key gets its share \
         when it needs it, and can borrow what others leave unused.",
        fair.per
    )
}

pub(super) fn price(price: &PriceSpec) -> String {
    let parts = [(price.rate, ""), (price.cost, " per token"), (price.hold, " per second held")];
    let parts: Vec<String> =
        parts.iter().filter(|(price, _)| *price != 0.0).map(|(price, of)| format!("{price}{of}")).collect();
    if parts.is_empty() {
        return "The price is 0, so it denies no call.".into();
    }
    format!("A call whose value is below {} is denied before anything is charged.", list(parts, " plus "))
}

pub(super) fn learn(learn: &LearnSpec) -> String {
    format!(
        "A call of Admit without a cost reserves what earlier calls of its key and class used: at most {} beyond \
         its input.",
        some(learn.tokens_max(), "token")
    )
}

pub(super) fn wait(wait: &WaitSpec) -> String {
    format!(
        "A call of Admit may wait up to {} until it is allowed, in order; at most {} wait in each server.",
        wait.max,
        some(wait.calls_max().into(), "call")
    )
}
