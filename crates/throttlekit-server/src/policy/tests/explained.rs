//! Explanations of files.

use super::*;

#[test]
fn a_rich_file_is_explained() {
    let (file, warnings) = load(RICH).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(explain(&file), EXPLAINED);
}

const RICH: &str = "version: 1
defaults: {on_outage: {local: {nodes: 4}}}
policies:
  api:
    description: The public API.
    rate: {limit: 100, per: 1m, burst: 20}
    on_outage: closed
    overrides:
      paid-*: {rate: {limit: 1000, per: 1m, burst: 200}}
      root: {unlimited: true}
  bulk:
    rate:
      - {algorithm: fixed_window, limit: 500, per: 1m, lease: {batch: 50}}
      - {name: pace, limit: 7, per: 1m}
      - {name: month, algorithm: quota, limit: 100000, per: month, utc_offset_minutes: 60}
      - {name: week, algorithm: quota, limit: 30000, per: week, week_starts: sunday, time_zone: America/New_York}
  chat:
    concurrency: {limit: 64, scope: key, lease_for: 10s}
    rate: [{limit: 60, per: 1m}, {name: slide, algorithm: sliding_window, limit: 600, per: 1h, by: 1}]
    cost: {budget: 2000000, per: month, month_starts: 31, time_zone: Europe/Berlin}
    price: {rate: 0.5, cost: 0.001}
    learn: {max: 8192}
    on_outage: open
  edge:
    shadow: true
    rate: {limit: 1000, per: 1s, burst: 100, lease: {mode: leased, hold: 50ms}}
  off: {disabled: true}
  lent: {rate: {limit: 100, per: 1m}, fleet: {lease_max: 50, share: 4}}
  pool: {fair: {limit: 1000, per: 10s, weights: {acme: 3, umbrella: 2}}}
  workers: {concurrency: {limit: 20, adaptive: {min: 5, max: 100}}, wait: {max: 500ms}}
  zone: {rate: {algorithm: sliding_log, limit: 5, per: 1h}, on_outage: closed}
envoy:
  - domain: edge
    rules:
      - {entries: [{key: path, value: /login}, {key: remote_address}], policy: api}
      - {entries: [{key: agent, value: bot*, shared: true}], unlimited: true}
";

const EXPLAINED: &str = r#"api: The public API.
  100 units per minute for each key, up to 20 at once after idle time: one is replenished every 600ms, and at most 120 are allowed in any 1m. A call that costs more than 20 is never allowed.
  Counted on the store that all servers share. While the store is unavailable, calls are rejected (fail closed).
  Keys that start with `paid-` instead: 1,000 units per minute for each key, up to 200 at once after idle time: one is replenished every 60ms, and at most 1,200 are allowed in any 1m. A call that costs more than 200 is never allowed.
  The key `root`: always allowed, not counted.

bulk:
  500 units in each window of 1m for each key. Across the boundary of two windows, up to 1,000 can be allowed within 1m.
  `pace`: 7 units per minute for each key, up to 7 at once after idle time: one is replenished about every 8.571s, and at most 14 are allowed in any 1m. A call that costs more than 7 is never allowed.
  `month`: 100,000 units per calendar month for each key, from midnight at UTC+01:00. Around that midnight, up to 200,000 can be allowed in a short time.
  `week`: 30,000 units per calendar week starting on Sunday for each key, from midnight in America/New_York. Around that midnight, up to 60,000 can be allowed in a short time.
  The rate is leased: each server fetches units of busy keys in batches of up to 50 and spends them locally. They expire with their window, so at most 500 are allowed in any window of the store's clock, for any number of servers; units that one server holds cannot be spent by the others meanwhile.
  Counted on the store that all servers share. While the store is unavailable, each of at most 4 servers continues with 125 per window for the rate (all servers together: 500 of 500); a burst of 1 for `pace`, refilled at 1/4 of its speed (all servers together: 4 of 7); 25,000 per window for `month` (all servers together: 100,000 of 100,000); 7,500 per window for `week` (all servers together: 30,000 of 30,000).

chat:
  At most 64 concurrent calls for each key across all servers, counted on the store. A slot is freed after 10s without a heartbeat.
  60 calls per minute for each key, up to 60 at once after idle time: one is replenished every 1s, and at most 120 are allowed in any 1m.
  `slide`: 600 calls in any 1h for each value of the call's further key 1, counted in 10 buckets (nearly exact).
  2,000,000 tokens per calendar month starting on day 31 (or the last of the month) from midnight in Europe/Berlin for each key, debited as they are used: the debit that exceeds the budget is still allowed and counts in full, so a window can exceed 2,000,000 by at most the largest debit minus one.
  A call whose value is below 0.5 plus 0.001 per token is denied before anything is charged.
  A call of Admit without a cost reserves what earlier calls of its key and class used: at most 8,192 tokens beyond its input.
  Counted on the store that all servers share. While the store is unavailable, everything is allowed and not counted (fail open).

edge:
  Shadow mode: decisions are made and counted, but every call is allowed.
  1,000 units per second for each key, up to 100 at once after idle time: one is replenished every 1ms, and at most 1,100 are allowed in any 1s. A call that costs more than 100 is never allowed.
  The rate is leased: each server fetches units in batches sized by its traffic and spends them locally. They expire after 50ms, so up to 50 units beyond the rate can be allowed in any interval, for any number of servers.
  Counted on the store that all servers share. While the store is unavailable, each of at most 4 servers continues with a burst of 25 for the rate, refilled at 1/4 of its speed (all servers together: 100 of 100).

lent:
  100 units per minute for each key, up to 100 at once after idle time: one is replenished every 600ms, and at most 200 are allowed in any 1m. A call that costs more than 100 is never allowed.
  Clients may reserve units and spend them locally: at most 50 per reservation, and at most one in 4 of the units left. They expire after 1s, so up to 2 units beyond the rate can be allowed in any interval.
  Counted on the store that all servers share. While the store is unavailable, each of at most 4 servers continues with a burst of 25 for the rate, refilled at 1/4 of its speed (all servers together: 100 of 100).

off:
  Disabled: everything is allowed, and nothing is checked or counted.

pool:
  All keys share 1,000 units in each window of 10s, by weight: `acme` has weight 3, `umbrella` has weight 2, all others 1. Each key gets its share when it needs it, and can borrow what others leave unused.
  Counted on the store that all servers share. While the store is unavailable, each of at most 4 servers continues with 250 per window for the fair budget (all servers together: 1,000 of 1,000).

workers:
  At most 20 concurrent calls initially, then between 5 and 100 depending on latency, in each server, all keys together. A slot is freed after 2s without a heartbeat.
  A call of Admit may wait up to 500ms until it is allowed, in order; at most 1,000 calls wait in each server.
  Counted in each server separately, without the store.

zone:
  5 units in any 1h for each key, exactly: each admission is stored for 1h.
  Counted on the store that all servers share. While the store is unavailable, calls are rejected (fail closed).

Envoy domain edge:
  A descriptor of path /login and any remote_address (counted separately) uses policy api.
  A descriptor of agent bot* (counted together) is always allowed.
"#;
