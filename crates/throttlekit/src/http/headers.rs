//! Response headers that report the limit.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers: lists of structured fields (RFC
//! 9651). `X-RateLimit-*` is the older convention. All numbers describe one limit, the one that decided.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sfv::{Integer, KeyRef, ListSerializer, StringRef, key_ref};

use super::plan::{Terms, tighter};
use crate::{Cost, Decision, Retry};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LEGACY_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const LEGACY_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const LEGACY_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

const NANOS_A_SECOND: u128 = 1_000_000_000;
/// Number of windows of whole seconds that are tried to express a pace exactly.
const WINDOWS_TRIED: u128 = 60;

/// Greatest number that a structured field can hold: 15 digits.
const NUMBER_MAX: u64 = 999_999_999_999_999;

/// Headers that report the remaining units. `Retry-After` is sent with every denial that waiting can resolve, whatever
/// the style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderStyle {
    /// `RateLimit` and `RateLimit-Policy`, as the IETF drafts them.
    #[default]
    Standard,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, the last in seconds from now.
    Legacy,
    /// Both of them.
    Both,
    /// Neither.
    None,
}

/// Writes `decision` into `headers`, in the given style.
///
/// `inner` is the decision of an inner layer about the same request. The standard fields are lists and take one member
/// per limit; of the older ones there can be one set, and the tighter limit's stays.
pub(super) fn write(
    headers: &mut HeaderMap,
    style: HeaderStyle,
    terms: &Terms,
    decision: &Decision,
    inner: Option<&Decision>,
) {
    let reset_secs = reset_secs(terms, decision);
    if matches!(style, HeaderStyle::Standard | HeaderStyle::Both) {
        headers.append(RATE_LIMIT_POLICY, terms.policy());
        headers.append(RATE_LIMIT, left(&terms.name, decision.remaining, reset_secs));
    }
    let binds = inner.is_none_or(|inner| tighter(*inner, *decision) == *decision);
    if matches!(style, HeaderStyle::Legacy | HeaderStyle::Both) && binds {
        headers.insert(LEGACY_LIMIT, clamp(decision.limit).into());
        headers.insert(LEGACY_REMAINING, clamp(decision.remaining).into());
        match reset_secs {
            Some(secs) => headers.insert(LEGACY_RESET, clamp(secs).into()),
            None => headers.remove(LEGACY_RESET),
        };
    }
}

/// `"name";q=units;w=seconds`
pub(super) fn policy(name: &StringRef, units: Cost, period: Option<Duration>) -> HeaderValue {
    let quota = period.map(|period| quota(units, period));
    let (units, secs) = quota.map_or((units, None), |(units, secs)| (units, Some(secs)));
    field(name, [(key_ref("q"), Some(units)), (key_ref("w"), secs)])
}

/// Returns a quota and a window of whole seconds, whose ratio is the pace of `units` in each `period`: a client that
/// paces itself by them is as fast as it may be. Of windows from the period on, rounded up, the first in which whole
/// units come back; else the one that loses least to rounding down.
fn quota(units: Cost, period: Duration) -> (Cost, u64) {
    let period = period.as_nanos().max(1);
    let first = period.div_ceil(NANOS_A_SECOND);
    let in_window = |secs: u128| {
        let scaled = u128::from(units).saturating_mul(secs).saturating_mul(NANOS_A_SECOND);
        (secs, scaled / period, scaled.is_multiple_of(period))
    };
    let windows = || (first..first + WINDOWS_TRIED).map(in_window);
    let exact = windows().find(|(_, _, exact)| *exact);
    let best = exact.or_else(|| windows().reduce(|a, b| if b.1 * a.0 > a.1 * b.0 { b } else { a }));
    let (secs, units, _) = best.unwrap_or((first, u128::from(units), true));
    (u64::try_from(units).unwrap_or(u64::MAX), u64::try_from(secs).unwrap_or(u64::MAX))
}

