//! The bugs of stores in metering: budgets that are exceeded incorrectly, and debits that count twice.

use std::num::NonZeroU32;
use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit::store::{Charge, Debit, Debited, StoreError};
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Limit, Settle, State};

use super::reference::CoreStates;
use super::seeded::StoreBug;

/// Decides a debit as a store with this bug does.
pub(super) fn debit(
    known: &mut CoreStates,
    bug: StoreBug,
    debit: &Debit<'_>,
    now: Timestamp,
) -> Result<Debited, StoreError> {
    let stream = (debit.charge.key.to_owned(), debit.id.stream);
    match bug {
        StoreBug::NamesIgnored => drop(known.debits.remove(&stream)),
        StoreBug::NamesEndWithTheWindow if window_is_over(known, debit, now) => {
            known.debits.remove(&stream);
        }
        StoreBug::NamesOfAllKeys => return known.debit_named(("any".into(), debit.id.stream), debit, now),
        StoreBug::NamesTooShort => {
            let remember = debit.remember.saturating_sub(Duration::from_micros(1));
            return known.debit(&Debit { remember, ..*debit }, now);
        }
        StoreBug::NamesTooLong => {
            let remember = debit.remembered() + Duration::from_micros(1);
            return known.debit_named_for(stream, debit, now + remember, now);
        }
        _ => {}
    }
    let answer = known.debit(debit, now);
    match (bug, &answer) {
        (StoreBug::RepeatCharged, Ok(Debited { repeated: true, .. }))
        | (StoreBug::StragglerCharged, Err(StoreError::Stale(_))) => known.charge(&debit.charge, now),
        (StoreBug::DenialUnnamed, Ok(debited)) if !debited.outcome.verdict.decision.allowed => {
            known.debits.remove(&stream);
        }
        _ => {}
    }
    answer
}

fn window_is_over(known: &CoreStates, debit: &Debit<'_>, now: Timestamp) -> bool {
    let limit = debit.charge.form.limit();
    let last = known.debits.get(&(debit.charge.key.to_owned(), debit.id.stream));
    matches!(limit, Limit::Window(_))
        && last.is_some_and(|last| last.outcome.marks[0] != limit.mark(&State::Fresh, now))
}

/// Returns the limit of a store with this bug.
pub(super) fn form(bug: StoreBug, form: &ScriptEncoding) -> Option<ScriptEncoding> {
    let Limit::Window(rule) = form.limit() else { return None };
    if !rule.is_budget() {
        return None;
    }
    // The share of a single node is the whole, not exceeded.
    let limit = match bug {
        StoreBug::CrossingRefused => form.limit().share(NonZeroU32::MIN)?,
        _ => return None,
    };
    ScriptEncoding::of(&limit).ok()
}

/// Counts a charge that exceeds its budget only up to the limit.
pub(super) fn stop_at_the_edge(known: &mut CoreStates, charge: &Charge<'_>) {
    let limit = charge.form.limit();
    if let (Limit::Window(rule), State::Count(count)) = (limit, known.entry(charge.key, limit))
        && rule.is_budget()
    {
        count.used = count.used.min(rule.units());
    }
}
