//! The RESP listener of the program, with `redis-cli` as its client.

use std::process::{Command, Output};

use crate::common::Serving;

/// The token of `billing` is `foo`.
const POLICIES: &str = "
version: 1
policies:
  api: {rate: {algorithm: fixed_window, limit: 2, per: 1d}}
access:
  principals:
    billing:
      token_sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
      allow: [{endpoints: [check]}]
";

fn redis_cli(at: &str, args: &[&str]) -> String {
    let port = at.rsplit(':').next().unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", "redis-cli", "-h", "127.0.0.1", "-p", port, "--no-auth-warning"]).args(args);
    let Output { stdout, .. } = command.output().expect("redis-cli, which comes with Redis");
    String::from_utf8(stdout).unwrap()
}

#[test]
fn redis_cli_authenticates_and_is_limited() {
    let serving = Serving::start(POLICIES, &["--resp", "127.0.0.1:0"]);
    let at = serving.at("resp");
    assert_eq!(redis_cli(at, &["PING"]), "PONG\n");
    assert!(redis_cli(at, &["CL.THROTTLE", "api:alice", "15", "30", "60"]).starts_with("NOAUTH "));
    for left in [1, 0] {
        let reply = redis_cli(
            at,
            &["--user", "billing", "--pass", "foo", "CL.THROTTLE", "api:alice", "15", "30", "60"],
        );
        assert!(reply.starts_with(&format!("0\n2\n{left}\n-1\n")), "{reply}");
    }
    let denied = redis_cli(at, &["--pass", "foo", "CL.THROTTLE", "api:alice", "15", "30", "60"]);
    assert!(denied.starts_with("1\n2\n0\n") && denied.lines().count() == 5, "{denied}");
    serving.stop();
}