/// `"name";r=units;t=seconds`
fn left(name: &StringRef, remaining: Cost, reset_secs: Option<u64>) -> HeaderValue {
    field(name, [(key_ref("r"), Some(remaining)), (key_ref("t"), reset_secs)])
}

/// Encodes a list of one item: a name with numbers.
fn field(name: &StringRef, numbers: [(&KeyRef, Option<u64>); 2]) -> HeaderValue {
    let mut list = ListSerializer::new();
    let mut item = list.bare_item(name);
    for (key, number) in numbers {
        if let Some(number) = number {
            let number = Integer::try_from(clamp(number)).expect("clamped to 15 digits");
            item = item.parameter(key, number);
        }
    }
    let text = list.finish().expect("the list has one member");
    HeaderValue::from_str(&text).expect("a structured field is printable ASCII")
}

/// Returns the seconds until there is more: for a denied request until it passes, so that `t` and `Retry-After` agree;
/// otherwise until all is back. `None` if no clock determines it.
fn reset_secs(terms: &Terms, decision: &Decision) -> Option<u64> {
    match decision.retry_after {
        Retry::After(wait) if !decision.allowed => Some(retry_secs(wait)),
        Retry::OnRelease => None,
        Retry::Now | Retry::After(_) | Retry::Never => Some(secs_ceil(terms.reset_in(decision.reset_at))),
    }
}

/// Returns the whole seconds to wait, for `Retry-After`: never early, and at least one.
pub(super) fn retry_secs(wait: Duration) -> u64 {
    clamp(secs_ceil(wait).max(1))
}

