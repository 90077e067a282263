//! Who may ask, and how much: the gateway's configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// What the gateway is told in its file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// URL of the model's server: `https://host` or `http://host:port`, without the path.
    pub upstream: String,
    /// The gateway's own key there, if it needs one. No tenant's key is ever sent on.
    #[serde(default)]
    pub upstream_key: Option<String>,
    /// How many tokens the model gives to all tenants together in a window.
    pub capacity: u64,
    /// In multiples of how many tokens a gateway fetches of that; the less, the fairer.
    #[serde(default)]
    pub quantum: Option<u64>,
    /// How long a window is for which tokens are counted; a minute unless said otherwise.
    #[serde(default = "minute_ms")]
    pub window_ms: u64,
    /// The most that is expected to be generated for who does not say.
    #[serde(default = "max_tokens_default")]
    pub max_tokens_default: u64,
    /// Field by which that limit is added to chat completions that have none. Default: it is not added, because some
    /// models reject the one name, some the other.
    #[serde(default)]
    pub bound_by: Option<Bound>,
    /// No more is set aside for a request before it runs, whatever such requests turn out to need; the less, the fairer.
    /// Unless said otherwise, as much as lets all that a tenant may run at a time begin, and eight in any case.
    #[serde(default)]
    pub set_aside_max: Option<u64>,
    /// Who may ask.
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

/// One who may ask, and how much.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Under which it counts. Several keys of one name count together.
    pub name: String,
    /// Its key, sent as `Authorization: Bearer <key>` or `x-api-key: <key>`.
    pub key: String,
    /// How much of the model it is due, beside the others.
    pub weight: u64,
    /// Requests a minute.
    pub rpm: u64,
    /// Tokens a window.
    pub tpm: u64,
    /// Requests at a time.
    pub concurrency: u32,
}

/// No request sets more aside than lets so many begin, however few may run at a time: there is to be something left for
/// what a request turns out to need, and for the next.
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
        ensure!(!config.tenants.is_empty(), "tenants: nobody may ask");
        for (nth, tenant) in config.tenants.iter().enumerate() {
            let before = &config.tenants[..nth];
            ensure!(
                before.iter().all(|other| other.key != tenant.key),
                "{}: its key is another's",
                tenant.name
            );
            let same = |other: &Tenant| Tenant { key: tenant.key.clone(), ..other.clone() } == *tenant;
            let agrees = before.iter().all(|other| other.name != tenant.name || same(other));
            ensure!(agrees, "{}: two keys of one tenant have different limits", tenant.name);
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

    /// How long a window is.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }

    /// What each tenant weighs, by its name.
    pub fn weights(&self) -> HashMap<Vec<u8>, u64> {
        self.tenants.iter().map(|tenant| (tenant.name.clone().into_bytes(), tenant.weight)).collect()
    }

    /// The tenants by what they show. The map hashes under a secret, so how long a look takes tells nothing of a key.
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
