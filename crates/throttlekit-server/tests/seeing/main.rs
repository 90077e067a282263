//! What a server shows of itself: the page of metrics, the monitor over a socket, and the dashboard that reads them.
#![recursion_limit = "256"] // The engine's futures hold each other many deep.

mod dashboard;
mod monitor;
mod page;
mod strict;

use std::sync::Arc;
use std::time::Duration;

use throttlekit_server::access::Principal;
use throttlekit_server::engine::{Ask, Backend, Engine, EngineOptions};
use throttlekit_server::policy::PolicyFile;
use throttlekit_server::seeing::{Hub, HubOptions};

/// An engine in memory that this hub watches: `api` lets 3 a minute pass, `tried` would let 1, `slots` holds 2.
fn started(options: HubOptions) -> (Arc<Hub>, Engine) {
    let file: PolicyFile = serde_json::from_value(serde_json::json!({
        "version": 1,
        "policies": {
            "api": { "rate": { "limit": 3, "per": "1m", "algorithm": "fixed-window" } },
            "tried": { "rate": { "limit": 1, "per": "1m", "algorithm": "fixed-window" }, "shadow": true },
            "slots": { "concurrency": { "limit": 2 } },
            "quiet": { "rate": { "limit": 9, "per": "1s" } },
        }
    }))
    .unwrap();
    let hub = Hub::start(options).unwrap();
    hub.config_loaded(&file);
    let options = EngineOptions { witness: hub.clone(), ..EngineOptions::over(Backend::memory()) };
    (hub, Engine::start(options, file).unwrap())
}

/// Asks five times each of `api` and `tried`, and three times for a slot, which are held.
async fn load(hub: &Hub, engine: &Engine) {
    for policy in ["api", "tried"] {
        for _ in 0..5 {
            engine.check(Ask { policy, key: b"al\x1bice", others: &[], cost: 1 }).await.unwrap();
        }
    }
    for _ in 0..3 {
        let ask = Ask { policy: "slots", key: b"bob", others: &[], cost: 1 };
        engine.admit(&Principal::anyone(), ask, 1.0, None).await.unwrap();
    }
    assert!(hub.flush(Duration::from_secs(20)));
}
