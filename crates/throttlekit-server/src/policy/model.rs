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
    /// What policies have that do not say otherwise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub defaults: Defaults,
    /// The policies, by name.
    #[serde(default)]
    pub policies: BTreeMap<String, PolicySpec>,
    /// How descriptors of Envoy's rate limit filter find their policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub envoy: Vec<DomainSpec>,
    /// Who may ask what. Without it, whoever reaches a door may use it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub access: Option<AccessSpec>,
}

/// What policies have that do not say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// What is answered while the store does not: `closed` unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_outage: Option<OutageSpec>,
}

/// One policy: any axes that a request must clear, all in one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// What people should know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How often: one limit, or several that must all allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::one_or_many")]
    #[schemars(with = "super::OneOrMany<RateSpec>")]
    pub rate: Vec<RateSpec>,
    /// How many tokens, known only after the work is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostSpec>,
    /// How many at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencySpec>,
    /// One budget that all keys share by weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair: Option<FairSpec>,
    /// What a call has to be worth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceSpec>,
    /// Whether clients may hold units of its limit and spend them by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSpec>,
    /// What is answered while the store does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_outage: Option<OutageSpec>,
    /// Decides and counts, and lets everything pass: to try a policy on real traffic.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shadow: bool,
    /// Lets everything pass without asking anyone: to take a policy out of the way at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
    /// Other limits for some keys: by the whole key, or by a prefix that ends in `*`. The longest match counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, OverrideSpec>,
}

/// What holds for some keys instead. What is not named stays as the policy has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideSpec {
    /// How often.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::one_or_many")]
    #[schemars(with = "super::OneOrMany<RateSpec>")]
    pub rate: Vec<RateSpec>,
    /// How many tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostSpec>,
    /// Nothing is asked for these keys: they always pass.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unlimited: bool,
}

/// Which rule a rate goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// A smooth pace, and a burst after quiet.
    #[default]
    Gcra,
    /// A bucket of `burst` units that refills at `limit` a `per`.
    TokenBucket,
    /// `limit` units in each window of length `per`.
    FixedWindow,
    /// `limit` units in any `per`, nearly.
    SlidingWindow,
    /// `limit` units in any `per`, exactly.
    SlidingLog,
    /// `limit` units a day, week or month of the calendar.
    Quota,
}

/// How often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateSpec {
    /// Its name, which tells it apart from the policy's others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which rule.
    #[serde(default, skip_serializing_if = "is_default")]
    pub algorithm: Algorithm,
    /// How many units.
    pub limit: u64,
    /// In how long: `1s`, `1m`, `1h`, `1d`; of a quota `day`, `week` or `month`.
    pub per: Period,
    /// How many units at once after quiet; as many as `limit` unless stated. GCRA and token buckets only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// In how many parts a sliding window is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u32>,
    /// Tells the wait until the next bucket of a sliding window, as version 1 of the wire did. It may be too early.
    #[serde(default, skip_serializing_if = "is_default")]
    pub early_retry: bool,
    /// Minutes east of UTC at which a quota's day begins.
    #[serde(default, skip_serializing_if = "is_default")]
    pub utc_offset_minutes: i32,
    /// By which of the call's keys: 0 is the key itself, 1 the first of the further keys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: u8,
    /// Fetches units in batches from the store and spends them in the server: fewer round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseSpec>,
}

/// A length of time, or a part of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum Period {
    /// A day, a week or a month of the calendar.
    Calendar(CalendarPart),
    /// So long.
    Span(Span),
}

/// A part of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarPart {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// From the first to the last.
    Month,
}

/// When the store is asked about a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseMode {
    /// For batches, for keys that are asked for often; about every ask for the others.
    #[default]
    Auto,
    /// For batches.
    Leased,
    /// About every ask that no denial covers which still holds.
    CachedDeny,
}

/// How units are fetched in batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseSpec {
    /// When the store is asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: LeaseMode,
    /// How many units at a time; learned from what comes unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// For how long units of a smooth rate are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Span>,
}

/// How many tokens in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostSpec {
    /// How many tokens. The debit that crosses the edge is counted in full, later ones are denied.
    pub budget: u64,
    /// In windows of this length, or by the calendar.
    pub per: Period,
    /// Minutes east of UTC at which a day begins.
    #[serde(default, skip_serializing_if = "is_default")]
    pub utc_offset_minutes: i32,
    /// By which of the call's keys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: u8,
}

/// Whose slots are counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All calls of this server instance.
    #[default]
    Instance,
    /// All calls of each key at this server instance.
    InstanceKey,
    /// All calls of each key at all instances, counted on the store.
    Key,
    /// All calls at all instances, which share the ceiling among them.
    Fleet,
}

/// How many at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencySpec {
    /// The ceiling; where it adapts, the one to begin with.
    pub limit: u32,
    /// Whose calls are counted together.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scope: Scope,
    /// Moves the ceiling with how long work takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveSpec>,
    /// After so long without a heartbeat a client's slot is free again; 2 s unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_for: Option<Span>,
}

/// How a ceiling follows latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveSpec {
    /// Never below.
    pub min: u32,
    /// Never above.
    pub max: u32,
    /// Which estimator: `gradient` unless stated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub algorithm: Estimator,
}

/// Which estimator moves a ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// By the ratio of the latency without load to that of now.
    #[default]
    Gradient,
    /// Up by one, down by a part when work is dropped.
    Aimd,
}

/// One budget that all keys share by weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FairSpec {
    /// How many units all keys have together.
    pub limit: u64,
    /// In windows of this length.
    pub per: Span,
    /// How much keys weigh; those not named weigh 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
    /// Shares the budget between regions as well: each instance of a region names it when it starts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub regions: bool,
    /// How many tenants of a window are kept apart; 100,000 unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants_max: Option<usize>,
}

/// What a call has to be worth: `rate + cost · tokens + hold · seconds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceSpec {
    /// For each call.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate: f64,
    /// For each token.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: f64,
    /// For each second that a slot is held.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold: f64,
}

/// How clients hold units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetSpec {
    /// The most units one reservation gets; 1,000,000 unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_max: Option<u64>,
    /// At most one in so many of the units left goes to one reservation; 1, all, unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u64>,
}

/// What is answered while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OutageSpec {
    /// Refusals.
    #[default]
    Closed,
    /// Everything passes, uncounted.
    Open,
    /// This instance's share goes on: the limit divided by so many instances.
    Local {
        /// How many instances there are at the most.
        nodes: std::num::NonZeroU32,
    },
}

/// Something that stands in the file is meant: nothing after its name is a mistake, and not the same as leaving it out.
fn said<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
