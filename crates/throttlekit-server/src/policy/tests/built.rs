//! What is accepted here is accepted by the library: no file passes the check and then fails to start.

use std::cell::Cell;
use std::time::Duration;

use proptest::option::of;
use proptest::prelude::*;
use throttlekit::store::MemoryStore;
use throttlekit::tier::{Batch, Mode};
use throttlekit::{Axis, Limit, LimitError, SharedFairLimiter, SharedLimiter, SharedPolicy, TwoTier};

use super::*;

/// Numbers as files have them, and those at the edges of what the library takes.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1_u64..1_000,
        2 => 1_u64..10_000_000,
        1 => proptest::sample::select(vec![0, 1, (1 << 52) - 1, 1 << 52, (1 << 53) - 1, 1 << 53, u64::MAX]),
        1 => any::<u64>(),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    let nice = proptest::sample::select(vec![
        1,
        2,
        10,
        1_000,
        60_000,
        3_600_000,
        86_400_000,
        100 * 365 * 86_400_000,
    ]);
    prop_oneof![3 => nice, 1 => 1_u64..10_000_000_000].prop_map(|ms| Span(Duration::from_millis(ms)))
}

fn period() -> impl Strategy<Value = Period> {
    let part = proptest::sample::select(vec![CalendarPart::Day, CalendarPart::Week, CalendarPart::Month]);
    prop_oneof![4 => span().prop_map(Period::Span), 1 => part.prop_map(Period::Calendar)]
}

fn rate(name: Option<&'static str>) -> impl Strategy<Value = RateSpec> {
    use Algorithm::{FixedWindow, Gcra, Quota, SlidingLog, SlidingWindow, TokenBucket};
    let algorithm = proptest::sample::select(vec![
        Gcra,
        Gcra,
        TokenBucket,
        FixedWindow,
        FixedWindow,
        SlidingWindow,
        SlidingLog,
        Quota,
    ]);
    let mode = proptest::sample::select(vec![LeaseMode::Auto, LeaseMode::Leased, LeaseMode::CachedDeny]);
    let lease =
        (mode, of(number()), of(span())).prop_map(|(mode, batch, hold)| LeaseSpec { mode, batch, hold });
    (algorithm, number(), period(), of(number()), of(lease)).prop_map(
        move |(algorithm, limit, per, burst, lease)| {
            let smooth = matches!(algorithm, Gcra | TokenBucket);
            let part = Period::Calendar(CalendarPart::Month);
            RateSpec {
                name: name.map(str::to_owned),
                algorithm,
                limit,
                per: match (algorithm, per) {
                    (Quota, Period::Span(_)) => part,
                    (Quota, per) => per,
                    (_, Period::Calendar(_)) => Period::Span(Span(Duration::from_secs(60))),
                    (_, per) => per,
                },
                burst: burst.filter(|_| smooth),
                buckets: None,
                early_retry: false,
                utc_offset_minutes: 0,
                by: 0,
                lease,
            }
        },
    )
}

fn policy() -> impl Strategy<Value = PolicySpec> {
    let cost =
        (number(), period()).prop_map(|(budget, per)| CostSpec { budget, per, utc_offset_minutes: 0, by: 0 });
    let fair = (number(), span()).prop_map(|(limit, per)| FairSpec {
        limit,
        per,
        weights: [("acme".to_owned(), 3)].into(),
        regions: false,
        tenants_max: None,
    });
    (of(rate(None)), of(rate(Some("b"))), of(cost), of(fair)).prop_map(|(a, b, cost, fair)| PolicySpec {
        rate: a.into_iter().chain(b).collect(),
        cost,
        fair,
        ..PolicySpec::default()
    })
}

fn on_store<const N: usize>(
    limits: &[(String, Axis, Limit)],
) -> Result<(SharedLimiter<MemoryStore, N>, [Axis; N]), LimitError> {
    let limits: &[_; N] = limits.try_into().expect("as many as were counted");
    let limiter = SharedLimiter::all(
        MemoryStore::new(),
        "p",
        limits.each_ref().map(|(name, _, limit)| (name.as_str(), *limit)),
    )?;
    Ok((limiter, limits.each_ref().map(|(_, axis, _)| *axis)))
}

/// The policy as the library runs it.
fn build(policy: &PolicySpec) -> Result<SharedPolicy, LimitError> {
    let mut builder = SharedPolicy::builder("p");
    let mut together = Vec::new();
    for rate in policy.rate.iter().filter(|rate| rate.lease.is_none()) {
        together.push((rate.name.clone().unwrap_or_default(), Axis::Rate, rate.to_limit()?));
    }
    if let Some(cost) = &policy.cost {
        together.push(("cost".into(), Axis::Cost, cost.to_limit()?));
    }
    builder = match together.len() {
        0 => builder,
        1 => on_store::<1>(&together).map(|(limiter, on)| builder.together(limiter, on))?,
        2 => on_store::<2>(&together).map(|(limiter, on)| builder.together(limiter, on))?,
        _ => on_store::<3>(&together).map(|(limiter, on)| builder.together(limiter, on))?,
    };
    for rate in &policy.rate {
        let Some(lease) = &rate.lease else { continue };
        let mode = match lease.mode {
            LeaseMode::Auto => Mode::Auto,
            LeaseMode::Leased => Mode::Leased,
            LeaseMode::CachedDeny => Mode::CachedDeny,
        };
        let tier = TwoTier::builder(MemoryStore::new(), "p", rate.to_limit()?).mode(mode).keys_max(1);
        let tier = lease.batch.into_iter().fold(tier, |tier, batch| tier.batch(Batch::Fixed(batch)));
        let tier = lease.hold.into_iter().fold(tier, |tier, hold| tier.hold(hold.0));
        builder = builder.leased(Axis::Rate, tier.build()?);
    }
    if let Some(fair) = &policy.fair {
        SharedFairLimiter::in_region(MemoryStore::new(), "p", "eu", fair.to_limit()?).build()?;
        builder =
            builder.fair(SharedFairLimiter::by_quanta(MemoryStore::new(), "p", fair.to_limit()?).build()?);
    }
    builder.build()
}

#[test]
fn what_the_check_accepts_the_library_builds() {
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let config = ProptestConfig::with_cases(2_000);
    proptest::test_runner::TestRunner::new(config)
        .run(&policy(), |policy| {
            let file = PolicyFile {
                version: 1,
                policies: [("p".into(), policy.clone())].into(),
                ..PolicyFile::default()
            };
            let errors: Vec<_> =
                check(&file).into_iter().filter(|finding| finding.level == Level::Error).collect();
            if errors.is_empty() {
                prop_assert_eq!(build(&policy).err(), None);
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
