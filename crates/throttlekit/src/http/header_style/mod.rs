//! Response headers that report the limit.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers: lists of structured fields (RFC
//! 9651). `X-RateLimit-*` is the older convention. Two providers of language models have headers of their own, which
//! their client libraries read.

mod provider;

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sfv::{Integer, KeyRef, ListSerializer, StringRef, key_ref};

use crate::admit::Axis;
use crate::hash::random_u64;
use crate::{Decision, Retry};

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
#[non_exhaustive]
pub enum HeaderStyle {
    /// `RateLimit` and `RateLimit-Policy`, as the IETF drafts them.
    #[default]
    Standard,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, the last in seconds from now.
    Legacy,
    /// Both of them.
    Both,
    /// Those of OpenAI: `x-ratelimit-limit-requests`, `x-ratelimit-remaining-requests` and
    /// `x-ratelimit-reset-requests`, the last as a duration such as `6m0s`; the same with `-tokens` for the cost axis and
    /// the fair share.
    OpenAi,
    /// Those of Anthropic: `anthropic-ratelimit-requests-limit`, `anthropic-ratelimit-requests-remaining` and
    /// `anthropic-ratelimit-requests-reset`, the last as a time in RFC 3339; the same with `tokens` for the cost axis
    /// and the fair share.
    Anthropic,
    /// None.
    None,
}

/// One axis as reported to clients.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) axis: Axis,
    pub(super) decision: Decision,
    pub(super) name: Arc<sfv::String>,
    /// The member of `RateLimit-Policy`.
    pub(super) policy: HeaderValue,
    /// Time until all units are back: never more than the limit's whole period.
    pub(super) reset_in: Duration,
}

/// Returns the decision that leaves less, of two about one request.
///
/// Clients see that one: the numbers of a limit that did not bind would mislead them.
pub(super) fn tighter(one: Decision, other: Decision) -> Decision {
    let room = |decision: &Decision| (decision.allowed, decision.remaining);
    if room(&one) < room(&other) { one } else { other }
}

/// Writes `reported` into `headers`, in the given style.
///
/// `inner` is the decision of an inner layer about the same request. The standard fields are lists and take one member
/// per axis; of the older ones there can be one set, and the tighter limit's stays.
pub(super) fn write(
    headers: &mut HeaderMap,
    style: HeaderStyle,
    reported: &[Reported],
    inner: Option<&Decision>,
) {
    if matches!(style, HeaderStyle::Standard | HeaderStyle::Both) {
        for axis in reported {
            headers.append(RATE_LIMIT_POLICY, axis.policy.clone());
            headers.append(RATE_LIMIT, left(&axis.name, axis.decision.remaining, axis.reset_secs()));
        }
    }
    match style {
        HeaderStyle::Legacy | HeaderStyle::Both => write_legacy(headers, reported, inner),
        HeaderStyle::OpenAi => provider::write_openai(headers, reported),
        HeaderStyle::Anthropic => provider::write_anthropic(headers, reported),
        HeaderStyle::Standard | HeaderStyle::None => {}
    }
}

fn write_legacy(headers: &mut HeaderMap, reported: &[Reported], inner: Option<&Decision>) {
    let Some(tightest) = tightest(reported) else { return };
    let decision = tightest.decision;
    if inner.is_some_and(|inner| tighter(*inner, decision) != decision) {
        return;
    }
    headers.insert(LEGACY_LIMIT, clamp(decision.limit).into());
    headers.insert(LEGACY_REMAINING, clamp(decision.remaining).into());
    match tightest.reset_secs() {
        Some(secs) => headers.insert(LEGACY_RESET, clamp(secs).into()),
        None => headers.remove(LEGACY_RESET),
    };
}

/// Returns the axis that denied, or the one that leaves least.
pub(super) fn tightest<'a>(reported: impl IntoIterator<Item = &'a Reported>) -> Option<&'a Reported> {
    reported.into_iter().min_by_key(|axis| (axis.decision.allowed, axis.decision.remaining))
}

