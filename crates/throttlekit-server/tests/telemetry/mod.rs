//! The telemetry of a server: the page of metrics, the monitor over a socket, and the dashboard that reads them.

mod callers;
mod dashboard;
mod listeners;
mod monitor;
mod page;
mod strict;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit_server::internals::access::Principal;
use throttlekit_server::internals::access::Secrets;
use throttlekit_server::internals::engine::{Backend, Engine, EngineOptions, PolicyCall, WorkTerms};
use throttlekit_server::internals::listen::Stats;
use throttlekit_server::internals::reload::{Loaded, Reloader};
use throttlekit_server::internals::telemetry::{
    EnvoyRuleStats, PrincipalSeen, ServerStats, ServerTelemetry, TelemetryOptions,
};

/// `api` lets 3 a minute pass, `tried` would let 1, `slots` holds 2.
const FILE: &str = "
version: 1
policies:
  api: { rate: { limit: 3, per: 1d, algorithm: fixed_window } }
  tried: { rate: { limit: 1, per: 1d, algorithm: fixed_window }, shadow: true }
  slots: { concurrency: { limit: 2 } }
  quiet: { rate: { limit: 9, per: 1s } }
  shared: { fair: { limit: 100, per: 1d, weights: { acme: 3 } } }
";

/// A reloader, and the folder of its file.
struct InFolder(Arc<Reloader>, tempfile::TempDir);

impl InFolder {
    fn path(&self) -> PathBuf {
        self.1.path().join("policies.yaml")
    }
}

impl Deref for InFolder {
    type Target = Reloader;

    fn deref(&self) -> &Reloader {
        &self.0
    }
}

/// An engine in memory that runs the file, with its telemetry.
fn started(options: TelemetryOptions) -> (Arc<ServerTelemetry>, Engine, InFolder) {
    started_over(Backend::memory(), options)
}

fn started_over(backend: Backend, options: TelemetryOptions) -> (Arc<ServerTelemetry>, Engine, InFolder) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.yaml");
    std::fs::write(&path, FILE).unwrap();
    let loaded = Loaded::read(&path).unwrap();
    let reloader = Reloader::new(path, &loaded, Secrets::default()).unwrap();
    let telemetry = ServerTelemetry::start(options).unwrap();
    let options = EngineOptions { observer: telemetry.clone(), ..EngineOptions::over(backend) };
    (telemetry, Engine::start(options, loaded.file).unwrap(), InFolder(reloader, folder))
}

/// One listener and one principal, of whom nothing was seen.
fn server_stats() -> ServerStats {
    let name = "acme".to_owned();
    let principal = PrincipalSeen { name, requests: 0, decisions: 0, denied: 0, shed: 0, share: 0 };
    let listeners = vec![("grpc", Stats::default())];
    ServerStats {
        listeners,
        envoy_rules: vec![EnvoyRuleStats::default()],
        principals: vec![principal],
        callers_refused: vec![("no_token", 0)],
        certificate_expires: Some(Timestamp::from_millis(1_796_083_200_000)),
        ..ServerStats::default()
    }
}

/// Asks five times each of `api` and `tried`, and three times for a slot, which are held.
async fn load(telemetry: &ServerTelemetry, engine: &Engine) {
    for policy in ["api", "tried"] {
        for _ in 0..5 {
            engine.check(PolicyCall { policy, key: b"al\x1bice", others: &[], cost: 1 }).await.unwrap();
        }
    }
    for _ in 0..3 {
        let ask = PolicyCall { policy: "slots", key: b"bob", others: &[], cost: 1 };
        engine.admit(&Principal::anyone(), ask, WorkTerms::default()).await.unwrap();
    }
    assert!(telemetry.flush(Duration::from_secs(20)));
}
