//! The JSON documents of operators' actions. Fields have the names of `throttlekit.v1`.

mod convert;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Units to grant once.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GrantRequest {
    /// The policy by name. If it has a token budget, the grant is for that; else for its rates.
    policy: String,
    /// The key.
    key: String,
    /// Further keys of the same call, for policies that limit by several.
    #[serde(default)]
    keys: Vec<String>,
    /// Number of units, at least 1. What exceeds the current use has no effect.
    units: u64,
    /// Idempotency key of 1 to 128 bytes. A grant that is sent again within a day counts once.
    id: String,
}

/// A granted credit.
#[derive(Serialize, JsonSchema)]
pub(super) struct Granted {
    /// True if this grant counted before, and not again.
    repeated: bool,
    /// Units left now.
    remaining: u64,
    /// The limit.
    limit: u64,
}

/// Limits in place of those of a policy. What is omitted stays as in the policy.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitChanges {
    /// Rates.
    rates: Vec<RateChange>,
    /// Token budgets.
    budgets: Vec<BudgetChange>,
    /// Always allows, without deciding. Excludes other limits.
    unlimited: bool,
}

/// Other numbers for one rate of a policy. Its algorithm stays, and its counts continue.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RateChange {
    /// Name of the rate; empty for the first one.
    #[serde(default)]
    name: String,
    /// Number of units.
    limit: u64,
    /// Maximum number of units at once after idle time; 0 if it stays.
    #[serde(default)]
    burst: u64,
    /// Period in milliseconds; 0 if it stays. Not for quotas.
    #[serde(default)]
    per_ms: u64,
}

/// Another number for one token budget of a policy. Its count continues.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetChange {
    /// Name of the budget; empty for the first one.
    #[serde(default)]
    name: String,
    /// Number of tokens.
    budget: u64,
}

/// Other limits for a key or a prefix, to set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetOverrideRequest {
    /// The policy by name.
    policy: String,
    /// The key, or a prefix before a `*`. The longest match applies; of equal ones this, and not that of the policy
    /// file.
    key: String,
    /// Limits. Excludes a plan.
    #[serde(default)]
    limits: Option<LimitChanges>,
    /// Name of the plan that the key is assigned to. Excludes limits.
    #[serde(default)]
    plan: String,
    /// Milliseconds until it expires; 0 if it does not expire.
    #[serde(default)]
    for_ms: u64,
    /// Expiry in milliseconds since the Unix epoch, by the clock of the store, instead of `for_ms`.
    #[serde(default)]
    expires_at: u64,
}

/// Other limits for some keys of a policy.
#[derive(Serialize, JsonSchema)]
pub(super) struct Override {
    /// The policy.
    policy: String,
    /// The key, or a prefix before a `*`.
    key: String,
    /// Limits; none if it names a plan.
    limits: Option<LimitChanges>,
    /// Name of the plan; empty if it has limits.
    plan: String,
    /// Expiry in milliseconds since the Unix epoch; 0 if it does not expire.
    expires_at: u64,
    /// Time at which it was set.
    set_at: u64,
    /// Name of the principal that set it.
    set_by: String,
    /// Reason why it does not apply now, such as a rate that the policy file no longer has. Empty if it applies.
    problem: String,
}

/// A set override. This server applies it already, the others within a second.
#[derive(Serialize, JsonSchema)]
pub(super) struct OverrideSet {
    /// The override.
    #[serde(rename = "override")]
    one: Option<Override>,
}

/// A key or prefix whose override is to be removed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveOverrideRequest {
    /// The policy by name.
    policy: String,
    /// The key or prefix, as it was set.
    key: String,
}

/// The result of a removal.
#[derive(Serialize, JsonSchema)]
pub(super) struct Removed {
    /// True if there was one.
    removed: bool,
}

