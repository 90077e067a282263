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
  chat:
    concurrency: {limit: 64, scope: key, lease_for: 10s}
    rate: [{limit: 60, per: 1m}, {name: slide, algorithm: sliding_window, limit: 600, per: 1h, by: 1}]
    cost: {budget: 2000000, per: day}
    price: {rate: 0.5, cost: 0.001}
    on_outage: open
  edge:
    shadow: true
    rate: {limit: 1000, per: 1s, burst: 100, lease: {mode: leased, hold: 50ms}}
  off: {disabled: true}
  lent: {rate: {limit: 100, per: 1m}, fleet: {lease_max: 50, share: 4}}
  pool: {fair: {limit: 1000, per: 10s, weights: {acme: 3, umbrella: 2}}}
  workers: {concurrency: {limit: 20, adaptive: {min: 5, max: 100}}}
  zone: {rate: {algorithm: sliding_log, limit: 5, per: 1h}, on_outage: closed}
envoy:
  - domain: edge
    rules:
      - {entries: [{key: path, value: /login}, {key: remote_address}], policy: api}
      - {entries: [{key: agent, value: bot*, shared: true}], unlimited: true}
";

const EXPLAINED: &str = r#"api: The public API.
  100 units a minute for each key, up to 20 at once after quiet: one comes back every 600ms, and no 1m sees more than 120. A call that costs more than 20 never passes.
  Counted on the store that all servers share. While the store is away, calls are refused.
  Keys that begin with `paid-` instead: 1,000 units a minute for each key, up to 200 at once after quiet: one comes back every 60ms, and no 1m sees more than 1,200. A call that costs more than 200 never passes.
  The key `root`: always pass, uncounted.

bulk:
  500 units in each window of 1m for each key. Around the edge between two windows up to 1,000 can pass within 1m.
  `pace`: 7 units a minute for each key, up to 7 at once after quiet: one comes back about every 8.571s, and no 1m sees more than 14. A call that costs more than 7 never passes.
  `month`: 100,000 units a calendar month for each key, from midnight at UTC+01:00. Around that midnight up to 200,000 can pass in a short time.
  The rate is leased: each server fetches units of busy keys in batches, up to 50, and spends them by itself. They live until their window ends, so no window of the store's clock sees more than 500, however many servers there are; what one server holds, the others cannot spend meanwhile.
  Counted on the store that all servers share. While the store is away, each of at most 4 servers goes on with 125 of the rate in each window, together 500 of 500; 1 of `pace` at once and its pace divided by 4, together 4 of 7 at once; 25,000 of `month` in each window, together 100,000 of 100,000.

chat:
  At most 64 calls at a time for each key over all servers, counted on the store. A client that is silent for 10s loses its slot.
  60 calls a minute for each key, up to 60 at once after quiet: one comes back every 1s, and no 1m sees more than 120.
  `slide`: 600 calls in any 1h for each value of the call's further key 1, as counted in 10 parts: nearly exact.
  2,000,000 tokens a calendar day from midnight at UTC for each key, counted as they are used: the debit that crosses the edge still passes and counts in full, so a window can end one largest debit less one above 2,000,000.
  A call that is worth less than 0.5 plus 0.001 a token is turned away before anything is charged.
  Counted on the store that all servers share. While the store is away, everything passes, uncounted.

edge:
  In shadow mode: all of this is decided and counted, and everything passes.
  1,000 units a second for each key, up to 100 at once after quiet: one comes back every 1ms, and no 1s sees more than 1,100. A call that costs more than 100 never passes.
  The rate is leased: each server fetches units in batches, as many as it learns to need, and spends them by itself. They live for 50ms, so up to 50 units beyond the rate can pass in any interval, however many servers there are.
  Counted on the store that all servers share. While the store is away, each of at most 4 servers goes on with 25 of the rate at once and its pace divided by 4, together 100 of 100 at once.

lent:
  100 units a minute for each key, up to 100 at once after quiet: one comes back every 600ms, and no 1m sees more than 200. A call that costs more than 100 never passes.
  Clients may reserve units and spend them by themselves: up to 50 and one in 4 of what is left at a time. They live for 1s, so up to 2 units beyond the rate can pass in any interval.
  Counted on the store that all servers share. While the store is away, each of at most 4 servers goes on with 25 of the rate at once and its pace divided by 4, together 100 of 100 at once.

off:
  Disabled: everything passes, and nothing is asked or counted.

pool:
  All keys together have 1,000 units in each window of 10s, shared by weight: `acme` weighs 3, `umbrella` weighs 2, all others 1. Whoever wants its share gets it; what others leave may be borrowed.
  Counted on the store that all servers share. While the store is away, each of at most 4 servers goes on with 250 of the fair budget in each window, together 1,000 of 1,000.

workers:
  At most 20 calls at a time to begin with, and then between 5 and 100 as latency rises and falls, in each server, all keys together. A client that is silent for 2s loses its slot.
  Counted in each server by itself: no store is asked.

zone:
  5 units in any 1h for each key, exactly: each admission is remembered for 1h.
  Counted on the store that all servers share. While the store is away, calls are refused.

Envoy's domain edge:
  A descriptor of path /login and any remote_address (each for itself) goes by api.
  A descriptor of agent bot* (all together) always passes.
"#;
