//! The types of a policy file, field by field.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::AccessSpec;
use super::envoy::DomainSpec;
use super::span::Span;

/// A policy file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// The version of this format: 1.
    pub version: u32,
    /// Defaults for all policies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub defaults: Defaults,
    /// The policies, by name.
    #[serde(default)]
    pub policies: BTreeMap<String, PolicySpec>,
    /// Rules that map descriptors of Envoy's rate limit filter to policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub envoy: Vec<DomainSpec>,
    /// Access rights of callers. Without it, every caller may use every API.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub access: Option<AccessSpec>,
}

/// Defaults for all policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// Fallback while the store is unavailable. Default: `closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_outage: Option<OutageSpec>,
}

/// One policy: the axes that a request must pass, all in one decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Rates: one limit, or several that must all allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::one_or_many")]
    #[schemars(with = "super::OneOrMany<RateSpec>")]
    pub rate: Vec<RateSpec>,
    /// Token budgets, charged after the work is done: one, or several that must all allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::one_or_many")]
    #[schemars(with = "super::OneOrMany<CostSpec>")]
    pub cost: Vec<CostSpec>,
    /// Limit of concurrent requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencySpec>,
    /// One budget that all keys share by weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair: Option<FairSpec>,
    /// Minimum value of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceSpec>,
    /// Learns how many tokens to reserve for a call of Admit without a cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn: Option<LearnSpec>,
    /// Lets clients lease units of its limit and spend them locally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSpec>,
    /// Lets calls of Admit wait until they are allowed, in order. Without it, every call is decided at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitSpec>,
    /// Fallback while the store is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_outage: Option<OutageSpec>,
    /// Shadow mode: decides and counts, but allows everything, to try a policy on real traffic.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shadow: bool,
    /// Allows everything without deciding, to disable a policy at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
    /// Denies everything without counting, to block a policy at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deny: bool,
    /// Other limits for some keys: by the whole key, or by a prefix that ends in `*`. The longest match applies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, OverrideSpec>,
}

/// Limits for some keys. What is omitted stays as in the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideSpec {
    /// Rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::one_or_many")]
    #[schemars(with = "super::OneOrMany<RateSpec>")]
    pub rate: Vec<RateSpec>,
    /// Token budgets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::one_or_many")]
    #[schemars(with = "super::OneOrMany<CostSpec>")]
    pub cost: Vec<CostSpec>,
    /// Always allows these keys, without deciding.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unlimited: bool,
    /// Always denies these keys, without counting.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deny: bool,
}

/// Algorithm of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Algorithm {
    /// A smooth rate, with a burst after idle time.
    #[default]
    Gcra,
    /// A bucket of `burst` units that refills at `limit` per `per`.
    TokenBucket,
    /// `limit` units in each window of length `per`.
    FixedWindow,
    /// `limit` units in any `per`, approximately.
    SlidingWindow,
    /// `limit` units in any `per`, exactly.
    SlidingLog,
    /// `limit` units per day, week or month of the calendar.
    Quota,
}

/// A rate limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateSpec {
    /// Name that distinguishes it from the policy's other rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Algorithm.
    #[serde(default, skip_serializing_if = "is_default")]
    pub algorithm: Algorithm,
    /// Number of units.
    pub limit: u64,
    /// Period: `1s`, `1m`, `1h`, `1d`; for a quota `day`, `week` or `month`.
    pub per: Period,
    /// Maximum number of units at once after idle time. Default: `limit`. GCRA and token buckets only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Number of buckets of a sliding window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u32>,
    /// Reports the wait until the next bucket of a sliding window, as version 1 of the wire did. It may be too early.
    #[serde(default, skip_serializing_if = "is_default")]
    pub early_retry: bool,
    /// Minutes east of UTC at which a quota's day begins.
    #[serde(default, skip_serializing_if = "is_default")]
    pub utc_offset_minutes: i32,
    /// First day of the week, for a quota per `week`. Default: `monday`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub week_starts: Option<WeekdaySpec>,
    /// Day of the month on which a quota per `month` begins, 1 to 31; in a month with fewer days, on its last. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month_starts: Option<u8>,
    /// Time zone by whose clocks a quota's days begin, such as `Europe/Berlin`: a name of the IANA database. Default: a
    /// fixed offset, `utc_offset_minutes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Beginning of one window of a fixed window, such as `2026-12-01T06:00:00Z`; all others follow from it. Default:
    /// the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// Index of the call's key to count by: 0 is the key itself, 1 the first of the further keys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: u8,
    /// Leases units in batches from the store and spends them in the server: fewer round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseSpec>,
}

/// A duration, a part of the calendar, or all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
#[non_exhaustive]
pub enum Period {
    /// A day, a week or a month of the calendar.
    Calendar(CalendarPart),
    /// A duration.
    Span(Span),
    /// All time, for a token budget that never resets.
    Total(TotalPart),
}

/// All time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum TotalPart {
    Total,
}

