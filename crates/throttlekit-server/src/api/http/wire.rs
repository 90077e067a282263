//! The JSON documents. Fields are named as in `throttlekit.v1`; times and waits are milliseconds, rounded up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throttlekit::{Guarantee, Retry, Timestamp};

use crate::engine::Answered;
use crate::wire_format::{axis_name, millis_at, overshoot, retry_millis};

/// The largest number that every JSON reader holds exactly. Larger ones are told as this.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// An ask for one key.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// Who asks.
    pub(super) key: String,
    /// Units asked for; 0 means 1.
    #[serde(default)]
    pub(super) cost: u64,
    /// Further keys of the same call, for policies that limit by several. All are charged, or none.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// Asks for many keys, each on its own.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckManyRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// Who asks.
    pub(super) keys: Vec<String>,
    /// Units asked for each key; 0 means 1.
    #[serde(default)]
    pub(super) cost: u64,
    /// Further keys of each call, for policies that limit by several: as many entries as there are keys, or none at all.
    #[serde(default)]
    pub(super) others: Vec<Vec<String>>,
}

/// A question about one key. It charges nothing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PeekRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// Whose state.
    pub(super) key: String,
    /// Further keys of the same call, for policies that limit by several.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// A question about what one key may spend.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForecastRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// Whose state.
    pub(super) key: String,
    /// Units of one ask; 0 means 1.
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
    /// Whose budget. Not needed beside a lease.
    #[serde(default)]
    pub(super) key: String,
    /// Tokens used since the last debit; 0 means 1.
    #[serde(default)]
    pub(super) tokens: u64,
    /// Names a stream of debits: 32 random hexadecimal digits. With a number, a debit that is sent again counts once.
    #[serde(default)]
    pub(super) stream: String,
    /// Which debit of the stream this is. It rises by one from 1.
    #[serde(default)]
    pub(super) number: u64,
    /// Counts against the admission that is held under this id, instead of the key alone.
    #[serde(default)]
    pub(super) lease_id: String,
    /// Further keys of the same call, for budgets that go by one of them. Not needed beside a lease.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// An ask on every axis.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AdmitRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// Who asks.
    pub(super) key: String,
    /// Estimated cost; 0 means 1.
    #[serde(default)]
    pub(super) cost: u64,
    /// How many milliseconds the work is expected to hold its slot; 0 if unknown.
    #[serde(default)]
    pub(super) hold: u64,
    /// What the work is worth, for policies that price; 0 means 1.
    #[serde(default)]
    pub(super) value: u64,
    /// Further keys of the same call, for policies that limit by several. All are charged, or none.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// Gives an admission back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseRequest {
    /// The admission.
    pub(super) lease_id: String,
    /// The work failed by overload, which tells the guard to admit less.
    #[serde(default)]
    pub(super) dropped: bool,
    /// The true cost, which replaces the estimate. Without it the estimate stands.
    #[serde(default)]
    pub(super) actual_cost: Option<u64>,
    /// The work says nothing about load, so no sample is taken: the client went away, say.
    #[serde(default)]
    pub(super) ignored: bool,
    /// How long the work took; 0 leaves the measuring to the server.
    #[serde(default)]
    pub(super) latency_ms: u64,
}

/// Admissions whose work still runs.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HeartbeatRequest {
    /// The admissions.
    pub(super) lease_ids: Vec<String>,
}

/// An ask for units of a rate, to spend without asking.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReserveRequest {
    /// The policy by name.
    pub(super) policy: String,
    /// Which key of the policy the units are for.
    pub(super) key: String,
    /// Units wanted; 0 means 1, or none where some are handed back.
    #[serde(default)]
    pub(super) wants: u64,
    /// Fewer units than this are of no use: then none are lent. 0 means 1. At most `wants`; above what the policy lends at
    /// once, it counts as that.
    #[serde(default)]
    pub(super) least: u64,
    /// Unspent units of an earlier lease, handed back with this ask.
    #[serde(default)]
    pub(super) returned: Option<Returned>,
    /// Further keys of the same call, for a rate that goes by one of them. What is handed back names the same keys.
    #[serde(default)]
    pub(super) keys: Vec<String>,
}

/// Unspent units of one lease. A return counts once, and only while its window lasts.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Returned {
    /// The lease, as its return_id named it.
    pub(super) return_id: String,
    /// How many.
    pub(super) units: u64,
}

