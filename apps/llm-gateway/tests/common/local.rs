//! A gateway in the process of the test.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use axum::http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use llm_gateway::api::Api;
use llm_gateway::headers::Allowances;
use llm_gateway::metering::Meter;
use llm_gateway::proxy::Gateway;
use llm_gateway::tenants::Config;
use llm_gateway::upstream::Trust;
use llm_gateway_load::process::Http;
use serde_json::Value;
use throttlekit_redis::RedisStore;
use tokio::time::sleep;

use super::served;

/// A gateway, until the runtime of the test ends.
pub(crate) struct Local {
    pub(crate) url: String,
    pub(crate) admin: String,
}

impl Local {
    pub(crate) async fn new(config: &Value, redis: &str) -> Self {
        Self::trusting(config, redis, &Trust::default()).await
    }

    pub(crate) async fn trusting(config: &Value, redis: &str, trust: &Trust) -> Self {
        let config = Config::parse(&config.to_string()).unwrap();
        let store = RedisStore::builder(redis).deadline(Duration::from_secs(5)).connect().await.unwrap();
        let policy = format!("gateway-local-{:x}", RandomState::new().hash_one(1));
        let gateway = Gateway::new(&config, trust, Meter::Stream, &store, &policy, "here").unwrap();
        let gateway = Arc::new(gateway);
        Self { url: served(gateway.routes()).await, admin: served(gateway.admin_routes()).await }
    }

    /// Sends a request of the tenant `test`.
    pub(crate) async fn post(&self, api: &Api, body: &Value) -> Response<Incoming> {
        Http::default().post(&self.url, api, "sk-test", body.to_string()).await.unwrap()
    }

    pub(crate) async fn books(&self) -> Value {
        let books: Value = Http::default().get(&format!("{}/admin/stats", self.admin)).await.unwrap();
        books["tenants"]["test"].clone()
    }

    /// Waits until the store has charged this many tokens. What is dropped is settled in the background.
    pub(crate) async fn settles_at(&self, tokens: u64) {
        let mut used = u64::MAX;
        for _ in 0..200 {
            used = self.used().await;
            if used == tokens {
                return;
            }
            sleep(Duration::from_millis(25)).await;
        }
        assert_eq!(used, tokens, "what the store has charged");
    }

    /// Returns the tokens that the store has charged.
    pub(crate) async fn used(&self) -> u64 {
        let allowances: BTreeMap<String, Allowances> =
            Http::default().get(&format!("{}/admin/allowances", self.admin)).await.unwrap();
        let allowance = allowances["test"].tokens.unwrap();
        allowance.limit - allowance.remaining
    }
}

pub(crate) async fn text(answer: Response<Incoming>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) async fn json(answer: Response<Incoming>) -> Value {
    serde_json::from_str(&text(answer).await).unwrap()
}
