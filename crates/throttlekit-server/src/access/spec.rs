//! What a policy file says about who may ask.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may ask what: each principal, how it is known, and what it may use. What is not listed is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessSpec {}
