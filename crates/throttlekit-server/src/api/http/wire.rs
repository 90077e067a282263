//! The JSON documents. Fields have the names of `throttlekit.v1`; times and waits are milliseconds, rounded up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throttlekit::rate::Timestamp;
use throttlekit::{Guarantee, Retry};

use crate::engine::{self, Answered};
use crate::wire_format::{axis_name, limit_name, millis_at, overshoot, retry_millis};

/// The largest number that every JSON reader represents exactly. Larger ones are reported as this.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// A request for one key.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// The key that is limited.
    pub(super) key: String,
    /// Requested units; 0 means 1.
    #[serde(default)]
    pub(super) cost: u64,
    /// Further keys of the same call, for policies that limit by several. All are charged, or none.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// A request for many keys, each decided independently.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckManyRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// The keys that are limited.
    pub(super) keys: Vec<String>,
    /// Requested units for each key; 0 means 1.
    #[serde(default)]
    pub(super) cost: u64,
    /// Further keys of each call, for policies that limit by several: as many entries as there are keys, or none at all.
    #[serde(default)]
    pub(super) others: Vec<Vec<String>>,
}

/// A query of the state of one key. It charges nothing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PeekRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// The key to look up.
    pub(super) key: String,
    /// Further keys of the same call, for policies that limit by several.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// A reset of what one key has used.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// The key.
    pub(super) key: String,
    /// Further keys of the same call, for policies that limit by several.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// A query of the units that one key may spend.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForecastRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// The key to look up.
    pub(super) key: String,
    /// Units per request; 0 means 1.
    #[serde(default)]
    pub(super) cost: u64,
    /// Further keys of the same call, for policies that limit by several.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// Tokens to count against a budget.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DebitRequest {
    /// The policy by name. Not needed beside a lease.
    #[serde(default)]
    pub(super) policy: String,
    /// The key of the budget. Not needed beside a lease.
    #[serde(default)]
    pub(super) key: String,
    /// Tokens used since the last debit; 0 means 1.
    #[serde(default)]
    pub(super) tokens: u64,
    /// ID of a stream of debits: 32 random hexadecimal digits. With a number, a debit that is sent again counts once.
    #[serde(default)]
    pub(super) stream: String,
    /// Number of this debit in the stream. It rises by one from 1.
    #[serde(default)]
    pub(super) number: u64,
    /// Lease of the admission to charge, instead of the key alone.
    #[serde(default)]
    pub(super) lease_id: String,
    /// Further keys of the same call, for budgets that count by one of them. Not needed beside a lease.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// A request on every axis.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AdmitRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// The key that is limited.
    pub(super) key: String,
    /// Estimated cost; 0 means 1, or what the policy has learned if it learns.
    #[serde(default)]
    pub(super) cost: u64,
    /// Milliseconds for which the work is expected to hold its slot; 0 if unknown.
    #[serde(default)]
    pub(super) hold: u64,
    /// Value of the work, for policies with a price; 0 means 1.
    #[serde(default)]
    pub(super) value: u64,
    /// Further keys of the same call, for policies that limit by several. All are charged, or none.
    #[serde(default)]
    pub(super) keys: Vec<String>,
    /// Milliseconds to wait until the request is allowed, if the policy lets requests wait; 0 decides at once.
    #[serde(default)]
    pub(super) wait_ms: u64,
    /// Priority among those that wait; 0 is the most urgent.
    #[serde(default)]
    pub(super) priority: u32,
    /// Hint of the cost in advance. Used only if `cost` is 0 and the policy learns what to reserve.
    #[serde(default)]
    pub(super) hint: Option<CostHint>,
}

/// Hint of the cost of work in advance.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CostHint {
    /// Tokens of the input, which are used in any case. They are reserved in addition to what is learned of the rest.
    #[serde(default)]
    input_tokens: u64,
    /// Maximum number of tokens that the work uses beyond its input, if there is one.
    #[serde(default)]
    max_tokens: Option<u64>,
    /// Kind of work, such as the name of a model. Reservations are learned for each kind separately.
    #[serde(default)]
    class: String,
}

impl CostHint {
    /// Returns the hint for the engine.
    pub(super) fn read(&self) -> engine::CostHint<'_> {
        let Self { input_tokens, max_tokens, class } = self;
        engine::CostHint { input_tokens: *input_tokens, max_tokens: *max_tokens, class }
    }
}

