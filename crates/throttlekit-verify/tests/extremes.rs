//! The largest and smallest of everything at once: no arithmetic overflows, and the responses stay sane.

use std::time::Duration;

use throttlekit_core::rate::word::{GcraWord, WORD_MAX, WORDS_END, WindowWord, WordRule};
use throttlekit_core::rate::{Cadence, Limit, Rate, Rule, SlidingWindow, State, UNITS_MAX, Weekday};
use throttlekit_core::{Cost, Decision, Retry, Timestamp};

const CENTURY: Duration = Duration::from_secs(100 * 366 * 86_400);
const INSTANTS: [u64; 6] = [0, 1, 1_700_000_000_000_000_000, 1 << 63, u64::MAX - 1, u64::MAX];

/// Every rule at the ends of its ranges.
fn limits() -> Vec<Limit> {
    let mut limits = Vec::new();
    for units in [1, 3, UNITS_MAX] {
        for period in [Duration::from_nanos(1), Duration::from_nanos(7), CENTURY] {
            let rate = Rate::per(units, period);
            let bursts = [1, UNITS_MAX].map(|burst| Limit::gcra(rate.burst(burst)));
            let shapers = [Duration::ZERO, CENTURY].map(|wait| Limit::leaky_bucket(rate, wait));
            let buckets = [1, 7, 1_000].map(|n| SlidingWindow::new(units, period, n).map(Limit::from));
            let anchors = [0, 5, u64::MAX].map(|anchor| {
                Limit::quota(units, Cadence::Every { length: period, anchor: Timestamp::from_nanos(anchor) })
            });
            let all = bursts.into_iter().chain(shapers).chain(buckets).chain(anchors);
            limits.extend(all.chain([Limit::sliding_log(units, period)]).flatten());
        }
        for utc_offset_minutes in [-840, 0, 840] {
            let week = Cadence::Week { starts_on: Weekday::Sunday, utc_offset_minutes };
            let cadences = [Cadence::Day { utc_offset_minutes }, week, Cadence::Month { utc_offset_minutes }];
            limits.extend(cadences.into_iter().flat_map(|cadence| Limit::quota(units, cadence)));
        }
    }
    limits
}

fn is_sane(decision: &Decision, cost: Cost, limit: &Limit) -> bool {
    let never = decision.retry_after == Retry::Never;
    is_sane_past_the_end(decision, limit) && never == (cost > decision.limit)
}

/// Past the end of the representable range no wait helps.
fn is_sane_past_the_end(decision: &Decision, limit: &Limit) -> bool {
    let never = decision.retry_after == Retry::Never;
    decision.limit == limit.units()
        && decision.remaining <= decision.limit
        && !(never && decision.allowed)
        // A window that ends past the end of time is reported to end with it.
        && (never || decision.allowed || decision.retry_after != Retry::Now || decision.reset_at == Timestamp::MAX)
}

#[test]
fn no_rule_overflows_anywhere_between_the_epoch_and_the_end_of_time() {
    let limits = limits();
    assert!(limits.len() > 70, "{} limits", limits.len());
    for limit in limits {
        let costs = [0, 1, limit.units(), limit.units() + 1, u64::MAX];
        let (mut state, mut other) = (State::default(), State::default());
        for now in INSTANTS.into_iter().chain(INSTANTS.into_iter().rev()).map(Timestamp::from_nanos) {
            for cost in costs {
                let decision = limit.check(&mut state, cost, now);
                assert!(is_sane(&decision, cost, &limit), "{limit:?} {cost} {now} {decision:?}");
                limit.peek(&state, now);
                limit.forecast(&state, cost, now);
                limit.idle_at(&state);
            }
            limit.join(&mut other, &state);
            limit.decide(&other, 1, now);
        }
    }
}

#[test]
fn no_packed_state_overflows_past_the_end_of_its_range() {
    let step_all = |rule: &dyn WordRule, limit: &Limit| {
        let mut word = 0;
        for now in INSTANTS.into_iter().chain(INSTANTS.into_iter().rev()).map(Timestamp::from_nanos) {
            for cost in [0, 1, limit.units(), limit.units() + 1, u64::MAX] {
                let decision = rule.decide(word, cost, now);
                let sane = |decision: &Decision| {
                    if now < WORDS_END {
                        is_sane(decision, cost, limit)
                    } else {
                        is_sane_past_the_end(decision, limit)
                    }
                };
                assert!(sane(&decision), "{limit:?} {cost} {now} {decision:?}");
                let next = rule.next(word, rule.floor(now), cost);
                assert_eq!(next.is_some(), decision.allowed, "{limit:?} {cost} {now}");
                if let Some(next) = next.filter(|_| cost > 0) {
                    assert!(next >= word, "{limit:?}: the word shrank");
                    word = next;
                }
                let (mark, owed) = (rule.mark(word, now), rule.owe(word, cost, now));
                assert!((word..=WORD_MAX).contains(&owed), "{limit:?} {cost} {now}: {word} owed {owed}");
                assert!(rule.refund(owed, mark, cost, now) <= owed, "{limit:?}: a refund raised the word");
                assert!(sane(&rule.decide(owed, cost, now)), "{limit:?} {cost} {now} in debt");
                rule.peek(owed, now);
                rule.forecast(owed, cost, now);
                assert!(
                    rule.next(owed | (WORD_MAX + 1), rule.floor(now), cost).is_none(),
                    "{limit:?}: held, and yet allowed"
                );
            }
        }
    };
    let mut words = 0;
    for limit in limits() {
        let made: Option<Box<dyn WordRule>> = match &limit {
            Limit::Gcra(rule) => GcraWord::new(rule).map(|word| Box::new(word) as _),
            Limit::Window(rule) => WindowWord::new(rule).map(|word| Box::new(word) as _),
            _ => None,
        };
        if let Some(word) = made {
            words += 1;
            step_all(&*word, &limit);
        }
    }
    assert!(words > 20, "{words} word forms");
}
