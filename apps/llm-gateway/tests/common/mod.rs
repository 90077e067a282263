//! A mock model and a gateway in front of it, on the Redis of the test services.

pub(crate) mod local;

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

use axum::Router;
use llm_gateway::metering::Meter;
use llm_gateway_load::mock::{self, Lengths, Manner};
use llm_gateway_load::process::{Process, Scratch};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Longer than any test: windows begin at the same time for all, so a short one could end during one.
const WEEK_MS: u64 = 7 * 24 * 3_600_000;

/// Both servers, until this is dropped.
pub(crate) struct Stand {
    pub(crate) gateway: Process,
    /// URL of the mock model.
    pub(crate) model: String,
    pub(crate) meter: Meter,
    pub(crate) limits: Limits,
    _config: Scratch,
}

/// Behaviour of the mock model.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    /// Tokens of each completion, unless the request limits it to fewer.
    pub(crate) length: u64,
    pub(crate) chunk: u64,
    pub(crate) delay_ms: u64,
}

/// Limits of the one tenant, whose key is `sk-test`.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) rpm: u64,
    pub(crate) tpm: u64,
    pub(crate) concurrency: u32,
}

impl Stand {
    pub(crate) async fn new(meter: Meter, model: Model, limits: Limits) -> Self {
        let model = model.serve().await;
        let name = format!("gateway-test-{:x}", RandomState::new().hash_one(1));
        let config = Scratch::new(&name, &config(&model, &limits).to_string()).unwrap();
        let flags = [
            ("config", config.path()),
            ("meter", meter.label().to_owned()),
            ("redis", redis()),
            ("policy", name),
            // Tests share two cores with whatever else runs.
            ("store-deadline-ms", "5000".to_owned()),
        ];
        let binary = Path::new(env!("CARGO_BIN_EXE_llm-gateway"));
        let gateway = Process::start(binary, "serve", &flags).unwrap();
        Self { gateway, model, meter, limits, _config: config }
    }
}

impl Model {
    /// Serves the routes of the mock model, and returns its URL.
    pub(crate) async fn serve(self) -> String {
        served(self.routes()).await
    }

    pub(crate) fn routes(self) -> Router {
        let lengths = Lengths { median: self.length as f64, sigma: 0.0, seed: 1 };
        let delay = Duration::from_millis(self.delay_ms);
        mock::app(Manner { lengths, chunk: self.chunk, delay, window_ms: 60_000 })
    }
}

/// Serves routes on a free port, and returns the URL.
pub(crate) async fn served(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(llm_gateway::serve::serve(listener, routes));
    format!("http://{address}")
}

/// From `cargo xtask services up`. A test that needs an engine fails without it.
pub(crate) fn redis() -> String {
    let name = "THROTTLEKIT_REDIS";
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(cargo xtask services up)\""))
}

pub(crate) fn config(upstream: &str, limits: &Limits) -> Value {
    let Limits { rpm, tpm, concurrency } = limits;
    let tenant = json!({
        "name": "test", "key": "sk-test", "weight": 1, "rpm": rpm, "tpm": tpm, "concurrency": concurrency,
    });
    json!({ "upstream": upstream, "capacity": 1_000_000, "window_ms": WEEK_MS, "tenants": [tenant] })
}