/// A query of overrides.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListOverridesRequest {
    /// The policy by name.
    policy: String,
    /// Prefix of the keys; empty for all.
    #[serde(default)]
    prefix: String,
    /// Maximum number, up to 500; 0 for 100.
    #[serde(default)]
    page_size: u16,
    /// `next_page_token` of the page before; empty for the first one.
    #[serde(default)]
    page_token: String,
}

/// Overrides in the order of their keys.
#[derive(Serialize, JsonSchema)]
pub(super) struct Overrides {
    /// Overrides.
    overrides: Vec<Override>,
    /// Token of the next page; empty if this is the last one.
    next_page_token: String,
}

/// Named limits of a policy, to set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetPlanRequest {
    /// The policy by name.
    policy: String,
    /// Name of the plan.
    name: String,
    /// Limits.
    limits: LimitChanges,
}

/// A plan to remove.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemovePlanRequest {
    /// The policy by name.
    policy: String,
    /// Name of the plan.
    name: String,
}

/// A query of plans.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListPlansRequest {
    /// The policy by name.
    policy: String,
}

/// Named limits of a policy.
#[derive(Serialize, JsonSchema)]
pub(super) struct Plan {
    /// The policy.
    policy: String,
    /// Name of the plan.
    name: String,
    /// Limits.
    limits: LimitChanges,
    /// Number of overrides that name it.
    assigned: u64,
}

/// Plans in the order of their names.
#[derive(Serialize, JsonSchema)]
pub(super) struct Plans {
    /// Plans.
    plans: Vec<Plan>,
}

/// A query of leases. Filters that are empty match all.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListLeasesRequest {
    /// Leases to list.
    filter: LeaseFilter,
    /// Maximum number, up to 500; 0 for 100.
    #[serde(default)]
    page_size: u16,
    /// `next_page_token` of the page before; empty for the first one.
    #[serde(default)]
    page_token: String,
}

/// Leases of some clients. Filters that are empty match all.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseFilter {
    /// The policy by name.
    policy: String,
    /// The key.
    #[serde(default)]
    key: String,
    /// Name of the principal that holds them.
    #[serde(default)]
    principal: String,
    /// The handle of one lease.
    #[serde(default)]
    handle: String,
}

/// A lease that a client holds for admitted work.
#[derive(Serialize, JsonSchema)]
pub(super) struct HeldLease {
    /// Handle of the lease for operators. It is not the `lease_id`, which only its holder knows.
    handle: String,
    /// The policy.
    policy: String,
    /// The keys of the call.
    keys: Vec<String>,
    /// Name of the principal that holds it; empty if anonymous.
    principal: String,
    /// Milliseconds since it was admitted.
    held_for_ms: u64,
}

/// Leases in the order of their handles.
#[derive(Serialize, JsonSchema)]
pub(super) struct HeldLeases {
    /// Leases.
    leases: Vec<HeldLease>,
    /// Token of the next page; empty if this is the last one.
    next_page_token: String,
}

/// Leases to end: at most 500 in one request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseLeasesRequest {
    /// Leases to end.
    filter: LeaseFilter,
}

/// Ended leases.
#[derive(Serialize, JsonSchema)]
pub(super) struct LeasesReleased {
    /// Number of leases that ended.
    released: u64,
    /// True if there are more: send the request again.
    more: bool,
}

/// A request without content.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Files were read again.
#[derive(Serialize, JsonSchema)]
pub(super) struct FilesReloaded {
    /// Digest of the policy file that is loaded now.
    config_hash: String,
    /// Error of the policy file on disk, if it was rejected.
    error: String,
}

/// A log filter.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetLogFilterRequest {
    /// The filter: `info`, `debug`, `throttlekit_server=debug,warn`. Empty for the one that the server started with.
    filter: String,
}

/// The configuration of a server, without secrets.
#[derive(Serialize, JsonSchema)]
pub(super) struct Configuration {
    /// The options of the server, and the loaded policy file.
    pub(super) config: Value,
}
