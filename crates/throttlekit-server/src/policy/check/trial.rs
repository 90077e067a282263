//! Tries each limit before it is applied: what would misbehave at run time is rejected on load.

use std::time::Duration;

use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::rate::{Rule, State, Timestamp};
use throttlekit::{Limit, Retry};

use super::super::model::OutageSpec;
use super::{At, Report, rates};

/// Instants at which limits are tried: the epoch, the present, shortly before a month ends, and late in this century.
const INSTANTS_MS: [u64; 4] = [0, 1_767_225_600_123, 1_772_323_199_999, 4_000_000_000_000];

/// Checks whether a store can keep the limit, and whether it behaves as limits do.
pub(super) fn try_out(at: &At, limit: &Limit, outage: OutageSpec, report: &mut Report) {
    if let Err(error) = ScriptEncoding::of(limit) {
        return report.error(at, rates::says(error));
    }
    if let Some(why) = INSTANTS_MS.into_iter().find_map(|ms| misbehaves(limit, Timestamp::from_millis(ms))) {
        return report.error(at, format!("limit failed its self-test: {why}; choose other numbers"));
    }
    if let OutageSpec::Local { nodes } = outage
        && limit.share(nodes).is_none()
    {
        let message = format!(
            "divided by {nodes} nodes, each share is less than one unit: while the store is unavailable, \
             nothing is allowed"
        );
        report.warning(at, message);
    }
}

/// Returns the reason why it is not a limit, for a key that was never seen before `now`.
fn misbehaves(limit: &Limit, now: Timestamp) -> Option<&'static str> {
    let (mut key, all) = (State::default(), limit.units());
    let fresh = limit.peek(&key, now);
    if !fresh.allowed || fresh.remaining == 0 || !limit.decide(&key, 1, now).allowed {
        return Some("a new key cannot spend one unit");
    }
    if !limit.decide(&key, all, now).allowed {
        return Some("a new key cannot spend the whole limit");
    }
    if limit.decide(&key, limit.cost_max() + 1, now).retry_after != Retry::Never {
        return Some("a cost above the limit has a retry time");
    }
    limit.charge(&mut key, all, now);
    let spent = limit.decide(&key, 1, now);
    let total = matches!(limit, Limit::Window(window) if window.is_total());
    let wait = match (spent.allowed, spent.retry_after) {
        (false, Retry::Never) if total => return None,
        (true, _) => return Some("it allows more than the limit"),
        (false, Retry::After(wait)) if wait > Duration::ZERO => wait,
        _ => return Some("spent units are never replenished"),
    };
    if !limit.decide(&key, 1, now + wait).allowed {
        return Some("it still denies at its reported retry time");
    }
    None
}

#[cfg(test)]
mod tests {
    use throttlekit::Rate;
    use throttlekit::rate::Cadence;

    use super::*;

    #[test]
    fn limits_of_every_kind_and_size_behave() {
        let (ms, century) = (Duration::from_millis(1), Duration::from_secs(100 * 365 * 86_400));
        let limits = [
            Limit::gcra(Rate::per_second(1)),
            Limit::gcra(Rate::per(7, Duration::from_secs(60)).burst(3)),
            Limit::gcra(Rate::per(1_000_001, Duration::from_secs(1)).burst(1)),
            Limit::token_bucket(1, Rate::per_second(1_000_000)),
            Limit::fixed_window(1, ms),
            Limit::fixed_window(throttlekit::rate::UNITS_MAX, century),
            Limit::quota(5, Cadence::Month { utc_offset_minutes: -840 }),
            Limit::quota(5, Cadence::Day { utc_offset_minutes: 840 }),
            Limit::sliding_window(3, ms),
            Limit::sliding_log(10_000, century),
            Limit::token_budget(throttlekit::rate::BUDGET_MAX, ms),
        ];
        for limit in limits {
            let limit = limit.unwrap();
            for at in INSTANTS_MS {
                assert_eq!(misbehaves(&limit, Timestamp::from_millis(at)), None, "{limit:?} at {at}");
            }
        }
    }
}
