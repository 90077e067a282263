//! Valid files start: no file passes the check and then fails to run.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Generates typical numbers, and those at the edges of what the library accepts.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1_u64..1_000,
        2 => 1_u64..10_000_000,
        1 => select(vec![0, 1, (1 << 52) - 1, 1 << 52, (1 << 53) - 1, 1 << 53, u64::MAX]),
        1 => any::<u64>(),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    let nice = select(vec![1, 2, 10, 1_000, 60_000, 3_600_000, 86_400_000, 100 * 365 * 86_400_000]);
    prop_oneof![3 => nice, 1 => 1_u64..10_000_000_000].prop_map(|ms| Span(Duration::from_millis(ms)))
}

fn period() -> impl Strategy<Value = Period> {
    let part = select(vec![CalendarPart::Day, CalendarPart::Week, CalendarPart::Month]);
    let total = Just(Period::Total(TotalPart::Total));
    prop_oneof![8 => span().prop_map(Period::Span), 2 => part.prop_map(Period::Calendar), 1 => total]
}

fn rate() -> impl Strategy<Value = RateSpec> {
    use Algorithm::{FixedWindow, Gcra, Quota, SlidingLog, SlidingWindow, TokenBucket};
    let algorithm =
        select(vec![Gcra, Gcra, TokenBucket, FixedWindow, FixedWindow, SlidingWindow, SlidingLog, Quota]);
    let mode = select(vec![LeaseMode::Auto, LeaseMode::Leased, LeaseMode::CachedDeny]);
    let lease =
        (mode, of(number()), of(span())).prop_map(|(mode, batch, hold)| LeaseSpec { mode, batch, hold });
    let lease = prop_oneof![3 => Just(None), 1 => lease.prop_map(Some)];
    let burst = prop_oneof![3 => Just(None), 1 => number().prop_map(Some)];
    (algorithm, number(), period(), burst, lease, by()).prop_map(
        |(algorithm, limit, per, burst, lease, by)| {
            let smooth = matches!(algorithm, Gcra | TokenBucket);
            RateSpec {
                name: None,
                algorithm,
                limit,
                per: match (algorithm, per) {
                    (Quota, Period::Span(_)) => Period::Calendar(CalendarPart::Month),
                    (Quota, per) => per,
                    (_, Period::Calendar(_)) => Period::Span(Span(Duration::from_secs(60))),
                    (_, per) => per,
                },
                burst: burst.filter(|_| smooth),
                buckets: None,
                early_retry: false,
                utc_offset_minutes: 0,
                week_starts: None,
                month_starts: None,
                time_zone: None,
                anchor: None,
                by,
                lease,
            }
        },
    )
}

/// Generates mostly the first of a call's keys, sometimes one too many.
fn by() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0), 2 => 1..=BY_MAX, 1 => Just(BY_MAX + 1)]
}

/// Generates up to three rates, all but the first with names.
fn rates() -> impl Strategy<Value = Vec<RateSpec>> {
    let named = |(place, rate): (usize, RateSpec)| RateSpec {
        name: (place > 0).then(|| format!("r{place}")),
        ..rate
    };
    let some = proptest::collection::vec(rate(), 0..=3);
    some.prop_map(move |rates| rates.into_iter().enumerate().map(named).collect())
}

fn cost() -> impl Strategy<Value = CostSpec> {
    (number(), period(), by()).prop_map(|(budget, per, by)| CostSpec {
        name: None,
        budget,
        per,
        utc_offset_minutes: 0,
        week_starts: None,
        month_starts: None,
        time_zone: None,
        anchor: None,
        by: vec![by],
    })
}

/// Generates up to three budgets, all but the first with names, some by several keys.
fn costs() -> impl Strategy<Value = Vec<CostSpec>> {
    let named = |(place, cost): (usize, CostSpec)| CostSpec {
        name: (place > 0).then(|| format!("b{place}")),
        by: if place > 1 { vec![cost.by[0], cost.by[0] + 1] } else { cost.by.clone() },
        ..cost
    };
    let some = prop_oneof![3 => proptest::collection::vec(cost(), 0..=0), 2 => proptest::collection::vec(cost(), 1..=3)];
    some.prop_map(move |costs| costs.into_iter().enumerate().map(named).collect())
}

