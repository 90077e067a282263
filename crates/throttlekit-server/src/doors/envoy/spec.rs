//! How descriptors find their policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The descriptors of one domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainSpec {
    /// The domain, as Envoy's filter names it.
    pub domain: String,
}
