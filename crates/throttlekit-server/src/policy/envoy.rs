//! Rules that map Envoy's descriptors to policies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The descriptors of one domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainSpec {
    /// The domain, as Envoy's filter names it.
    pub domain: String,
    /// Which descriptors go by which policy. The most specific one counts: entry by entry, an exact value before the
    /// longest prefix before any value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSpec>,
    /// Goes down the entries as envoyproxy/ratelimit goes down its tree: the best match of an entry is kept, though
    /// another might lead further. Where it leads nowhere, nothing is limited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tree: bool,
    /// Which headers go with responses.
    #[serde(default, skip_serializing_if = "HeadersSpec::is_default")]
    pub headers: HeadersSpec,
}

/// Which headers this server adds to responses. Envoy adds its own `x-ratelimit-*` where it is told to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadersSpec {
    /// `retry-after` on denials that waiting cures, which Envoy does not add.
    #[default]
    RetryAfter,
    /// `x-ratelimit-limit`, `-remaining` and `-reset` too: for an Envoy that does not add them.
    All,
    /// None.
    None,
}

/// Descriptors that go by one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// What a descriptor has to say, entry by entry, in this order.
    pub entries: Vec<EntrySpec>,
    /// The policy's name. None where `unlimited` stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// These descriptors always pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
}

/// One entry of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntrySpec {
    /// Its key.
    pub key: String,
    /// Its value: exact, or a prefix that ends in `*`. Without it any value matches, and each is counted by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// All values that a prefix matches are counted together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Which of the policy's keys its value is a part of: 0 is the key itself, 1 the first of the further keys.
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