/// Releases an admission.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseRequest {
    /// The admission.
    pub(super) lease_id: String,
    /// The work failed by overload, which lowers an adaptive limit.
    #[serde(default)]
    pub(super) dropped: bool,
    /// The actual cost, which replaces the estimate. Without it the estimate stands.
    #[serde(default)]
    pub(super) actual_cost: Option<u64>,
    /// The work is no sample of the load, for example because the client disconnected.
    #[serde(default)]
    pub(super) ignored: bool,
    /// Duration of the work in milliseconds; 0 if the server is to measure it.
    #[serde(default)]
    pub(super) latency_ms: u64,
}

/// Admissions whose work is still running.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HeartbeatRequest {
    /// The admissions.
    pub(super) lease_ids: Vec<String>,
}

/// A request for units of a rate, to spend locally.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReserveRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// The key of the policy that the units are for.
    pub(super) key: String,
    /// Requested units; 0 means 1, or none if some are returned.
    #[serde(default)]
    pub(super) wants: u64,
    /// Minimum number of units: if fewer are available, none are leased. 0 means 1. At most `wants`; above the policy's
    /// maximum per lease, it counts as that maximum.
    #[serde(default)]
    pub(super) least: u64,
    /// Unspent units of an earlier lease, returned with this request.
    #[serde(default)]
    pub(super) returned: Option<Returned>,
    /// Further keys of the same call, for a rate that counts by one of them. Returned units need the same keys.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// Unspent units of one lease. A return counts once, and only while its window lasts.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Returned {
    /// The `return_id` of the lease.
    pub(super) return_id: String,
    /// Number of units.
    pub(super) units: u64,
}

/// A decision.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    /// True if the request is allowed.
    allowed: bool,
    /// Maximum number of units that the binding limit allows.
    limit: u64,
    /// Number of units left after this decision.
    remaining: u64,
    /// Time at which the limit is full again, in milliseconds since the Unix epoch.
    reset_at: u64,
    /// Milliseconds to wait before a retry; 0 if there is nothing to wait for.
    retry_after_ms: u64,
    /// Retry advice.
    retry: RetryName,
    /// Guarantee of the decision.
    guarantee: GuaranteeName,
    /// For `bounded`: at most this many units beyond the limit.
    overshoot_bound: u64,
    /// The axis that denied: `concurrency`, `rate`, `cost` or `fairness`. Empty if none did.
    binding_axis: String,
    /// Name of the limit that denied, as in the policy file. Empty if none did, or if it has no name.
    limit_name: String,
    /// Denied by a price, not by a limit.
    policy_denied: bool,
    /// Allowed, though a policy in shadow mode would have denied.
    shadow_denied: bool,
}

/// Retry advice for a caller.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RetryName {
    /// No wait.
    Now,
    /// The same request is allowed after the wait, if there are no others meanwhile.
    After,
    /// The same request is allowed when a slot is released. The wait is an estimate.
    OnRelease,
    /// The same request can never be allowed. The wait is a day, for clients that ignore this field.
    Never,
}

/// Guarantee of a decision.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum GuaranteeName {
    /// The limit itself holds.
    Exact,
    /// At most `overshoot_bound` units beyond the limit.
    Bounded,
    /// The store did not respond; this server's share of the limit holds.
    Local,
    /// The store did not respond, and the request was allowed without counting.
    Open,
    /// The store did not respond, and the request was denied for that reason.
    Closed,
}

/// One decision.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decided {
    /// The decision.
    pub(super) decision: Decision,
}

/// A decision for each key.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DecidedMany {
    /// One for each key, in the same order.
    pub(super) decisions: Vec<Decision>,
}

/// Units that a key may spend.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Forecast {
    /// Number of requests of that cost that would be allowed now.
    spendable_now: u64,
    /// Time at which the next unit is replenished.
    next_replenish_at: u64,
    /// Time at which the limit is full again.
    full_at: u64,
}

/// A forecast.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Forecasted {
    /// Units that the key may spend.
    pub(super) forecast: Forecast,
}

