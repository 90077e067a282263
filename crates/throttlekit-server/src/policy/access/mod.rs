//! The access list of a policy file, and its checks that read no secret.

mod certificate;
mod grant;
mod token;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use certificate::judge_certificate;
pub(crate) use grant::Grant;
pub(crate) use token::{ListedToken, TOKENS_MAX, TokenLocation, judge_token, tokens};

/// Maximum number of principals of one file. At some 300 bytes each, their tables take 3 MB.
pub const PRINCIPALS_MAX: usize = 10_000;
/// Maximum weight of a principal.
const WEIGHT_MAX: u32 = 1_000;
pub(crate) const NO_CREDENTIAL: &str =
    "no credential: set token_sha256, token_file, token_env, tokens or certificate";

/// Access list: each principal, its credentials and its rights. What is not listed is denied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessSpec {
    /// Rights of callers without a token and without a known certificate. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anonymous: Vec<GrantSpec>,
    /// The principals, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub principals: BTreeMap<String, PrincipalSpec>,
}

/// One principal: its credentials, any of which suffices, and its rights. The file never holds a secret itself.
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
    /// Up to two tokens, each with its own expiry: the old and the new one while a token is rotated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenSpec>,
    /// A name in its client certificate: a URI such as `spiffe://mesh/billing`, or `dns:host`. A SPIFFE ID that ends in
    /// `/*` matches all names below it; the longest match applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Weight relative to other callers while the server is overloaded: 1 to 1000. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Rights. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<GrantSpec>,
}

/// One token: its location, exactly one of `sha256`, `file` and `env`, and its expiry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSpec {
    /// The SHA-256 of the token, in 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The file that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The environment variable that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Expiry, the instant from which on the token is refused, as an RFC 3339 date-time: `2026-12-01T00:00:00Z`.
    /// Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// Endpoints, as named in access lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Endpoint {
    /// Check, CheckMany: requests that are charged.
    Check,
    /// Peek, Forecast: show what other callers have left.
    Peek,
    /// Debit.
    Debit,
    /// Admit, Release, Heartbeat.
    Admit,
    /// Fleet.Reserve.
    Reserve,
    /// Envoy's rate limit service and external authorization.
    Envoy,
    /// The monitor, which shows keys.
    Monitor,
    /// Actions of operators, such as Reset. Needs an access list.
    Admin,
}

/// Endpoints that may be used for some policies and some keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantSpec {
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
    /// The policies, by name, or by a prefix before a `*`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<String>>,
    /// Prefix of the keys. Default: all keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
}

/// Validates a weight.
pub(crate) fn judge_weight(weight: Option<u32>) -> Result<NonZeroU32, String> {
    let weight = weight.unwrap_or(1);
    let found = NonZeroU32::new(weight).filter(|weight| weight.get() <= WEIGHT_MAX);
    found.ok_or_else(|| format!("invalid weight {weight}: expected 1 to {WEIGHT_MAX}"))
}
