//! What a policy file says about who may ask.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Door;

/// Who may ask what: each principal, how it is known, and what it may use. What is not listed is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessSpec {
    /// What callers may that show neither a token nor a known certificate. Nothing unless stated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anonymous: Vec<GrantSpec>,
    /// The principals, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub principals: BTreeMap<String, PrincipalSpec>,
}

/// One principal: how it is known, by any of these, and what it may. The file never holds a secret itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrincipalSpec {
    /// The SHA-256 of its token, in 64 hexadecimal digits: `printf %s "$TOKEN" | sha256sum`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_sha256: Option<String>,
    /// The file that holds its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// The environment variable that holds its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// A name in its client certificate: a URI such as `spiffe://mesh/billing`, or `dns:host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// What it may. Nothing unless stated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<GrantSpec>,
}

/// Doors that may be used for some policies and some keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantSpec {
    /// The doors.
    pub doors: Vec<Door>,
    /// The policies, by name, or by the beginning of a name before a `*`. Any unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<String>>,
    /// What keys must begin with. Any unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
}
