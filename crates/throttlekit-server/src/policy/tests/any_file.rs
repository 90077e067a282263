//! Property tests of any file: what is written is read back, and nothing panics.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::option::of;
use proptest::prelude::*;

use super::*;

fn span() -> impl Strategy<Value = Span> {
    (1_u64..1_000_000_000_000).prop_map(|ms| Span(Duration::from_millis(ms)))
}

fn period() -> impl Strategy<Value = Period> {
    use CalendarPart::{Day, Month, Week};
    prop_oneof![
        span().prop_map(Period::Span),
        prop_oneof![Just(Day), Just(Week), Just(Month)].prop_map(Period::Calendar),
        Just(Period::Total(TotalPart::Total)),
    ]
}

/// Generates text, and text that looks like something else.
fn text() -> impl Strategy<Value = String> {
    let odd = [
        "", "~", "null", "true", "no", "1", "1e3", "0x1f", ".inf", "- a", "a: b", "# a", "&a", "*", "'",
        "\"", " a ",
    ];
    prop_oneof![
        3 => "[a-z]{1,8}",
        2 => "\\PC{0,20}",
        1 => "[ -~\\n]{0,20}",
        1 => proptest::sample::select(odd.to_vec()).prop_map(str::to_owned),
    ]
}

fn lease() -> impl Strategy<Value = LeaseSpec> {
    let mode = prop_oneof![Just(LeaseMode::Auto), Just(LeaseMode::Leased), Just(LeaseMode::CachedDeny)];
    (mode, of(any::<u64>()), of(span())).prop_map(|(mode, batch, hold)| LeaseSpec { mode, batch, hold })
}

fn rate() -> impl Strategy<Value = RateSpec> {
    let algorithm = prop_oneof![
        Just(Algorithm::Gcra),
        Just(Algorithm::TokenBucket),
        Just(Algorithm::FixedWindow),
        Just(Algorithm::SlidingWindow),
        Just(Algorithm::SlidingLog),
        Just(Algorithm::Quota),
    ];
    let numbers = (any::<u64>(), of(any::<u64>()), of(any::<u32>()), any::<i32>(), any::<u8>());
    (of(text()), algorithm, numbers, period(), of(lease())).prop_map(
        |(name, algorithm, (limit, burst, buckets, utc_offset_minutes, by), per, lease)| RateSpec {
            name,
            algorithm,
            limit,
            per,
            burst,
            buckets,
            early_retry: false,
            utc_offset_minutes,
            week_starts: None,
            month_starts: None,
            time_zone: None,
            anchor: None,
            by,
            lease,
        },
    )
}

fn cost() -> impl Strategy<Value = CostSpec> {
    let by = proptest::collection::vec(any::<u8>(), 0..4);
    (any::<u64>(), period(), any::<i32>(), by, of(text())).prop_map(
        |(budget, per, utc_offset_minutes, by, anchor)| CostSpec {
            name: anchor.clone(),
            budget,
            per,
            utc_offset_minutes,
            week_starts: Some(WeekdaySpec::Sunday),
            month_starts: Some(31),
            time_zone: anchor.clone(),
            anchor,
            by,
        },
    )
}

fn concurrency() -> impl Strategy<Value = ConcurrencySpec> {
    let scope =
        prop_oneof![Just(Scope::Instance), Just(Scope::InstanceKey), Just(Scope::Key), Just(Scope::Fleet)];
    let estimator = prop_oneof![Just(EstimatorSpec::Gradient), Just(EstimatorSpec::Aimd)];
    let adaptive = (any::<u32>(), any::<u32>(), estimator).prop_map(|(min, max, algorithm)| AdaptiveSpec {
        min,
        max,
        algorithm,
    });
    (any::<u32>(), scope, of(adaptive), of(span()))
        .prop_map(|(limit, scope, adaptive, lease_for)| ConcurrencySpec { limit, scope, adaptive, lease_for })
}

fn fair() -> impl Strategy<Value = FairSpec> {
    let weights = proptest::collection::btree_map(text(), any::<u32>(), 0..4);
    (any::<u64>(), span(), weights, any::<bool>(), of(0_usize..1 << 40)).prop_map(
        |(limit, per, weights, regions, tenants_max)| FairSpec { limit, per, weights, regions, tenants_max },
    )
}

fn outage() -> impl Strategy<Value = OutageSpec> {
    let local = any::<NonZeroU32>().prop_map(|nodes| OutageSpec::Local { nodes });
    prop_oneof![Just(OutageSpec::Closed), Just(OutageSpec::Open), local]
}

fn overridden() -> impl Strategy<Value = OverrideSpec> {
    (
        proptest::collection::vec(rate(), 0..2),
        proptest::collection::vec(cost(), 0..3),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(rate, cost, unlimited, deny)| OverrideSpec { rate, cost, unlimited, deny })
}

fn policy() -> impl Strategy<Value = PolicySpec> {
    let price = (0.0..1e9, 0.0..1e-3, any::<f64>().prop_filter("finite", |n| n.is_finite()))
        .prop_map(|(rate, cost, hold)| PriceSpec { rate, cost, hold });
    let fleet =
        (of(any::<u64>()), of(any::<u64>())).prop_map(|(lease_max, share)| FleetSpec { lease_max, share });
    let axes = (
        proptest::collection::vec(rate(), 0..3),
        proptest::collection::vec(cost(), 0..3),
        of(concurrency()),
        of(fair()),
    );
    let wait = (span(), of(any::<u32>())).prop_map(|(max, queue)| WaitSpec { max, queue });
    let learn = of(any::<u64>()).prop_map(|max| LearnSpec { max });
    let rest = (of(price), of(learn), of(fleet), of(wait), of(outage()), any::<[bool; 3]>());
    let overrides = proptest::collection::btree_map(text(), overridden(), 0..3);
    (of(text()), axes, rest, overrides).prop_map(
        |(
            description,
            (rate, cost, concurrency, fair),
            (price, learn, fleet, wait, on_outage, [shadow, disabled, deny]),
            overrides,
        )| {
            PolicySpec {
                description,
                rate,
                cost,
                concurrency,
                fair,
                price,
                learn,
                fleet,
                wait,
                on_outage,
                shadow,
                disabled,
                deny,
                overrides,
            }
        },
    )
}

