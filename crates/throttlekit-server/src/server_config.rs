//! The options of a server as a document, for operators. It contains no secret.

use std::time::Duration;

use serde_json::{Value, json};

use throttlekit_postgres::Durability;
use throttlekit_redis::Failover;

use crate::listen::Limits;
use crate::process_options::ProcessOptions;
use crate::server::ServerOptions;

/// Replacement for a password.
const REDACTED: &str = "(redacted)";
/// Defaults of the stores.
const REDIS_DEADLINE: Duration = Duration::from_millis(100);
const POSTGRES_DEADLINE: Duration = Duration::from_millis(250);
const POSTGRES_CONNECTIONS: usize = 4;
const POSTGRES_SCHEMA: &str = "throttlekit";

impl ServerOptions {
    /// Returns the options without secrets.
    pub(crate) fn described(&self) -> Value {
        let mut options = self.own_options();
        let process = [store(&self.process), process(&self.process)];
        let process = process.into_iter().filter_map(|part| part.as_object().cloned()).flatten();
        if let Some(options) = options.as_object_mut() {
            options.extend(process);
        }
        options
    }

    fn own_options(&self) -> Value {
        json!({
            "policies": self.policies.display().to_string(),
            "reload_every_ms": millis(self.reload_every),
            "store": self.engine.backend.kind(),
            "region": self.engine.region,
            "node_id": self.telemetry.node_id,
            "leases_max": self.engine.leases_max,
            "leases_per_caller": self.engine.leases_per_principal_max,
            "fresh_start": !self.engine.recovers,
            "hash_keys": self.telemetry.hash_keys,
            "listen": self.grpc.to_string(),
            "http": self.http.map(|address| address.to_string()),
            "resp": self.resp.map(|address| address.to_string()),
            "metrics": self.metrics.map(|address| address.to_string()),
            "trusted_hops": self.trusted_hops,
            "proxy_token_header": self.proxy_token.as_str(),
            "tls": self.tls.is_some(),
            "metrics_without_client_cert": self.metrics_without_certificates,
            "reflection": self.reflection,
            "otlp": self.collector().map(without_credentials),
            "limits": limits(&self.limits),
        })
    }
}

/// Returns the options of the store, by the names of their flags. Defaults are shown as values.
fn store(process: &ProcessOptions) -> Value {
    let Some((url, options)) = &process.store else { return Value::Null };
    let (is_redis, is_postgres) = (url.kind() == "redis", url.kind() == "postgres");
    let password = |is_set: bool| is_set.then_some(REDACTED);
    let default_deadline = match url.kind() {
        "redis" => Some(REDIS_DEADLINE),
        "postgres" => Some(POSTGRES_DEADLINE),
        _ => None,
    };
    json!({
        "store_addresses": url.addresses().into_iter().map(without_credentials).collect::<Vec<_>>(),
        "store_password": password(options.password.is_some()),
        "store_sentinel_password": password(options.sentinel_password.is_some()),
        "store_deadline_ms": options.deadline.or(default_deadline).map(millis),
        "store_ca": options.ca.is_some(),
        "store_cert": options.identity.is_some(),
        "store_failover": is_redis.then(|| failover(options.failover.unwrap_or_default())),
        "store_pooled": options.pooled,
        "store_durability": is_postgres.then(|| durability(options.durability.unwrap_or_default())),
        "store_connections": is_postgres.then(|| options.connections.unwrap_or(POSTGRES_CONNECTIONS)),
        "store_schema": is_postgres.then(|| options.schema.as_deref().unwrap_or(POSTGRES_SCHEMA)),
    })
}

fn process(process: &ProcessOptions) -> Value {
    json!({
        "memory_budget_mib": process.memory_budget_bytes.map(|bytes| bytes >> 20),
        "lame_duck_ms": millis(process.lame_duck),
        "log": process.log,
        "log_json": process.log_json,
    })
}

fn failover(failover: Failover) -> String {
    match failover {
        Failover::Async { sample: None } => "async".into(),
        Failover::Async { sample: Some(sample) } => format!("async:{}", millis(sample)),
        Failover::Wait { replicas, .. } => format!("wait:{replicas}"),
        Failover::Fence { isolation } => format!("fence:{}", isolation.as_secs()),
        _ => "unknown".into(),
    }
}

fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Flushed => "flushed",
        Durability::Deferred => "deferred",
        Durability::Unlogged => "unlogged",
        _ => "unknown",
    }
}