fn secs_ceil(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

fn clamp(number: u64) -> u64 {
    number.min(NUMBER_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{BareItem, List, ListEntry, Parser};

    use super::*;
    use crate::Timestamp;
    use crate::http::Plan;
    use crate::http::tests::{FixedGate, allowed, denied};

    fn written(style: HeaderStyle, name: &str, decision: &Decision) -> HeaderMap {
        let gate = FixedGate::answers(*decision);
        let plan = Plan::new(name, gate).unwrap();
        let mut headers = HeaderMap::new();
        write(&mut headers, style, plan.terms(), decision, None);
        headers
    }

    fn reads(headers: &HeaderMap, name: &HeaderName) -> String {
        headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned()
    }

    #[test]
    fn the_standard_fields_read_as_the_draft_writes_them() {
        let decision = Decision { reset_at: Timestamp::from_millis(3_001), ..allowed(7) };
        let headers = written(HeaderStyle::Standard, "burst", &decision);
        assert_eq!(reads(&headers, &RATE_LIMIT), r#""burst";r=7;t=3"#);
        assert_eq!(reads(&headers, &RATE_LIMIT_POLICY), r#""burst";q=10;w=60"#);
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn quota_and_window_tell_the_pace() {
        let millis = Duration::from_millis;
        for ((units, period), expected) in [
            ((60, Duration::from_secs(60)), (60, 60)),
            ((1, millis(200)), (5, 1)),
            ((3, millis(600)), (5, 1)),
            ((1, millis(1_500)), (2, 3)),
            ((10, millis(500)), (20, 1)),
            ((7, Duration::from_secs(86_400 * 31)), (7, 86_400 * 31)),
            ((1, Duration::from_nanos(1)), (1_000_000_000, 1)),
            ((1, Duration::ZERO), (1_000_000_000, 1)),
        ] {
            assert_eq!(quota(units, period), expected, "{units} in {period:?}");
        }
        assert_eq!(quota(1, Duration::new(1, 1)), (60, 61), "never more than the pace, and little less");
        assert!(quota(u64::MAX, Duration::MAX).0 > 0);
    }

    #[test]
    fn the_older_fields_tell_the_same_numbers() {
        let decision = Decision { reset_at: Timestamp::from_millis(3_001), ..allowed(7) };
        let headers = written(HeaderStyle::Legacy, "burst", &decision);
        let fields = [LEGACY_LIMIT, LEGACY_REMAINING, LEGACY_RESET];
        assert_eq!(fields.map(|name| reads(&headers, &name)), ["10", "7", "3"]);
        assert_eq!(headers.len(), 3);
    }

    #[test]
    fn on_a_denial_the_reset_is_when_the_request_passes() {
        let decision = denied(Retry::After(Duration::from_millis(1_001)));
        let headers = written(HeaderStyle::Both, "burst", &decision);
        assert_eq!(reads(&headers, &RATE_LIMIT), r#""burst";r=0;t=2"#);
        assert_eq!(reads(&headers, &LEGACY_RESET), "2");
    }

    #[test]
    fn the_turn_of_a_shaped_request_is_not_its_reset() {
        let turn = Retry::After(Duration::from_secs(9));
        let shaped = Decision { retry_after: turn, reset_at: Timestamp::from_millis(3_001), ..allowed(7) };
        let headers = written(HeaderStyle::Standard, "shaper", &shaped);
        assert_eq!(reads(&headers, &RATE_LIMIT), r#""shaper";r=7;t=3"#);
    }

    #[test]
    fn a_reset_is_never_told_as_more_than_the_period() {
        let decision = Decision { reset_at: Timestamp::MAX, ..allowed(7) };
        let headers = written(HeaderStyle::Standard, "burst", &decision);
        assert_eq!(reads(&headers, &RATE_LIMIT), r#""burst";r=7;t=60"#);
    }

    #[test]
    fn of_two_layers_the_older_fields_show_the_tighter_limit() {
        let plan = Plan::new("outer", FixedGate::answers(allowed(5))).unwrap();
        for (inner, shown) in [(allowed(4), "4"), (allowed(6), "5"), (denied(Retry::OnRelease), "0")] {
            let mut headers = HeaderMap::new();
            headers.insert(LEGACY_REMAINING, inner.remaining.into());
            write(&mut headers, HeaderStyle::Legacy, plan.terms(), &allowed(5), Some(&inner));
            assert_eq!(reads(&headers, &LEGACY_REMAINING), shown);
        }
    }

    fn retry() -> impl Strategy<Value = Retry> {
        prop_oneof![
            Just(Retry::Now),
            Just(Retry::OnRelease),
            Just(Retry::Never),
            any::<(u64, u32)>()
                .prop_map(|(secs, nanos)| { Retry::After(Duration::new(secs, nanos % 1_000_000_000)) }),
        ]
    }

    prop_compose! {
        fn decision()(
            allowed in any::<bool>(), limit in any::<u64>(), remaining in any::<u64>(),
            reset_at in any::<u64>().prop_map(Timestamp::from_nanos), retry_after in retry(),
        ) -> Decision {
            Decision { allowed, limit, remaining, reset_at, retry_after }
        }
    }

    proptest! {
        #[test]
        fn the_standard_fields_always_parse(name in "[ -~]{0,20}", decision in decision()) {
            let headers = written(HeaderStyle::Both, &name, &decision);
            for (field, number) in [(RATE_LIMIT, "r"), (RATE_LIMIT_POLICY, "q")] {
                let list: List = Parser::new(headers[&field].as_bytes()).parse().unwrap();
                let [ListEntry::Item(item)] = &list[..] else { panic!("{list:?}") };
                prop_assert!(matches!(&item.bare_item, BareItem::String(read) if read.as_str() == name));
                prop_assert!(matches!(&item.params[number], BareItem::Integer(n) if *n >= Integer::ZERO));
            }
        }

        #[test]
        fn names_that_no_header_carries_are_refused(name in "\\PC*") {
            let fits = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            prop_assert_eq!(Plan::new(&name, FixedGate::answers(allowed(1))).is_ok(), fits);
        }
    }
}