fn domain() -> impl Strategy<Value = DomainSpec> {
    let entry = (text(), of(text()), any::<bool>(), 0..4u8).prop_map(|(key, value, shared, by)| EntrySpec {
        key,
        value,
        shared,
        by,
    });
    let counting = (any::<bool>(), any::<bool>(), any::<bool>());
    let replaces = proptest::collection::vec(text(), 0..3);
    let leads = (of(text()), any::<bool>(), replaces);
    let rule =
        (proptest::collection::vec(entry, 0..3), leads, counting).prop_map(
            |(entries, (policy, unlimited, replaces), (debit, allow_limit_override, allow_refunds))| {
                RuleSpec { entries, policy, unlimited, replaces, debit, allow_limit_override, allow_refunds }
            },
        );
    (text(), proptest::collection::vec(rule, 0..3), any::<bool>())
        .prop_map(|(domain, rules, tree)| DomainSpec { domain, rules, tree, ..DomainSpec::default() })
}

fn file() -> impl Strategy<Value = PolicyFile> {
    let policies: BTreeMap<_, _> = BTreeMap::new();
    let some = proptest::collection::btree_map(text(), policy(), 0..4);
    (
        any::<u32>(),
        of(outage()),
        prop_oneof![1 => Just(policies), 9 => some],
        proptest::collection::vec(domain(), 0..3),
    )
        .prop_map(|(version, on_outage, policies, envoy)| PolicyFile {
            version,
            defaults: Defaults { on_outage },
            policies,
            envoy,
            access: None,
        })
}

/// Does everything that can be done with text that may be a file.
fn survive(text: &str) {
    if let Err(error) = parse(text) {
        assert!(!error.to_string().is_empty());
    }
    for imported in [import_envoy(text), import_limiters(text)].into_iter().flatten() {
        assert!(check(&imported.file).iter().all(|finding| finding.severity == Severity::Warning));
    }
    match load(text) {
        Ok((file, _)) => {
            assert!(check(&file).iter().all(|finding| finding.severity == Severity::Warning));
            assert_eq!(starts(&file), Ok(()), "{text}");
        }
        Err(errors) => assert!(errors.iter().all(|error| !error.to_string().is_empty())),
    }
}

const VALID: &str = "version: 1
defaults: {on_outage: {local: {nodes: 3}}}
policies:
  api:
    rate: [{name: a, limit: 100, per: 1m, burst: 20}, {name: b, algorithm: quota, limit: 9, per: month}]
    cost: {budget: 1000, per: day, utc_offset_minutes: 60}
    overrides: {'vip-*': {rate: {limit: 5, per: 1s}}, \"root\": {unlimited: true}}
  slots: {concurrency: {limit: 8, scope: key, lease_for: 5s}, price: {rate: 0.5}}
envoy: [{domain: d, rules: [{entries: [{key: k, value: v*}], policy: api}]}]
";

/// Characters with a meaning in YAML.
const MARKS: &[u8] = b"\n -:{}[]#&*!|>'\"%@,?~019";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_written_as_yaml_is_read_back(file in file()) {
        let text = serde_saphyr::to_string(&file).unwrap();
        let back = parse(&text);
        prop_assert_eq!(back.as_ref(), Ok(&file), "{}\n{}", text, back.as_ref().err().map(ToString::to_string).unwrap_or_default());
    }

    #[test]
    fn what_is_written_as_json_is_read_back(file in file()) {
        let text = serde_json::to_string_pretty(&file).unwrap();
        prop_assert_eq!(parse(&text), Ok(file), "{}", text);
    }

    #[test]
    fn checking_and_explaining_any_file_does_not_panic(file in file()) {
        let told = explain(&file);
        prop_assert!(file.policies.keys().all(|name| told.contains(name.as_str())));
        let findings = check(&file);
        prop_assert!(findings.iter().all(|finding| !finding.path.is_empty() && !finding.message.is_empty()));
        if findings.iter().all(|finding| finding.severity == Severity::Warning) {
            prop_assert_eq!(starts(&file), Ok(()));
        }
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "(?s).{0,200}") {
        survive(&text);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(text) = super::text(&bytes) {
            survive(text);
        }
    }

    #[test]
    fn a_valid_file_with_changes_does_not_panic(
        edits in proptest::collection::vec((0..VALID.len(), any::<u8>(), 0..4_u8), 1..12)
    ) {
        let mut bytes = VALID.as_bytes().to_vec();
        for (at, byte, how) in edits {
            let at = at % bytes.len();
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, MARKS[usize::from(byte) % MARKS.len()]),
                2 => drop(bytes.drain(at..(at + 1 + usize::from(byte) % 20).min(bytes.len() - 1).max(at))),
                _ => bytes.extend_from_within(at..(at + usize::from(byte)).min(bytes.len())),
            }
        }
        survive(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn the_file_that_is_changed_is_valid() {
    assert_eq!(warned(VALID), "");
}