fn concurrency() -> impl Strategy<Value = ConcurrencySpec> {
    let scope = select(vec![Scope::Instance, Scope::InstanceKey, Scope::Key, Scope::Fleet]);
    let adaptive = (0..3_u32, 5..200_000_u32, select(vec![EstimatorSpec::Gradient, EstimatorSpec::Aimd]))
        .prop_map(|(min, max, algorithm)| AdaptiveSpec { min, max, algorithm });
    let limit = prop_oneof![4 => 1..1_000_u32, 1 => select(vec![0, 100_000, 100_001, u32::MAX])];
    (limit, scope, of(adaptive), of(span())).prop_map(|(limit, scope, adaptive, lease_for)| ConcurrencySpec {
        limit,
        scope,
        adaptive,
        lease_for,
    })
}

fn fair() -> impl Strategy<Value = FairSpec> {
    (number(), span(), 0..3_u32, any::<bool>(), of(0..1_000_usize)).prop_map(
        |(limit, per, weight, regions, tenants_max)| FairSpec {
            limit,
            per,
            weights: [("acme".to_owned(), weight)].into(),
            regions,
            tenants_max,
        },
    )
}

/// Generates a value rarely, so that many policies are valid.
fn rare<T: Clone + std::fmt::Debug + 'static>(
    some: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop_oneof![3 => Just(None), 1 => some.prop_map(Some)]
}

fn policy() -> impl Strategy<Value = PolicySpec> {
    let price =
        (0.0..10.0, -0.1..10.0, 0.0..10.0).prop_map(|(rate, cost, hold)| PriceSpec { rate, cost, hold });
    let fleet = (of(number()), of(number())).prop_map(|(lease_max, share)| FleetSpec { lease_max, share });
    let nodes = (1..9_u32).prop_map(|nodes| NonZeroU32::new(nodes).unwrap());
    let outage = prop_oneof![
        Just(OutageSpec::Closed),
        Just(OutageSpec::Open),
        nodes.prop_map(|nodes| OutageSpec::Local { nodes })
    ];
    let instead =
        (rates(), costs(), select(vec![(false, false), (false, false), (true, false), (false, true)]))
            .prop_map(|(rate, cost, (unlimited, deny))| OverrideSpec { rate, cost, unlimited, deny });
    let overrides = rare(instead).prop_map(|spec| spec.into_iter().map(|spec| ("vip*".to_owned(), spec)));
    let axes = (rates(), costs(), rare(concurrency()), rare(fair()));
    let wait = (span(), of(0..200_000_u32)).prop_map(|(max, queue)| WaitSpec { max, queue });
    let disabled = select(vec![(false, false), (false, false), (true, false), (false, true)]);
    let learn = of(select(vec![0, 1, 100_000, u64::MAX])).prop_map(|max| LearnSpec { max });
    let rest = (rare(price), rare(learn), rare(fleet), rare(wait), of(outage), disabled, overrides);
    (axes, rest).prop_map(
        |(
            (rate, cost, concurrency, fair),
            (price, learn, fleet, wait, on_outage, (disabled, deny), overrides),
        )| {
            PolicySpec {
                rate,
                cost,
                concurrency,
                fair,
                price,
                learn,
                fleet,
                wait,
                on_outage,
                disabled,
                deny,
                overrides: overrides.collect(),
                ..PolicySpec::default()
            }
        },
    )
}

#[test]
fn what_the_check_accepts_starts() {
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    // About one policy in ten is valid: 390 of 4,000 (± 19), far from the 200 demanded below.
    let config = ProptestConfig::with_cases(4_000);
    proptest::test_runner::TestRunner::new(config)
        .run(&policy(), |policy| {
            let file =
                PolicyFile { version: 1, policies: [("p".into(), policy)].into(), ..PolicyFile::default() };
            if check(&file).iter().all(|finding| finding.severity == Severity::Warning) {
                prop_assert_eq!(starts(&file), Ok(()));
                accepted.set(accepted.get() + 1);
            } else {
                refused.set(refused.get() + 1);
            }
            Ok(())
        })
        .unwrap();
    let (accepted, refused) = (accepted.get(), refused.get());
    assert!(accepted > 200 && refused > 200, "{accepted} accepted, {refused} refused");
}
