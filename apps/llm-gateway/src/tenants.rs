//! The gateway's configuration: tenants and their limits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// Configuration file of the gateway.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// URL of the model's server: `https://host` or `http://host:port`, without the path.
    pub upstream: String,
    /// The gateway's own key there, if it needs one. No tenant's key is ever sent on.
    #[serde(default)]
    pub upstream_key: Option<String>,
    /// Tokens that all tenants together may use per window.
    pub capacity: u64,
    /// Gateways fetch tokens of the capacity in multiples of this. Smaller values are fairer.
    #[serde(default)]
    pub quantum: Option<u64>,
    /// Length of a window, in milliseconds. Default: a minute.
    #[serde(default = "minute_ms")]
    pub window_ms: u64,
    /// Expected maximum of generated tokens for requests without an output limit.
    #[serde(default = "max_tokens_default")]
    pub max_tokens_default: u64,
    /// Field by which that limit is added to chat completions that have none. Default: it is not added, because some
    /// models reject the one name, some the other.
    #[serde(default)]
    pub bound_by: Option<Bound>,
    /// Maximum number of tokens reserved for a request before it runs. Smaller values are fairer. Default: so that all
    /// concurrent requests of a tenant can begin, and at least eight.
    #[serde(default)]
    pub set_aside_max: Option<u64>,
    /// The tenants.
    pub tenants: Vec<Tenant>,
}

/// The names of the limit to what is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The older one.
    MaxTokens,
    /// The newer one, which models that reason take.
    MaxCompletionTokens,
}

impl Bound {
    /// As it is on the wire.
    pub const fn label(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// A tenant and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Name under which requests are counted. Several keys with one name count together.
    pub name: String,
    /// Its key, sent as `Authorization: Bearer <key>` or `x-api-key: <key>`.
    pub key: String,
    /// Weight of its share of the capacity.
    pub weight: u64,
    /// Requests per minute.
    pub rpm: u64,
    /// Tokens per window.
    pub tpm: u64,
    /// Concurrent requests.
    pub concurrency: u32,
}

/// Minimum number of requests that can begin at the same time, even if fewer may be in flight: something must be left
/// for what a request actually needs, and for the next.
const BEGIN_AT_ONCE: u64 = 8;

fn minute_ms() -> u64 {
    60_000
}

fn max_tokens_default() -> u64 {
    4_096
}

impl Config {
    /// From JSON, checked.
    pub fn parse(text: &str) -> Result<Self> {
        let config: Self = serde_json::from_str(text)?;
        let is_url = ["https://", "http://"].iter().any(|scheme| config.upstream.starts_with(scheme));
        ensure!(is_url, "upstream: expected https://host or http://host:port");
        ensure!(!config.tenants.is_empty(), "tenants: expected at least one tenant");
        for (nth, tenant) in config.tenants.iter().enumerate() {
            let before = &config.tenants[..nth];
            ensure!(
                before.iter().all(|other| other.key != tenant.key),
                "{}: the key is used by another entry; each key must be unique",
                tenant.name
            );
            let same = |other: &Tenant| Tenant { key: tenant.key.clone(), ..other.clone() } == *tenant;
            let agrees = before.iter().all(|other| other.name != tenant.name || same(other));
            ensure!(agrees, "{}: the keys of one tenant must have the same limits", tenant.name);
        }
        Ok(config)
    }

    /// The most that a tenant may ever have in a window.
    pub fn budget(&self, tenant: &Tenant) -> u64 {
        tenant.tpm.min(self.capacity)
    }

    /// The most that is set aside for a completion of this tenant.
    pub fn set_aside_max(&self, tenant: &Tenant) -> u64 {
        let each = self.budget(tenant) / u64::from(tenant.concurrency).max(BEGIN_AT_ONCE);
        self.set_aside_max.unwrap_or(u64::MAX).min(each)
    }

    /// Returns the length of a window.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }

    /// Returns the weight of each tenant, by name.
    pub fn weights(&self) -> HashMap<Vec<u8>, u64> {
        self.tenants.iter().map(|tenant| (tenant.name.clone().into_bytes(), tenant.weight)).collect()
    }

    /// Returns the tenants by key. The map uses a secret hash, so the time of a lookup reveals nothing about a key.
    pub fn by_key(&self) -> HashMap<String, Arc<Tenant>> {
        self.tenants.iter().map(|tenant| (tenant.key.clone(), Arc::new(tenant.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(tenants: &[(&str, &str, u64)]) -> Result<Config> {
        let tenant = |&(name, key, rpm): &(&str, &str, u64)| json!({ "name": name, "key": key, "weight": 1, "rpm": rpm, "tpm": 1000, "concurrency": 2 });
        let tenants: Vec<Value> = tenants.iter().map(tenant).collect();
        let all = json!({ "upstream": "http://127.0.0.1:9", "capacity": 9000, "tenants": tenants });
        Config::parse(&all.to_string())
    }

    #[test]
    fn a_tenant_may_have_several_keys_and_a_key_one_tenant() {
        assert_eq!(config(&[("acme", "a", 5), ("acme", "b", 5)]).unwrap().by_key().len(), 2);
        assert!(config(&[("acme", "a", 5), ("other", "a", 5)]).is_err());
        assert!(config(&[("acme", "a", 5), ("acme", "b", 6)]).is_err());
        assert!(config(&[]).is_err());
    }
}