/// What was decided.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    /// Whether the ask may go on.
    allowed: bool,
    /// What the binding limit admits at most.
    limit: u64,
    /// What is left after this answer.
    remaining: u64,
    /// When the limit is whole again, in milliseconds since the Unix epoch.
    reset_at: u64,
    /// How long to wait before asking again; 0 where there is nothing to wait for.
    retry_after_ms: u64,
    /// What to do about waiting.
    retry: RetryName,
    /// What the answer is worth.
    guarantee: GuaranteeName,
    /// For `bounded`: at most this many units beyond the limit.
    overshoot_bound: u64,
    /// The axis that denied: `concurrency`, `rate`, `cost` or `fairness`. Empty if none did.
    binding_axis: String,
    /// Denied by a price, not by a limit.
    policy_denied: bool,
    /// Allowed, though a policy that is only being tried would have denied.
    shadow_denied: bool,
}

/// What a caller should do about waiting.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RetryName {
    /// No wait.
    Now,
    /// The same ask passes after the wait, if nobody else asks meanwhile.
    After,
    /// The same ask passes when someone gives a slot back. The wait is a guess.
    OnRelease,
    /// The same ask can never pass. The wait is a day, for clients that know no better.
    Never,
}

/// What an answer is worth.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum GuaranteeName {
    /// The limit itself holds.
    Exact,
    /// At most `overshoot_bound` units beyond the limit.
    Bounded,
    /// The store did not answer; this server's share of the limit holds.
    Local,
    /// The store did not answer, and the ask passed uncounted.
    Open,
    /// The store did not answer, and the ask was refused for that.
    Closed,
}

/// One decision.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decided {
    /// What was decided.
    pub(super) decision: Decision,
}

/// A decision for each key.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DecidedMany {
    /// One for each key, in the same order.
    pub(super) decisions: Vec<Decision>,
}

/// What a key may spend.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Forecast {
    /// How many asks of that cost would pass now.
    spendable_now: u64,
    /// When the next unit comes back.
    next_replenish_at: u64,
    /// When the limit is whole again.
    full_at: u64,
}

/// A forecast.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Forecasted {
    /// What the key may spend.
    pub(super) forecast: Forecast,
}

/// The answer to an ask on every axis.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Admitted {
    /// What was decided.
    pub(super) decision: Decision,
    /// Names the admission, to be released. Empty if denied, or if nothing is held.
    pub(super) lease_id: String,
    /// When the admission lapses unless a heartbeat comes.
    pub(super) lease_expires_at: u64,
    /// How long the admission lasts without a heartbeat; 0 if nothing is held. A holder counts from when it sent the
    /// request, on its own clock.
    pub(super) lease_for_ms: u64,
}

/// Nothing to tell.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Released {}

/// Which admissions are held.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Beaten {
    /// Still held, and held for longer now.
    pub(super) live_ids: Vec<String>,
    /// No longer held.
    pub(super) reclaimed_ids: Vec<String>,
    /// When the first of the live ones lapses unless a heartbeat comes; 0 if there is none.
    pub(super) next_deadline: u64,
}

/// Units of a rate, lent.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lease {
    /// Units to spend; 0 if none were left.
    capacity: u64,
    /// When it ends, by the server's clock. Holders that know lease_for_ms go by that.
    expiry_ms: u64,
    /// How soon to ask again.
    refresh_interval_ms: u64,
    /// Units that a holder may go on with when it cannot ask.
    safe_capacity: u64,
    /// With no capacity: how long to wait before asking again.
    retry_after_ms: u64,
    /// What the limit admits at most.
    limit: u64,
    /// How long it lasts. A holder counts from when it sent the request, on its own clock.
    lease_for_ms: u64,
    /// Names the lease, to hand unspent units back. Empty if they cannot be handed back.
    return_id: String,
}

/// What was lent.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lent {
    /// What was lent.
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
            policy_denied: answer.policy_denied,
            shadow_denied: answer.shadow_denied,
        }
    }
}

impl From<throttlekit::Forecast> for Forecast {
    fn from(forecast: throttlekit::Forecast) -> Self {
        Self {
            spendable_now: number(forecast.spendable_now),
            next_replenish_at: at(forecast.next_replenish_at),
            full_at: at(forecast.full_at),
        }
    }
}

/// An instant.
pub(super) fn at(instant: Timestamp) -> u64 {
    unsigned(millis_at(instant))
}

pub(super) fn unsigned(signed: i64) -> u64 {
    number(u64::try_from(signed).unwrap_or(0))
}

fn number(number: u64) -> u64 {
    number.min(NUMBER_MAX)
}