/// The response to a request on every axis.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Admitted {
    /// The decision.
    pub(super) decision: Decision,
    /// ID of the admission, for its release. Empty if denied, or if nothing is held.
    pub(super) lease_id: String,
    /// Time at which the admission expires without a heartbeat.
    pub(super) lease_expires_at: u64,
    /// Milliseconds for which the admission lasts without a heartbeat; 0 if nothing is held. A holder counts from when
    /// it sent the request, on its own clock, plus `waited_ms`.
    pub(super) lease_for_ms: u64,
    /// Milliseconds that the request waited on the server, rounded down.
    pub(super) waited_ms: u64,
    /// Tokens that were reserved for a request without a cost, if the policy learns. Otherwise 0.
    pub(super) reserved: u64,
}

/// An empty response.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {}

/// State of the admissions.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Renewed {
    /// Still held, and renewed.
    pub(super) live_ids: Vec<String>,
    /// No longer held.
    pub(super) reclaimed_ids: Vec<String>,
    /// Time at which the first of the live ones expires without a heartbeat; 0 if there is none.
    pub(super) next_deadline: u64,
}

/// A lease of units of a rate.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lease {
    /// Units to spend; 0 if none were left.
    capacity: u64,
    /// Time at which it expires, by the server's clock. Holders should prefer lease_for_ms.
    expiry_ms: u64,
    /// Milliseconds after which to renew.
    refresh_interval_ms: u64,
    /// Units that a holder may go on with when it cannot reach the server.
    safe_capacity: u64,
    /// With no capacity: milliseconds to wait before a retry.
    retry_after_ms: u64,
    /// Maximum number of units that the limit allows.
    limit: u64,
    /// Milliseconds for which it lasts. A holder counts from when it sent the request, on its own clock.
    lease_for_ms: u64,
    /// ID of the lease, for returning unspent units. Empty if they cannot be returned.
    return_id: String,
}

/// A response with a lease of units.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lent {
    /// The lease.
    pub(super) lease: Lease,
}

impl From<throttlekit_proto::v1::Lease> for Lease {
    fn from(lease: throttlekit_proto::v1::Lease) -> Self {
        Self {
            capacity: unsigned(lease.capacity),
            expiry_ms: unsigned(lease.expiry_ms),
            refresh_interval_ms: unsigned(lease.refresh_interval_ms),
            safe_capacity: unsigned(lease.safe_capacity),
            retry_after_ms: unsigned(lease.retry_after_ms),
            limit: unsigned(lease.limit),
            lease_for_ms: unsigned(lease.lease_for_ms),
            return_id: lease.return_id,
        }
    }
}

impl From<&Answered> for Decision {
    fn from(answer: &Answered) -> Self {
        let decided = &answer.decision;
        Self {
            allowed: decided.allowed,
            limit: number(decided.limit),
            remaining: number(decided.remaining),
            reset_at: at(decided.reset_at),
            retry_after_ms: unsigned(retry_millis(decided.retry_after)),
            retry: match decided.retry_after {
                Retry::Now => RetryName::Now,
                Retry::After(_) => RetryName::After,
                Retry::OnRelease => RetryName::OnRelease,
                Retry::Never => RetryName::Never,
            },
            guarantee: match answer.guarantee {
                Guarantee::Exact => GuaranteeName::Exact,
                Guarantee::Bounded(_) => GuaranteeName::Bounded,
                Guarantee::Local => GuaranteeName::Local,
                Guarantee::Open => GuaranteeName::Open,
                Guarantee::Closed => GuaranteeName::Closed,
            },
            overshoot_bound: unsigned(overshoot(answer.guarantee)),
            binding_axis: axis_name(answer.binding_axis),
            limit_name: limit_name(answer),
            policy_denied: answer.policy_denied,
            shadow_denied: answer.shadow_denied,
        }
    }
}

impl From<throttlekit::rate::Forecast> for Forecast {
    fn from(forecast: throttlekit::rate::Forecast) -> Self {
        Self {
            spendable_now: number(forecast.spendable_now),
            next_replenish_at: at(forecast.next_replenish_at),
            full_at: at(forecast.full_at),
        }
    }
}

/// Converts an instant to milliseconds since the Unix epoch.
pub(super) fn at(instant: Timestamp) -> u64 {
    unsigned(millis_at(instant))
}

pub(super) fn unsigned(signed: i64) -> u64 {
    number(u64::try_from(signed).unwrap_or(0))
}

pub(super) fn number(number: u64) -> u64 {
    number.min(NUMBER_MAX)
}
