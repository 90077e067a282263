//! The list of callers in a policy file, and its checks that read no secret.

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

/// Principals of one file. At some 300 bytes each, their tables take 3 MB.
pub const PRINCIPALS_MAX: usize = 10_000;
/// The most that a principal counts for beside others.
const WEIGHT_MAX: u32 = 1_000;
pub(crate) const NO_CREDENTIAL: &str =
    "nobody can be known as it: give token_sha256, token_file, token_env, tokens or certificate";

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
    /// Up to two tokens, each with its own expiry: the old and the new one while a token is rotated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenSpec>,
    /// A name in its client certificate: a URI such as `spiffe://mesh/billing`, or `dns:host`. A SPIFFE ID that ends in
    /// `/*` stands for all names below it; the longest that fits wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// What it counts for beside others while there is more to decide than the server can: 1 to 1000, 1 unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// What it may. Nothing unless stated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<GrantSpec>,
}

/// One token: where it is kept, by exactly one of `sha256`, `file` and `env`, and until when it is valid.
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
    /// The instant from which on the token is refused, as an RFC 3339 date-time: `2026-12-01T00:00:00Z`. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// Endpoints, as allow-lists name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// Check, CheckMany: asks that are charged.
    Check,
    /// Peek, Forecast: looks at what others have left.
    Peek,
    /// Debit.
    Debit,
    /// Admit, Release, Heartbeat.
    Admit,
    /// Fleet.Reserve.
    Reserve,
    /// Envoy's rate limit service.
    Envoy,
    /// The monitor, which shows keys.
    Monitor,
}

/// Endpoints that may be used for some policies and some keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantSpec {
    /// The endpoints.
    pub doors: Vec<Endpoint>,
    /// The policies, by name, or by the beginning of a name before a `*`. Any unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<String>>,
    /// What keys must begin with. Any unless stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
}

/// What a principal counts for beside others.
pub(crate) fn judge_weight(weight: Option<u32>) -> Result<NonZeroU32, String> {
    let weight = weight.unwrap_or(1);
    let found = NonZeroU32::new(weight).filter(|weight| weight.get() <= WEIGHT_MAX);
    found.ok_or_else(|| format!("weight is {weight}: it is 1 to {WEIGHT_MAX}"))
}