/// `"name";q=units;w=seconds`
pub(super) fn policy_field(name: &StringRef, units: u64, period: Option<Duration>) -> HeaderValue {
    let quota = period.map(|period| quota(units, period));
    let (units, secs) = quota.map_or((units, None), |(units, secs)| (units, Some(secs)));
    field(name, [(key_ref("q"), Some(units)), (key_ref("w"), secs)])
}

/// Returns a quota and a window of whole seconds, whose ratio is the pace of `units` in each `period`: a client that
/// paces itself by them is as fast as it may be. Of windows from the period on, rounded up, the first in which whole
/// units come back; else the one that loses least to rounding down.
fn quota(units: u64, period: Duration) -> (u64, u64) {
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
fn left(name: &StringRef, remaining: u64, reset_secs: Option<u64>) -> HeaderValue {
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

impl Reported {
    /// Returns the time until there is more: for a denied request until it passes, so that `t` and `Retry-After` agree;
    /// otherwise until all is back. `None` if no clock determines it.
    fn reset(&self) -> Option<Duration> {
        match self.decision.retry_after {
            Retry::After(wait) if !self.decision.allowed => Some(wait),
            Retry::OnRelease => None,
            Retry::Now | Retry::After(_) | Retry::Never => Some(self.reset_in),
        }
    }

    /// The same in whole seconds, rounded up: at least one for a denied request that has to wait.
    fn reset_secs(&self) -> Option<u64> {
        let waits = !self.decision.allowed && matches!(self.decision.retry_after, Retry::After(_));
        self.reset().map(|reset| if waits { retry_secs(reset) } else { secs_ceil(reset) })
    }
}

/// Returns the whole seconds to wait, for `Retry-After`: never early, and at least one.
pub(super) fn retry_secs(wait: Duration) -> u64 {
    clamp(secs_ceil(wait).max(1))
}

/// Adds a random part of at most this fraction, so that clients that were denied together do not return together.
pub(super) fn jittered(secs: u64, fraction: f64) -> u64 {
    let spread = (secs as f64 * fraction) as u64;
    if spread == 0 { secs } else { clamp(secs.saturating_add(random_u64() % (spread.saturating_add(1)))) }
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
    use crate::admit::Axes;
    use crate::http::Plan;
    use crate::http::tests::{FixedGate, allowed, denied};
    use crate::rate::Timestamp;

    fn reported(name: &str, decision: &Decision) -> Vec<Reported> {
        let plan = Plan::new(name, FixedGate::answers(*decision)).unwrap();
        let mut axes = Axes::default();
        axes.record(Axis::Rate, *decision);
        plan.report(&axes)
    }

    fn written(style: HeaderStyle, name: &str, decision: &Decision) -> HeaderMap {
        let mut headers = HeaderMap::new();
        write(&mut headers, style, &reported(name, decision), None);
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
    fn a_reported_reset_never_exceeds_the_period() {
        let decision = Decision { reset_at: Timestamp::MAX, ..allowed(7) };
        let headers = written(HeaderStyle::Standard, "burst", &decision);
        assert_eq!(reads(&headers, &RATE_LIMIT), r#""burst";r=7;t=60"#);
    }

    #[test]
    fn of_two_layers_the_older_fields_show_the_tighter_limit() {
        let outer = reported("outer", &allowed(5));
        for (inner, shown) in [(allowed(4), "4"), (allowed(6), "5"), (denied(Retry::OnRelease), "0")] {
            let mut headers = HeaderMap::new();
            headers.insert(LEGACY_REMAINING, inner.remaining.into());
            write(&mut headers, HeaderStyle::Legacy, &outer, Some(&inner));
            assert_eq!(reads(&headers, &LEGACY_REMAINING), shown);
        }
    }

    #[test]
    fn jitter_is_never_early_and_at_most_the_fraction() {
        assert!((0..1_000).all(|_| (60..=66).contains(&jittered(60, 0.1))));
        assert!((0..1_000).any(|_| jittered(60, 0.1) != 60));
        for (secs, fraction) in [(9, 0.1), (60, 0.0), (1, 0.5)] {
            assert_eq!(jittered(secs, fraction), secs);
        }
        assert!((NUMBER_MAX / 2..=NUMBER_MAX).contains(&jittered(NUMBER_MAX / 2, 1.0)));
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
