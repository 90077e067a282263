//! The file format of the TypeScript server.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(rename = "version")]
    pub(super) _version: Option<IgnoredAny>,
    pub(super) defaults: Option<Defaults>,
    pub(super) limiters: BTreeMap<String, Limiter>,
    pub(super) capture: Option<IgnoredAny>,
    pub(super) replay: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    pub(super) prefix: Option<String>,
}

/// A limiter: a strategy, and at most one block.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Limiter {
    pub(super) strategy: Option<String>,
    pub(super) limit: Option<u64>,
    pub(super) period: Option<String>,
    pub(super) period_ms: Option<u64>,
    pub(super) window_ms: Option<u64>,
    pub(super) burst: Option<u64>,
    pub(super) capacity: Option<u64>,
    pub(super) refill_per_sec: Option<f64>,
    pub(super) buckets: Option<u32>,
    pub(super) reset_cadence: Option<String>,
    pub(super) offset_minutes: Option<i32>,
    pub(super) week_starts_on: Option<u8>,
    pub(super) anchor: Option<u64>,
    pub(super) prefix: Option<String>,
    pub(super) token_budget: Option<TokenBudget>,
    pub(super) fleet_budget: Option<TokenBudget>,
    pub(super) two_tier: Option<TwoTier>,
    pub(super) concurrency: Option<Concurrency>,
    pub(super) distributed_concurrency: Option<Concurrency>,
    pub(super) fair_escrow: Option<FairEscrow>,
    pub(super) federated_fair_escrow: Option<FairEscrow>,
    pub(super) federated: Option<Federated>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TokenBudget {
    pub(super) budget: u64,
    pub(super) window_ms: u64,
    pub(super) max_keys: Option<IgnoredAny>,
    pub(super) prefix: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TwoTier {
    pub(super) mode: Option<String>,
    pub(super) batch: Option<u64>,
    pub(super) low_water: Option<IgnoredAny>,
    pub(super) window_coupled: Option<bool>,
    pub(super) return_idle_after_ms: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Concurrency {
    pub(super) min_limit: Option<u32>,
    pub(super) max_limit: Option<u32>,
    pub(super) initial_limit: Option<u32>,
    pub(super) algorithm: Option<String>,
    pub(super) rtt_window: Option<IgnoredAny>,
    pub(super) smoothing: Option<IgnoredAny>,
    pub(super) tolerance: Option<IgnoredAny>,
    pub(super) backoff_ratio: Option<IgnoredAny>,
    pub(super) aggregate: Option<IgnoredAny>,
    pub(super) prefix: Option<IgnoredAny>,
    pub(super) heartbeat_ms: Option<IgnoredAny>,
    pub(super) on_coordinator_outage: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct FairEscrow {
    pub(super) limit: u64,
    pub(super) window_ms: u64,
    #[serde(default)]
    pub(super) weights: BTreeMap<String, u32>,
    pub(super) max_keys: Option<usize>,
    pub(super) region: Option<String>,
    pub(super) key: Option<IgnoredAny>,
    pub(super) prefix: Option<IgnoredAny>,
    pub(super) cost_room: Option<IgnoredAny>,
    pub(super) cost_room_max_keys: Option<IgnoredAny>,
    pub(super) cost_room_ring_size: Option<IgnoredAny>,
    pub(super) unit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Federated {
    pub(super) region: Option<String>,
    pub(super) batch: Option<IgnoredAny>,
    pub(super) prefix: Option<IgnoredAny>,
}