/// Returns a URL without its user, password and parameters. Returns only the scheme if it is ambiguous where these are.
fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return REDACTED.into() };
    let (credentials, address) = match rest.split_once('@') {
        Some((credentials, address)) => (Some(credentials), address),
        None => (None, rest),
    };
    if address.contains('@') || credentials.is_some_and(|credentials| credentials.contains(['/', '?', '#'])) {
        return format!("{scheme}://{REDACTED}");
    }
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let redacted = credentials.map_or(String::new(), |_| format!("{REDACTED}@"));
    format!("{scheme}://{redacted}{address}")
}

fn limits(limits: &Limits) -> Value {
    macro_rules! document {
        ($($number:ident),+; $($time:ident: $name:literal),+) => {
            json!({ $(stringify!($number): limits.$number,)+ $($name: millis(limits.$time)),+ })
        };
    }
    document!(
        connections_max, connections_per_peer_max, requests_max, queue_max, bodies_bytes_max, streams_max,
        pending_resets_max, error_resets_max, abandoned_max, header_bytes_max, headers_max, message_bytes_max,
        stream_window, connection_window, frame_bytes_max, send_buffer_bytes;
        queue_for: "queue_for_ms", body_for: "body_for_ms", handshake_max: "handshake_max_ms",
        header_read_max: "header_read_max_ms", request_max: "request_max_ms", stall_max: "stall_max_ms",
        idle_max: "idle_max_ms", keepalive_every: "keepalive_every_ms", keepalive_max: "keepalive_max_ms",
        age_max: "age_max_ms", grace: "grace_ms"
    )
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Backend;
    use crate::store_options::StoreOptions;
    use crate::store_url::StoreUrl;

    fn described(url: &str, change: impl FnOnce(&mut StoreOptions)) -> Value {
        let mut options = ServerOptions::new("policies.yaml".into(), Backend::memory());
        let mut store = StoreOptions::default();
        change(&mut store);
        options.process.store = Some((StoreUrl::parse(url).unwrap(), store));
        options.process.lame_duck = Duration::from_secs(5);
        options.process.log = "info".into();
        options.described()
    }

    #[test]
    fn options_of_the_store_and_the_process_are_shown() {
        let redis = described("redis+sentinel://u:secret@a:1,b:2/main", |store| {
            store.sentinel_password = Some("secret".into());
            store.failover = Some(Failover::Fence { isolation: Duration::from_secs(3) });
        });
        assert_eq!(
            redis["store_addresses"],
            json!(["redis://a:1", "redis://b:2", "redis://(redacted)@localhost"])
        );
        assert_eq!((&redis["store_failover"], &redis["store_deadline_ms"]), (&json!("fence:3"), &json!(100)));
        assert_eq!(
            (&redis["store_password"], &redis["store_sentinel_password"]),
            (&Value::Null, &json!(REDACTED))
        );
        assert_eq!((&redis["lame_duck_ms"], &redis["log"]), (&json!(5_000), &json!("info")));
        let postgres = described("postgres://u@h/d?password=secret", |store| {
            (store.pooled, store.durability) = (true, Some(Durability::Deferred));
            (store.schema, store.password) = (Some("limits".into()), Some("secret".into()));
        });
        assert_eq!(postgres["store_addresses"], json!(["postgres://(redacted)@h/d"]));
        assert_eq!(
            (&postgres["store_pooled"], &postgres["store_durability"]),
            (&json!(true), &json!("deferred"))
        );
        assert_eq!(
            (&postgres["store_schema"], &postgres["store_connections"]),
            (&json!("limits"), &json!(4))
        );
        for shown in [redis, postgres] {
            assert!(!shown.to_string().contains("secret"), "{shown}");
        }
    }

    #[test]
    fn credentials_are_never_shown() {
        for (url, shown) in [
            ("redis://h:1/2", "redis://h:1/2"),
            ("redis://:secret@h:1/2?protocol=resp3", "redis://(redacted)@h:1/2"),
            ("postgres://u:sec/ret@h/d", "postgres://(redacted)"),
            ("postgres://u:sec@ret@h/d", "postgres://(redacted)"),
            ("postgres://h/d?password=sec@ret", "postgres://(redacted)"),
            ("postgres://h/d?password=secret", "postgres://h/d"),
            ("http://me:secret@localhost:4317", "http://(redacted)@localhost:4317"),
            ("secret", "(redacted)"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