/// A part of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CalendarPart {
    /// From midnight to midnight.
    Day,
    /// From Monday, or the day that `week_starts` names.
    Week,
    /// From the first to the last, or from the day that `month_starts` names.
    Month,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum WeekdaySpec {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// Calls to the store that a limit makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LeaseMode {
    /// One per batch for frequent keys; one per request for the others.
    #[default]
    Auto,
    /// One per batch.
    Leased,
    /// One per request, unless a cached denial still applies.
    CachedDeny,
}

/// Leasing of units in batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseSpec {
    /// Calls to the store.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: LeaseMode,
    /// Units per batch. Default: learned from the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Time for which units of a smooth rate are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
}

/// A token budget per window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostSpec {
    /// Name that distinguishes it from the policy's other budgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of tokens. The debit that exceeds the budget is counted in full, later ones are denied.
    pub budget: u64,
    /// Length of the windows, a part of the calendar, or `total`: the tokens never come back.
    pub per: Period,
    /// Minutes east of UTC at which a day begins.
    #[serde(default, skip_serializing_if = "is_default")]
    pub utc_offset_minutes: i32,
    /// First day of the week, for a budget per `week`. Default: `monday`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub week_starts: Option<WeekdaySpec>,
    /// Day of the month on which a budget per `month` begins, 1 to 31; in a month with fewer days, on its last. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month_starts: Option<u8>,
    /// Time zone by whose clocks a budget's days begin, such as `Europe/Berlin`: a name of the IANA database. Default: a
    /// fixed offset, `utc_offset_minutes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Beginning of one window, if `per` is a duration; all others follow from it. Default: the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// Index of the call's key to count by. Of a list, the call is counted once on each of its keys, in the same counts:
    /// a run draws on itself and on the runs that it is a part of. All but the first may be missing. Default: 0.
    #[serde(default = "first_key", skip_serializing_if = "is_first_key")]
    #[serde(deserialize_with = "super::one_or_many_indexes")]
    #[schemars(with = "super::OneOrMany<u8>")]
    pub by: Vec<u8>,
}

/// Calls whose slots are counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scope {
    /// All calls of this server instance.
    #[default]
    Instance,
    /// All calls of each key at this server instance.
    InstanceKey,
    /// All calls of each key at all instances, counted on the store.
    Key,
    /// All calls at all instances, which divide the limit among them.
    Fleet,
}

/// A limit of concurrent requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencySpec {
    /// The limit; if it is adaptive, the initial one.
    pub limit: u32,
    /// Calls that are counted together.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scope: Scope,
    /// Adapts the limit to the latency of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveSpec>,
    /// Time without a heartbeat after which a client's slot is freed. Default: 2 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_for: Option<Span>,
}

/// Adaptation of a limit to latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveSpec {
    /// Minimum limit.
    pub min: u32,
    /// Maximum limit.
    pub max: u32,
    /// Estimator. Default: `gradient`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub algorithm: EstimatorSpec,
}

/// Estimator of an adaptive limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EstimatorSpec {
    /// By the ratio of the latency without load to the current one.
    #[default]
    Gradient,
    /// Increases by one, decreases by a fraction when work is dropped.
    Aimd,
}

/// One budget that all keys share by weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FairSpec {
    /// Number of units that all keys share.
    pub limit: u64,
    /// Length of the windows.
    pub per: Span,
    /// Weights of keys: by the whole key, or by a prefix that ends in `*`. The longest match applies. Default: 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
    /// Shares the budget between regions as well: each instance sets its region when it starts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub regions: bool,
    /// Maximum number of tenants tracked separately in a window. Default: 65,536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants_max: Option<usize>,
}

/// Minimum value of a call: `rate + cost · tokens + hold · seconds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceSpec {
    /// Per call.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate: f64,
    /// Per token.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: f64,
    /// Per second that a slot is held.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold: f64,
}

/// Reservations that are learned from the use of earlier calls, for each key and class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LearnSpec {
    /// Maximum number of tokens to reserve beyond the input. Default: 4,096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// Leasing of units to clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetSpec {
    /// Maximum number of units per reservation. Default: 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_max: Option<u64>,
    /// A reservation gets at most one in `n` of the units left. Default: 1, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u64>,
}

/// Waiting of calls that are not allowed yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// Maximum time that a call waits, up to 5 s. A call that asks for less waits for less.
    pub max: Span,
    /// Maximum number of calls that wait in one server, of all keys together; one more is denied at once. Default:
    /// 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
}

/// Fallback while the store is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum OutageSpec {
    /// Fail closed: denies everything.
    #[default]
    Closed,
    /// Fail open: allows everything, without counting.
    Open,
    /// Local: this instance continues with its share, the limit divided by the number of instances.
    Local {
        /// Maximum number of instances.
        nodes: std::num::NonZeroU32,
    },
}

/// Deserializes a value that is present: an empty value is an error, and not the same as an omitted one.
fn said<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

fn first_key() -> Vec<u8> {
    vec![0]
}

fn is_first_key(by: &[u8]) -> bool {
    by == [0]
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
