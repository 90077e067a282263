//! How descriptors find their policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The descriptors of one domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainSpec {
    /// The domain, as Envoy's filter names it.
    pub domain: String,
    /// Which descriptors go by which policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSpec>,
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
}
