//! Rules that map Envoy's descriptors to policies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The descriptors of one domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainSpec {
    /// The domain, as in Envoy's filter.
    pub domain: String,
    /// Rules that map descriptors to policies. The most specific one applies: entry by entry, an exact value before the
    /// longest prefix before any value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSpec>,
    /// Matches entries as envoyproxy/ratelimit walks its tree: the best match of an entry is final, though another
    /// might lead further. If it leads nowhere, nothing is limited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tree: bool,
    /// Headers that are added to responses.
    #[serde(default, skip_serializing_if = "HeadersSpec::is_default")]
    pub headers: HeadersSpec,
    /// Adds the decisions to responses as dynamic metadata, for access logs and filters of Envoy. Costs as much processor
    /// time as the decision.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metadata: bool,
}

/// Headers that this server adds to responses. Envoy adds its own `x-ratelimit-*` if configured to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeadersSpec {
    /// `retry-after` on denials for which waiting helps, which Envoy does not add.
    #[default]
    RetryAfter,
    /// Also `x-ratelimit-limit`, `-remaining` and `-reset`, for an Envoy that does not add them.
    All,
    /// `retry-after`, and `ratelimit` and `ratelimit-policy` of the IETF draft, with a member for each policy.
    Draft,
    /// All of these.
    Both,
    /// None.
    None,
}

/// Descriptors that one policy applies to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Entries that a descriptor must have, in this order.
    pub entries: Vec<EntrySpec>,
    /// Name of the policy. Omitted if `unlimited` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Always allows these descriptors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
    /// Names of policies that are not checked for other descriptors of a request that has one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// Counts hits in full, even beyond the limit, since the work is done: for `apply_on_stream_done`. A policy with only
    /// a `cost` always does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debit: bool,
    /// Uses the `limit` of a descriptor, if it has one, in place of that of the policy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_limit_override: bool,
    /// Returns the hits of descriptors with `is_negative_hits`. Units of an earlier window go to the present one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_refunds: bool,
}

/// One entry of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntrySpec {
    /// Its key.
    pub key: String,
    /// Its value: exact, or a prefix that ends in `*`. Without it any value matches, and each is counted separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Counts all values that a prefix matches together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Index of the policy's key that the value is a part of: 0 is the key itself, 1 the first of the further keys.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub by: u8,
}

impl HeadersSpec {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(by: &u8) -> bool {
    *by == 0
}
