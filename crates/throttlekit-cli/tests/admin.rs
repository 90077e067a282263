//! Actions of operators on several servers over one store.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use throttlekit::clock::{BootClock, Clock, WallClock};
use throttlekit::rate::Timestamp;

use crate::common::Serving;
use crate::operations::ask;

/// Time within which all servers apply an action, on a machine that is not overloaded.
const WITHIN: Duration = Duration::from_secs(1);
/// Time within which they apply it on any.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of actions whose median time is judged.
const TRIES: usize = 5;

/// The tokens of `operator` and `app` are `foo` and `bar`, that of `root` is `baz`.
fn policies(policy: &str) -> String {
    format!(
        "version: 1
policies:
  {policy}:
    rate: {{algorithm: fixed_window, limit: 1, per: 1d}}
    overrides: {{'tenant/*': {{rate: {{algorithm: fixed_window, limit: 2, per: 1d}}}}}}
  {policy}-work: {{concurrency: {{limit: 5, lease_for: 30s}}}}
access:
  principals:
    operator:
      token_sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
      allow: [{{endpoints: [admin], policies: ['{policy}*'], keys: tenant}}]
    app:
      token_sha256: fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9
      allow: [{{endpoints: [check, peek, admit]}}]
    root:
      token_sha256: baa5a0964d3320fbc0c6a922140453c8513ea24ab8fd0577034804a967248096
      allow: [{{endpoints: [admin, monitor]}}]
"
    )
}

fn port(serving: &Serving, listener: &str) -> u16 {
    serving.at(listener).rsplit(':').next().unwrap().parse().unwrap()
}

fn post(serving: &Serving, path: &str, token: &str, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let head = format!("host: a\r\nconnection: close\r\nauthorization: Bearer {token}");
    let kind = format!("content-type: application/json\r\ncontent-length: {}", body.len());
    ask(port(serving, "http"), &format!("POST {path} HTTP/1.1\r\n{head}\r\n{kind}\r\n\r\n{body}")).unwrap()
}

/// Posts as `foo`, which succeeds, and returns the response.
fn act(serving: &Serving, path: &str, body: &Value) -> Value {
    let (status, answer) = post(serving, path, "foo", body);
    assert_eq!(status, 200, "{path}: {answer}");
    serde_json::from_str(&answer).unwrap()
}

/// Runs a command of the operator `token`.
fn command(serving: &Serving, token: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throttlekit"));
    command.args(args).args(["--target", serving.at("grpc")]).env("THROTTLEKIT_SECRET", token);
    command.output().unwrap()
}

