//! The options of a server as a document, for operators. It contains no secret.

use std::time::Duration;

use serde_json::{Value, json};

use crate::listen::Limits;
use crate::server::ServerOptions;

impl ServerOptions {
    /// Returns the options without secrets.
    pub(crate) fn described(&self) -> Value {
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
            "limits": limits(&self.limits),
        })
    }
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
