//! Actions of operators on several servers over one store.

use std::process::{Command, Output};

use serde_json::json;

use crate::common::Serving;
use crate::operations::ask;

/// The tokens of `operator` and `app` are `foo` and `bar`.
fn policies(policy: &str) -> String {
    format!(
        "version: 1
policies:
  {policy}: {{rate: {{algorithm: fixed_window, limit: 1, per: 1d}}}}
access:
  principals:
    operator:
      token_sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
      allow: [{{endpoints: [admin], policies: [{policy}], keys: tenant}}]
    app:
      token_sha256: fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9
      allow: [{{endpoints: [check]}}]
"
    )
}

fn post(serving: &Serving, path: &str, token: &str, body: &serde_json::Value) -> (u16, String) {
    let port = serving.at("http").rsplit(':').next().unwrap().parse().unwrap();
    let body = body.to_string();
    let head = format!("host: a\r\nconnection: close\r\nauthorization: Bearer {token}");
    let kind = format!("content-type: application/json\r\ncontent-length: {}", body.len());
    ask(port, &format!("POST {path} HTTP/1.1\r\n{head}\r\n{kind}\r\n\r\n{body}")).unwrap()
}

fn reset(serving: &Serving, token: &str, policy: &str, key: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throttlekit"));
    command.args(["reset", policy, key, "--target", serving.at("grpc")]).env("THROTTLEKIT_SECRET", token);
    command.output().unwrap()
}

#[test]
fn a_reset_takes_effect_on_all_servers_and_needs_the_permission() {
    let store = std::env::var("THROTTLEKIT_REDIS").expect("cargo xtask services up");
    let policy = format!("reset-{}", std::process::id());
    let servers = [(); 3]
        .map(|()| Serving::start(&policies(&policy), &["--store", &store, "--store-deadline-ms", "2000"]));
    let check = |serving: &Serving| {
        post(serving, "/v1/check?status=429", "bar", &json!({"policy": policy, "key": "tenant"})).0
    };
    assert_eq!([check(&servers[0]), check(&servers[1])], [200, 429]);

    let refused = reset(&servers[1], "bar", &policy, "tenant");
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("Admin"));
    let other = reset(&servers[1], "foo", &policy, "another");
    assert!(!other.status.success(), "a key that is not granted");
    assert_eq!(check(&servers[2]), 429);

    let done = reset(&servers[1], "foo", &policy, "tenant");
    assert!(done.status.success(), "{done:?}");
    assert_eq!([check(&servers[2]), check(&servers[0])], [200, 429]);

    let again = json!({"policy": policy, "key": "tenant"});
    assert_eq!(post(&servers[0], "/v1/admin/reset", "bar", &again).0, 403);
    assert_eq!(post(&servers[0], "/v1/admin/reset", "foo", &again), (200, "{}".into()));
    assert_eq!([check(&servers[1]), check(&servers[2])], [200, 429]);
    assert!(servers.iter().any(|serving| serving.logged("key reset")), "the audit log has it");
    servers.into_iter().for_each(Serving::stop);
}