/// Runs a command that succeeds, and returns what it printed.
fn printed(serving: &Serving, token: &str, args: &[&str]) -> String {
    let output = command(serving, token, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn start(policy: &str) -> Serving {
    let store = std::env::var("THROTTLEKIT_REDIS").expect("cargo xtask services up");
    Serving::start(&policies(policy), &["--store", &store, "--store-deadline-ms", "2000"])
}

fn start_three(policy: &str) -> [Serving; 3] {
    [(); 3].map(|()| start(policy))
}

/// Returns what is left of a limit, and the limit.
fn peek(serving: &Serving, policy: &str, key: &str) -> (u64, u64) {
    let (status, answer) = post(serving, "/v1/peek", "bar", &json!({"policy": policy, "key": key}));
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let number = |name: &str| answer["decision"][name].as_u64().unwrap();
    (number("remaining"), number("limit"))
}

/// Waits until all servers return this. Returns the time from `since` on.
fn all_see(servers: &[Serving], policy: &str, key: &str, expected: (u64, u64), since: Timestamp) -> Duration {
    for serving in servers {
        let mut seen = peek(serving, policy, key);
        while seen != expected && BootClock.now().since(since) < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
            seen = peek(serving, policy, key);
        }
        assert_eq!(seen, expected, "{key}");
    }
    BootClock.now().since(since)
}

/// Returns a counter of the page for Prometheus.
fn metric(serving: &Serving, name: &str) -> f64 {
    let (_, page) =
        ask(port(serving, "metrics"), "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("{name} is missing"))
}

fn now_ms() -> u64 {
    WallClock.now().as_millis_ceil()
}

#[test]
fn a_reset_takes_effect_on_all_servers_and_needs_the_permission() {
    let policy = format!("reset-{}", std::process::id());
    let servers = start_three(&policy);
    let check = |serving: &Serving| {
        post(serving, "/v1/check?status=429", "bar", &json!({"policy": policy, "key": "tenant"})).0
    };
    assert_eq!([check(&servers[0]), check(&servers[1])], [200, 429]);

    let refused = command(&servers[1], "bar", &["reset", &policy, "tenant"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("Admin"));
    let other = command(&servers[1], "foo", &["reset", &policy, "another"]);
    assert!(!other.status.success(), "a key that is not granted");
    assert_eq!(check(&servers[2]), 429);

    printed(&servers[1], "foo", &["reset", &policy, "tenant"]);
    assert_eq!([check(&servers[2]), check(&servers[0])], [200, 429]);

    let again = json!({"policy": policy, "key": "tenant"});
    assert_eq!(post(&servers[0], "/v1/admin/reset", "bar", &again).0, 403);
    assert_eq!(post(&servers[0], "/v1/admin/reset", "foo", &again), (200, "{}".into()));
    assert_eq!([check(&servers[1]), check(&servers[2])], [200, 429]);
    assert!(servers.iter().any(|serving| serving.logged("key reset")), "the audit log has it");
    servers.into_iter().for_each(Serving::stop);
}

#[test]
fn a_grant_takes_effect_on_all_servers_and_counts_once() {
    let policy = format!("grant-{}", std::process::id());
    let servers = start_three(&policy);
    let call = json!({"policy": policy, "key": "tenant/1"});
    for serving in &servers[..2] {
        assert_eq!(post(serving, "/v1/check?status=429", "bar", &call).0, 200);
    }
    assert_eq!(peek(&servers[2], &policy, "tenant/1"), (0, 2));
    let id = format!("invoice-{policy}");
    let args = ["grant", &policy, "tenant/1", "--units", "1", "--id", &id];
    assert_eq!(printed(&servers[1], "foo", &args), "granted: 1 of 2 units left\n");
    all_see(&servers, &policy, "tenant/1", (1, 2), BootClock.now());

    let grant = json!({"policy": policy, "key": "tenant/1", "units": 1, "id": id});
    let repeated = act(&servers[0], "/v1/admin/grant", &grant);
    assert_eq!(repeated, json!({"repeated": true, "remaining": 1, "limit": 2}));
    let [first, second, third] = servers;
    second.stop();
    let restarted = start(&policy);
    assert_eq!(act(&restarted, "/v1/admin/grant", &grant)["repeated"], true, "it survives a restart");
    assert_eq!(peek(&restarted, &policy, "tenant/1"), (1, 2));

    assert_eq!(post(&first, "/v1/admin/grant", "bar", &grant).0, 403);
    assert_eq!(metric(&first, "throttlekit_callers_refused_total{reason=\"forbidden\"}"), 1.0);
    assert_eq!(metric(&first, "throttlekit_admin_actions_total{action=\"grant\"}"), 1.0);
    assert!(first.logged("credit granted"));
    [first, third, restarted].into_iter().for_each(Serving::stop);
}

#[test]
fn an_override_takes_effect_on_all_servers_survives_a_restart_and_expires_on_time() {
    let policy = format!("override-{}", std::process::id());
    let [first, second, third] = start_three(&policy);
    let servers = [first, second, third];
    let set = |limit: u64| {
        let limits = json!({"rates": [{"limit": limit}]});
        json!({"policy": policy, "key": "tenant/1", "limits": limits, "for_ms": 600_000})
    };
    let applied = |limit: u64| {
        let since = BootClock.now();
        act(&servers[0], "/v1/admin/set_override", &set(limit));
        assert_eq!(peek(&servers[0], &policy, "tenant/1"), (limit, limit), "at once where it was set");
        all_see(&servers, &policy, "tenant/1", (limit, limit), since)
    };
    let mut took: [Duration; TRIES] = std::array::from_fn(|more| applied(60 + more as u64));
    took.sort_unstable();
    assert!(took[TRIES / 2] < WITHIN, "on all servers within a second: {took:?}");
    applied(50);
    assert_eq!(peek(&servers[0], &policy, "tenant/2"), (2, 2), "only for its key");

    let args = ["override", "set", &policy, "tenant/p*", "--rate", "70", "--for-s", "600"];
    let since = BootClock.now();
    printed(&servers[1], "foo", &args);
    all_see(&servers, &policy, "tenant/p9", (70, 70), since);
    let listed = printed(&servers[2], "foo", &["override", "list", &policy, "tenant"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");

    let [first, second, third] = servers;
    [first, second, third].into_iter().for_each(Serving::stop);
    let servers = start_three(&policy);
    for serving in &servers {
        assert_eq!(peek(serving, &policy, "tenant/1"), (50, 50), "as soon as it serves");
    }

    let brief = json!({"policy": policy, "key": "tenant/1", "limits": {"unlimited": true}, "for_ms": 1_500});
    let expires =
        act(&servers[2], "/v1/admin/set_override", &brief)["override"]["expires_at"].as_u64().unwrap();
    let expired = |serving: &Serving| peek(serving, &policy, "tenant/1") == (2, 2);
    for serving in &servers {
        while !expired(serving) {
            assert!(now_ms() < expires + 5_000, "it applies until its expiry and no longer");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(now_ms() >= expires, "not before");
    }

    for (token, body) in
        [("bar", &set(5)), ("foo", &json!({"policy": policy, "key": "other", "plan": "gold"}))]
    {
        assert_eq!(post(&servers[0], "/v1/admin/set_override", token, body).0, 403);
    }
    let all = json!({"policy": policy, "key": "*", "limits": {"unlimited": true}});
    assert_eq!(post(&servers[0], "/v1/admin/set_override", "foo", &all).0, 403, "more keys than are granted");
    assert_eq!(metric(&servers[0], "throttlekit_callers_refused_total{reason=\"forbidden\"}"), 3.0);
    assert_eq!(metric(&servers[2], "throttlekit_admin_actions_total{action=\"set_override\"}"), 1.0);
    assert!(servers[2].logged("override set"));
    printed(&servers[0], "foo", &["override", "remove", &policy, "tenant/p*"]);
    assert!(servers[0].logged("override removed"));
    servers.into_iter().for_each(Serving::stop);
}

#[test]
fn overrides_and_grants_are_shared_over_a_cluster_and_over_postgres() {
    let of = |variable| std::env::var(variable).expect("cargo xtask services up");
    let cluster = format!("redis+cluster://{}", of("THROTTLEKIT_REDIS_CLUSTER").replace("redis://", ""));
    let postgres = of("THROTTLEKIT_POSTGRES");
    for (store, more) in [(&cluster, None), (&postgres, Some("--migrate"))] {
        let policy = format!("shared-{}", std::process::id());
        let args = ["--store", store, "--store-deadline-ms", "5000"];
        let args: Vec<_> = args.into_iter().chain(more).collect();
        let servers = [(); 2].map(|()| Serving::start(&policies(&policy), &args));
        let limits = json!({"rates": [{"limit": 9}]});
        let set = json!({"policy": policy, "key": "tenant/*", "limits": limits, "for_ms": 600_000});
        act(&servers[0], "/v1/admin/set_override", &set);
        all_see(&servers, &policy, "tenant/7", (9, 9), BootClock.now());
        let call = json!({"policy": policy, "key": "tenant/7", "cost": 5});
        assert_eq!(post(&servers[1], "/v1/check?status=429", "bar", &call).0, 200);
        let grant = json!({"policy": policy, "key": "tenant/7", "units": 3, "id": policy});
        for repeated in [false, true] {
            let granted = act(&servers[usize::from(repeated)], "/v1/admin/grant", &grant);
            assert_eq!(granted, json!({"repeated": repeated, "remaining": 7, "limit": 9}), "{store}");
        }
        printed(&servers[1], "foo", &["override", "remove", &policy, "tenant/*"]);
        all_see(&servers, &policy, "tenant/8", (2, 2), BootClock.now());
        servers.into_iter().for_each(Serving::stop);
    }
}

#[test]
fn a_plan_applies_to_all_keys_that_are_assigned_to_it() {
    let policy = format!("plan-{}", std::process::id());
    let servers = start_three(&policy);
    let refused = command(&servers[0], "foo", &["plan", "set", &policy, "gold", "--rate", "30"]);
    assert!(!refused.status.success(), "a plan concerns all keys of the policy");
    printed(&servers[0], "baz", &["plan", "set", &policy, "gold", "--rate", "30"]);
    let assigned = ["override", "set", &policy, "tenant/1", "--plan", "gold", "--for-s", "600"];
    printed(&servers[0], "foo", &assigned);
    all_see(&servers, &policy, "tenant/1", (30, 30), BootClock.now());
    let since = BootClock.now();
    printed(&servers[1], "baz", &["plan", "set", &policy, "gold", "--rate", "40"]);
    all_see(&servers, &policy, "tenant/1", (40, 40), since);
    let listed = printed(&servers[1], "baz", &["plan", "list", &policy]);
    assert_eq!(listed, "gold: rate 40, 1 keys or prefixes\n");
    assert!(!command(&servers[1], "baz", &["plan", "remove", &policy, "gold"]).status.success());
    printed(&servers[1], "foo", &["override", "remove", &policy, "tenant/1"]);
    assert_eq!(printed(&servers[1], "baz", &["plan", "remove", &policy, "gold"]), "removed\n");
    servers.into_iter().for_each(Serving::stop);
}

#[test]
fn an_operator_lists_and_ends_leases_reloads_and_drains() {
    let policy = format!("leases-{}", std::process::id());
    let serving = start(&policy);
    let work = format!("{policy}-work");
    let admitted = post(&serving, "/v1/admit", "bar", &json!({"policy": work, "key": "tenant/1"}));
    let lease = serde_json::from_str::<Value>(&admitted.1).unwrap()["lease_id"].clone();
    let listed = printed(&serving, "baz", &["leases", "list", &work]);
    assert!(listed.contains("tenant/1: held by app for "), "{listed}");
    assert!(!listed.contains(lease.as_str().unwrap()), "the ID is a secret of its holder");
    assert!(
        !command(&serving, "foo", &["leases", "list", &work]).status.success(),
        "all keys are not granted"
    );
    let none = ["leases", "release", &work, "--of-key", "tenant/2"];
    assert_eq!(printed(&serving, "foo", &none), "released: 0\n");
    let mine = ["leases", "release", &work, "--of-key", "tenant/1"];
    assert_eq!(printed(&serving, "foo", &mine), "released: 1\n");
    let renewed = post(&serving, "/v1/heartbeat", "bar", &json!({"lease_ids": [lease]}));
    assert!(renewed.1.contains("\"live_ids\":[]"), "{renewed:?}");

    for args in [&["drain"][..], &["reload"], &["log-filter", "debug"], &["config"]] {
        assert!(!command(&serving, "foo", args).status.success(), "{args:?} needs all policies and keys");
    }
    assert!(printed(&serving, "baz", &["reload"]).starts_with("loaded: "));
    printed(&serving, "baz", &["log-filter", "error"]);
    printed(&serving, "baz", &["log-filter", "throttlekit_server=debug,warn"]);
    assert!(!command(&serving, "baz", &["log-filter", "a=b=c"]).status.success());
    let config: Value = serde_json::from_str(&printed(&serving, "baz", &["config"])).unwrap();
    assert_eq!(config["options"]["store"], "redis");
    assert_eq!(config["options"]["store_failover"], "async");
    assert_eq!(config["options"]["lame_duck_ms"], 0);
    assert_eq!(config["policy_file"]["content"]["access"]["principals"]["app"]["token_sha256"], "(redacted)");
    for message in ["leases released", "files reloaded", "log filter set", "configuration read"] {
        assert!(serving.logged(message), "{message}");
    }
    printed(&serving, "baz", &["drain"]);
    assert!(serving.logged("server drained"));
    serving.ended();
}
