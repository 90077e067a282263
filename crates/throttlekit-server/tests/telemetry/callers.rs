//! Callers that are refused, and what those see who may not see everything.

use std::time::Duration;

use throttlekit_proto::v1::monitor_client::MonitorClient;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{CheckRequest, GetSnapshotRequest, Snapshot};
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions};
use tonic::transport::Channel;
use tonic::{Code, Request};

use crate::telemetry::strict::Page;

const OPS: &str = "the token of operations";
const TEAM: &str = "the token of a team";

fn file(folder: &std::path::Path) -> String {
    let token = |name: &str, token: &str| {
        let path = folder.join(name);
        std::fs::write(&path, token).unwrap();
        path.display().to_string()
    };
    format!(
        "{}access:
  principals:
    ops: {{token_file: '{}', allow: [{{endpoints: [monitor]}}]}}
    team: {{token_file: '{}', allow: [{{endpoints: [monitor], policies: [api]}}]}}
",
        crate::telemetry::FILE,
        token("ops", OPS),
        token("team", TEAM)
    )
}

fn shows<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

async fn page(server: &Server) -> Page {
    let answer = crate::telemetry::listeners::http1(server.metrics().unwrap(), "GET /metrics").await;
    Page::read(answer.split_once("\r\n\r\n").unwrap().1)
}

#[tokio::test]
async fn refusals_are_counted_and_errors_are_for_who_sees_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.yaml");
    std::fs::write(&path, file(folder.path())).unwrap();
    let mut options = ServerOptions::new(path.clone(), Backend::memory());
    options.metrics = Some(([127, 0, 0, 1], 0).into());
    options.reload_every = Duration::from_millis(20);
    let server = Server::start(options).await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", server.grpc())).unwrap().connect().await.unwrap();
    let (mut monitor, mut checks) = (MonitorClient::new(channel.clone()), RateLimiterClient::new(channel));

    let ask = || CheckRequest { policy: "api".into(), key: "k".into(), ..CheckRequest::default() };
    let code = |answer: Result<_, tonic::Status>| answer.map(|_: tonic::Response<_>| ()).unwrap_err().code();
    assert_eq!(code(checks.check(ask()).await), Code::Unauthenticated);
    for _ in 0..2 {
        assert_eq!(code(checks.check(shows(ask(), "a guess")).await), Code::Unauthenticated);
    }
    assert_eq!(code(checks.check(shows(ask(), OPS)).await), Code::PermissionDenied);
    std::fs::write(&path, "version: 1\npolicies: nonsense").unwrap();
    let refused = |page: &Page, reason: &str| {
        page.at(&format!("throttlekit_callers_refused_total{{reason=\"{reason}\"}}"))
    };
    let shown = wait_for(&server, "throttlekit_config_rejected_total", 1.0).await;
    assert_eq!(refused(&shown, "no_token"), 1.0);
    assert_eq!(refused(&shown, "wrong_token"), 2.0);
    assert_eq!(refused(&shown, "forbidden"), 1.0);
    assert_eq!(refused(&shown, "expired_token"), 0.0);

    let mut look = async |token: &str| -> Snapshot {
        let answer = monitor.get_snapshot(shows(GetSnapshotRequest {}, token)).await.unwrap();
        answer.into_inner().snapshot.unwrap()
    };
    let all = look(OPS).await;
    assert!(all.policies.len() == 5 && all.config.unwrap().last_error.contains("policies"));
    let some = look(TEAM).await;
    assert_eq!(some.policies.len(), 1);
    assert!(!some.raw_json.contains("nonsense"), "{}", some.raw_json);
    assert_eq!(some.config.unwrap().last_error, "");

    std::fs::remove_file(folder.path().join("team")).unwrap();
    let shown = wait_for(&server, "throttlekit_access_failing", 1.0).await;
    assert_eq!(shown.at("throttlekit_access_failures_total"), 1.0);
    let asked = monitor.get_snapshot(shows(GetSnapshotRequest {}, TEAM)).await;
    assert_eq!(asked.unwrap_err().code(), Code::Unauthenticated);
    server.stop().await;
}

/// The page once a series is there.
async fn wait_for(server: &Server, series: &str, value: f64) -> Page {
    let patience = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let page = page(server).await;
        if page.at(series) == value {
            return page;
        }
        assert!(tokio::time::Instant::now() < patience, "{series} is {}", page.at(series));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
