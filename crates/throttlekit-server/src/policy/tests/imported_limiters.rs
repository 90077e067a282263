//! Files of the TypeScript server.

use super::*;

#[test]
fn every_strategy_and_block_becomes_a_policy() {
    let imported = import_limiters(LIMITERS).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let text = serde_saphyr::to_string(&imported.file).unwrap();
    assert_eq!(text, IMPORTED);
    assert_eq!(imported.notes, NOTES);
    let (back, warnings) = load(&text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!(back, imported.file);
    assert_eq!(warnings, []);
}

#[test]
fn a_file_in_json_is_the_same() {
    let json = r#"{"version": 1, "limiters": {"api": {"strategy": "gcra", "limit": 100, "period": "1m"}}}"#;
    let yaml = "version: 1\nlimiters:\n  api: {strategy: gcra, limit: 100, windowMs: 60000}\n";
    assert_eq!(import_limiters(json), import_limiters(yaml));
}

fn refused_import(limiter: &str) -> String {
    let file = format!("limiters:\n  api: {limiter}\n");
    let errors = import_limiters(&file).expect_err("the file is refused");
    let told = errors.iter().map(|error| {
        let place = error.place.map_or(String::new(), |place| format!("{}:{} ", place.line, place.column));
        format!("{place}{}: {}", error.path, error.message)
    });
    told.collect::<Vec<_>>().join("\n")
}

#[test]
fn what_cannot_be_kept_is_refused_with_its_place() {
    let table = [
        ("{}", "2:3 limiters.api: missing key `strategy`: add it"),
        (
            "{strategy: gcar, limit: 5, period: 1s}",
            "2:19 limiters.api.strategy: unknown strategy `gcar`; did you mean `gcra`? Strategies: gcra, tokenBucket, \
             fixedWindow, slidingWindow, slidingWindowLog, quota",
        ),
        ("{strategy: gcra, period: 1s}", "2:3 limiters.api: missing key `limit`: add it"),
        ("{strategy: gcra, limit: 5}", "2:3 limiters.api: missing key `period`: add it"),
        (
            "{strategy: gcra, limit: 5, period: 60}",
            "2:43 limiters.api.period: invalid duration `60`: missing unit, such as `60s` (ms, s, m, h, d)",
        ),
        (
            "{strategy: gcra, limit: 5, period: 1s, windowMs: 60000}",
            "2:57 limiters.api.windowMs: a second, different period: keep one of period, periodMs and windowMs",
        ),
        (
            "{strategy: tokenBucket, capacity: 5, refillPerSec: 0.0301}",
            "2:59 limiters.api.refillPerSec: not a whole number of units in 1 to 1000 seconds: choose a rate that is",
        ),
        (
            "{strategy: quota, limit: 5, resetCadence: yearly}",
            "2:50 limiters.api.resetCadence: unknown cadence `yearly`. Cadences: calendar-day, calendar-week, \
             calendar-month, fixed, rolling",
        ),
        (
            "{strategy: quota, limit: 5, resetCadence: calendar-week, weekStartsOn: 7}",
            "2:79 limiters.api.weekStartsOn: invalid day 7: expected 0 (Sunday) to 6 (Saturday)",
        ),
        ("{twoTier: {mode: leased}}", "2:9 limiters.api.twoTier: needs a strategy beside it: add `strategy`"),
        (
            "{strategy: gcra, limit: 5, period: 1s, tokenBudget: {budget: 5, windowMs: 1000}}",
            "2:19 limiters.api.strategy: `tokenBudget` has no strategy beside it: move one to another limiter",
        ),
        (
            "{tokenBudget: {budget: 5, windowMs: 1000}, fleetBudget: {budget: 5, windowMs: 1000}}",
            "2:51 limiters.api.fleetBudget: a limiter has one block, and this one has `tokenBudget`: split the limiter",
        ),
        (
            "{strategy: gcra, limit: 5, period: 1s, federated: {}}",
            "2:47 limiters.api.federated: needs fixedWindow, slidingWindow or quota: change `strategy`",
        ),
    ];
    for (limiter, says) in table {
        assert_eq!(refused_import(limiter), says, "{limiter}");
    }
}

#[test]
fn all_errors_are_told_at_once() {
    let file = "limiters:
  a: {strategy: gcra}
  b: {strategy: tokenBucket, concurrency: {algorithm: vegas}}
  c: {limit: many, strategy: quota}
";
    let errors = import_limiters(file).expect_err("the file is refused");
    let paths: Vec<_> = errors.iter().map(|error| error.path.as_str()).collect();
    let (unread, algorithm) = ("limiters.c.limit", "limiters.b.concurrency.algorithm");
    assert_eq!(paths, [unread, "limiters.a", "limiters.a", "limiters.b", "limiters.b", algorithm]);
    let errors = import_limiters(&file.replace("many", "5")).expect_err("the file is refused");
    assert_eq!(errors.last().map(|error| error.path.as_str()), Some("limiters.c"), "it can be read now");
}

#[test]
fn an_imported_limit_that_a_policy_cannot_have_is_refused() {
    // Leased sliding windows have no bound here.
    let told = refused_import("{strategy: slidingWindow, limit: 5, period: 1s, twoTier: {mode: leased}}");
    assert!(told.starts_with("policies.api.rate[0].lease: a sliding window cannot be leased"), "{told}");
}

const LIMITERS: &str = "version: 1
defaults: {prefix: acme}
capture: {enabled: true}
limiters:
  api:
    strategy: gcra
    limit: 100
    period: 1m
    burst: 20
  bucket: {strategy: tokenBucket, capacity: 50, refillPerSec: 2.5, prefix: b}
  daily: {strategy: quota, limit: 1000, resetCadence: calendar-day, offsetMinutes: 60}
  billing: {strategy: quota, limit: 5, resetCadence: fixed, windowMs: 604800000, anchor: 1796083200000}
  weekly: {strategy: quota, limit: 7, resetCadence: calendar-week, weekStartsOn: 0}
  rolling: {strategy: quota, limit: 7, resetCadence: rolling, period: 30d}
  window: {strategy: fixedWindow, limit: 10, windowMs: 1500}
  slide: {strategy: slidingWindow, limit: 10, period: 10s, buckets: 5}
  log: {strategy: slidingWindowLog, limit: 10, period: 1h}
  leased:
    strategy: fixedWindow
    limit: 1000
    period: 1m
    twoTier: {mode: leased, batch: 50, lowWater: 5, windowCoupled: false}
  denials: {strategy: gcra, limit: 5, period: 1s, twoTier: {mode: cached-deny}}
  chat:
    strategy: gcra
    limit: 60
    period: 1m
    concurrency: {minLimit: 8, maxLimit: 64, initialLimit: 16, tolerance: 2}
  workers: {distributedConcurrency: {minLimit: 20, maxLimit: 20, algorithm: aimd, heartbeatMs: 1000}}
  tokens: {tokenBudget: {budget: 2000000, windowMs: 60000, maxKeys: 5}}
  all: {fleetBudget: {budget: 100, windowMs: 3600000}}
  tenants: {fairEscrow: {limit: 1000, windowMs: 10000, weights: {acme: 3, umbrella: 2}, costRoom: true}}
  regions: {federatedFairEscrow: {region: eu, limit: 1000, windowMs: 10000, weights: {acme: 3}, key: pool}}
  lent: {strategy: slidingWindow, limit: 500, period: 1m, federated: {region: eu, batch: 16}}
";

const IMPORTED: &str = "version: 1
policies:
  all:
    cost:
    - budget: 100
      per: 1h
  api:
    rate:
    - limit: 100
      per: 1m
      burst: 20
  billing:
    rate:
    - algorithm: fixed_window
      limit: 5
      per: 7d
      anchor: \"2026-12-01T00:00:00Z\"
  bucket:
    rate:
    - algorithm: token_bucket
      limit: 5
      per: 2s
      burst: 50
  chat:
    rate:
    - limit: 60
      per: 1m
    concurrency:
      limit: 16
      adaptive:
        min: 8
        max: 64
  daily:
    rate:
    - algorithm: quota
      limit: 1000
      per: day
      utc_offset_minutes: 60
  denials:
    rate:
    - limit: 5
      per: 1s
      lease:
        mode: cached_deny
  leased:
    rate:
    - algorithm: fixed_window
      limit: 1000
      per: 1m
      lease:
        mode: leased
        batch: 50
  lent:
    rate:
    - algorithm: fixed_window
      limit: 500
      per: 1m
    fleet: {}
  log:
    rate:
    - algorithm: sliding_log
      limit: 10
      per: 1h
  regions:
    fair:
      limit: 1000
      per: 10s
      weights:
        acme: 3
      regions: true
  rolling:
    rate:
    - algorithm: sliding_window
      limit: 7
      per: 30d
  slide:
    rate:
    - algorithm: sliding_window
      limit: 10
      per: 10s
      buckets: 5
  tenants:
    fair:
      limit: 1000
      per: 10s
      weights:
        acme: 3
        umbrella: 2
  tokens:
    cost:
    - budget: 2000000
      per: 1m
  weekly:
    rate:
    - algorithm: quota
      limit: 7
      per: week
      week_starts: sunday
  window:
    rate:
    - algorithm: fixed_window
      limit: 10
      per: 1500ms
  workers:
    concurrency:
      limit: 20
      scope: fleet
";

const NOTES: [&str; 15] = [
    "defaults.prefix is ignored: keys in the store are named by the policy",
    "capture is ignored: decisions are not recorded",
    "bucket: `prefix` is ignored: keys in the store are named by the policy",
    "chat: `rttWindow`, `smoothing`, `tolerance` and `backoffRatio` are ignored: the estimator is another one",
    "chat: the rate charges the cost of a call, not 1: send cost 1, or none",
    "leased: `windowCoupled: false` is ignored: leased units always expire with their window",
    "leased: `lowWater` and `returnIdleAfterMs` are ignored: the server refills and returns units by itself",
    "lent: `region` is set for the server, not in the file: start it with --region eu",
    "lent: `federated.batch` and `federated.prefix` are ignored: clients choose how much they reserve",
    "lent: `federated` counted the sliding window in fixed windows: it is one here",
    "regions: `region` is set for the server, not in the file: start it with --region eu",
    "regions: `key` and `prefix` of the budget are ignored: it is named by the policy",
    "tenants: `costRoom` and `unit` are ignored: `throttlekit top` shows shares without them",
    "tokens: `maxKeys` and `prefix` of the budget are ignored: it is counted on the store",
    "workers: `aggregate`, `prefix`, `heartbeatMs` and `onCoordinatorOutage` are ignored: without the store, servers \
     stop granting slots",
];
