//! What people read when they type a command, and when something is in the way: each error names what to do next.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::Serving;
use tempfile::TempDir;
use throttlekit_server::policy;

const GOOD: &str = "version: 1\npolicies:\n  api: {rate: {limit: 5, per: 1m}}\n";
const BAD: &str = "version: 1\npolicies:\n  api: {rate: {limt: 5, per: 1m}}\n";

struct Said {
    ends_with: i32,
    out: String,
    err: String,
}

fn throttlekit(args: &[&str]) -> Said {
    with_input(args, "")
}

fn with_input(args: &[&str], input: &str) -> Said {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_throttlekit")]).args(args).env_remove("THROTTLEKIT_STORE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end before it reads all of it, or any.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { ends_with: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A command that cannot do what it is asked, and what it says.
fn refuses(args: &[&str], says: &[&str]) {
    let said = throttlekit(args);
    assert_eq!(said.ends_with, 1, "{args:?}: {}", said.err);
    for words in says {
        assert!(said.err.contains(words), "{args:?} does not say `{words}`:\n{}", said.err);
    }
    assert!(!said.err.contains("backtrace") && !said.err.contains("panicked"), "{}", said.err);
}

#[test]
fn a_good_file_ends_with_0_and_a_bad_one_with_1_and_its_place() {
    let folder = TempDir::new().unwrap();
    let (good, bad) = (file(&folder, "good.yaml", GOOD), file(&folder, "bad.yaml", BAD));
    let said = throttlekit(&["lint", &good]);
    assert_eq!((said.ends_with, said.err.as_str()), (0, ""));
    assert!(said.out.starts_with("api:\n  5 units per minute"), "{}", said.out);
    let quiet = throttlekit(&["lint", "-q", &good]);
    assert_eq!((quiet.ends_with, quiet.out.as_str(), quiet.err.as_str()), (0, "", ""));
    refuses(&["lint", &bad], &["did you mean `limit`?", "at line 3, column 16", "bad.yaml: 1 error"]);
    refuses(&["lint", "nowhere.yaml"], &["nowhere.yaml: No such file", "check the path"]);
}

#[test]
fn directories_and_standard_input_are_linted_and_all_errors_are_told() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    refuses(&["lint", &path], &["no .yaml, .yml or .json file"]);
    file(&folder, "good.yaml", GOOD);
    file(&folder, ".hidden.yaml", BAD);
    file(&folder, "notes.txt", BAD);
    let said = throttlekit(&["lint", &path]);
    assert_eq!((said.ends_with, said.err.as_str()), (0, ""));
    let twice = "version: 1\npolicies:\n  a: {rate: {limit: x, per: 1y}}\n  b: {rate: {limit: 0, per: 1s}}\n";
    file(&folder, "bad.yml", BAD);
    file(&folder, "twice.json", twice);
    let all = [
        "bad.yml:",
        "did you mean `limit`?",
        "twice.json:",
        "at line 3, column 21",
        "per: invalid",
        "policies.b",
        ": 4 errors",
    ];
    refuses(&["lint", &path], &all);

    let said = with_input(&["lint", "-"], GOOD);
    assert!(said.ends_with == 0 && said.out.starts_with("api:\n"), "{}", said.out);
    let said = with_input(&["lint", "-"], BAD);
    assert!(said.ends_with == 1 && said.err.contains("standard input: 1 error"), "{}", said.err);
}

#[test]
fn a_server_that_cannot_start_says_what_to_do() {
    let folder = TempDir::new().unwrap();
    let (good, bad) = (file(&folder, "good.yaml", GOOD), file(&folder, "bad.yaml", BAD));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let free = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let on_free = |args: &[&'static str], file: &str, says: &[&str]| {
        let args: Vec<&str> = ["serve", file].into_iter().chain(free).chain(args.iter().copied()).collect();
        refuses(&args, says);
    };
    on_free(&[], "nowhere.yaml", &["nowhere.yaml: No such file", "check the path"]);
    on_free(&[], &bad, &["did you mean `limit`?", "at line 3, column 16", "bad.yaml: 1 error"]);
    on_free(&["--tls-cert", "a.pem"], &good, &["--tls-key is missing"]);
    on_free(&["--store", "mysql://db"], &good, &["redis://host:port"]);
    on_free(&[], "/dev/zero", &["/dev/zero: not a regular file"]);
    let short = file(&folder, "short", "fifteen letters");
    refuses(
        &["serve", &good, "--monitor-secret-file", &short],
        &["secret too short: 15 bytes, at least 16 are required"],
    );
    refuses(&["serve", &good, "--listen", &taken], &["in use", "choose another with --listen"]);
    refuses(
        &["serve", &good, "--listen", "0.0.0.0:0"],
        &["TLS is not configured", "--tls-cert", "--allow-plaintext"],
    );
}

/// It starts, since to wait for the store would make an outage longer; and it says what that means.
#[test]
fn a_server_without_its_store_says_so_and_serves() {
    let folder = TempDir::new().unwrap();
    let good = file(&folder, "good.yaml", GOOD);
    for store in ["redis://127.0.0.1:1", "postgres://127.0.0.1:1/db"] {
        let mut serve = Command::new("timeout");
        serve.args(["3", env!("CARGO_BIN_EXE_throttlekit"), "serve", &good, "--store", store]);
        serve.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        serve.args(["--lame-duck-s", "0"]);
        let output = serve.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(124), "it serves until it is stopped: {said}");
        for words in ["server started", "store unavailable", "on_outage", "--store"] {
            assert!(said.contains(words), "{store}: no `{words}` in:\n{said}");
        }
    }
    refuses(
        &["migrate", "--store", "postgres://127.0.0.1:1/db"],
        &["--store (postgres)", "check that the store runs"],
    );
}

/// A listener that is off is not there; the others are.
#[test]
fn listeners_are_turned_off_one_by_one() {
    let answers = |address: &str| std::net::TcpStream::connect(address).is_ok();
    let without = Serving::start(GOOD, &["--http", "off", "--metrics", "off"]);
    assert_eq!((without.at("http"), without.at("metrics")), ("off", "off"));
    assert!(answers(without.at("grpc")));
    without.stop();
    let metrics_only = Serving::start(GOOD, &["--http", "off"]);
    assert_eq!(metrics_only.at("http"), "off");
    assert!(answers(metrics_only.at("metrics")) && answers(metrics_only.at("grpc")));
    let said = throttlekit(&["serve", "policies.yaml", "--http", "no"]);
    assert_eq!(said.ends_with, 2);
    assert!(said.err.contains("such as 127.0.0.1:50051, or `off`"), "{}", said.err);
    let said = throttlekit(&["serve", "policies.yaml", "--listen", "off"]);
    assert_eq!(said.ends_with, 2, "without gRPC there is nothing to look at it by");
}

#[test]
fn a_proxys_token_does_not_come_where_its_clients_put_theirs() {
    let said = throttlekit(&["serve", "policies.yaml", "--proxy-token-header", "Authorization"]);
    assert_eq!(said.ends_with, 2);
    assert!(said.err.contains("clients send their own credentials in this header"), "{}", said.err);
}

#[test]
fn a_list_of_callers_is_checked_and_its_secrets_where_that_is_asked_for() {
    let folder = TempDir::new().unwrap();
    let listed = |access: &str| file(&folder, "listed.yaml", &format!("{GOOD}access:\n  {access}\n"));
    let unknown =
        listed("principals: {a: {certificate: 'dns:a', allow: [{endpoints: [check], policies: [apx]}]}}");
    let said = throttlekit(&["lint", "-q", &unknown]);
    assert_eq!(said.ends_with, 0, "{}", said.err);
    for words in ["warning: access.principals.a.allow[0].policies[0]", "did you mean `api`?", "at line 5"] {
        assert!(said.err.contains(words), "{}", said.err);
    }
    let away = listed("principals: {a: {token_file: /no/such/token, allow: [{endpoints: [check]}]}}");
    let said = throttlekit(&["lint", "-q", &away]);
    assert_eq!((said.ends_with, said.err.as_str()), (0, ""), "the file may be elsewhere");
    refuses(
        &["lint", "-q", "--secrets", &away],
        &["access.principals.a.token_file: /no/such/token", "at line 5", "listed.yaml: 1 error"],
    );
    let mistyped = listed("principals: {a: {certificate: 'dns:a', allow: [{endpoints: [chekc]}]}}");
    refuses(&["lint", &mistyped], &["did you mean `check`?", "at line 5"]);
}

#[test]
fn an_address_that_is_none_is_told_how_one_looks() {
    let said = throttlekit(&["serve", "policies.yaml", "--listen", "localhost:50051"]);
    assert_eq!(said.ends_with, 2);
    assert!(said.err.contains("expected an IP address and a port, such as 127.0.0.1:50051"), "{}", said.err);
}

/// Keys may be names of people: nobody sees them unless the server was told who may.
#[test]
fn the_monitor_is_closed_unless_there_is_a_secret_or_loopback_is_trusted() {
    let closed = Serving::start(GOOD, &[]);
    let remedies = ["--monitor-secret-file", "`access`", "--trust-loopback"];
    refuses(&["top", "--once", "--target", closed.at("grpc")], &remedies);
    let trusting = Serving::start(GOOD, &["--trust-loopback"]);
    let said = throttlekit(&["top", "--once", "--target", trusting.at("grpc")]);
    assert_eq!(said.ends_with, 0, "{}", said.err);
}

#[test]
fn who_asks_where_nobody_is_learns_where_to_look() {
    for command in ["top", "health"] {
        let once: &[&str] = if command == "top" { &["--once"] } else { &[] };
        let args = [&[command, "--target", "127.0.0.1:1"], once].concat();
        refuses(&args, &["127.0.0.1:1 does not respond", "throttlekit serve", "--target"]);
        let args = [&[command, "--target", "http://127.0.0.1:1"], once].concat();
        refuses(&args, &["expected host:port without a scheme"]);
    }
}

#[test]
fn every_command_is_in_the_help_with_what_it_does() {
    let said = throttlekit(&["--help"]);
    for command in ["serve", "lint", "top", "bench", "health", "migrate", "schema", "import", "import-envoy"]
    {
        let line = said.out.lines().find(|line| line.trim_start().starts_with(&format!("{command} ")));
        assert!(line.is_some_and(|line| line.trim().len() > command.len() + 10), "{command}: {}", said.out);
    }
    assert!(said.out.contains("First steps:"), "{}", said.out);
}

#[test]
fn the_schema_is_the_one_that_is_checked_in() {
    let said = throttlekit(&["schema"]);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.schema.json");
    assert_eq!(said.out, fs::read_to_string(path).unwrap());
}

#[test]
fn what_is_imported_from_the_typescript_server_is_a_policy_file() {
    let folder = TempDir::new().unwrap();
    let theirs = "version: 1
limiters:
  api: {strategy: gcra, limit: 100, period: 1m, burst: 20, prefix: a}
";
    let said = throttlekit(&["import", &file(&folder, "throttlekit.yaml", theirs)]);
    assert_eq!(said.ends_with, 0, "{}", said.err);
    assert!(said.err.starts_with("note: api: `prefix` is ignored"), "{}", said.err);
    let (ours, warnings) = policy::load(&said.out).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!((ours.policies["api"].rate[0].limit, warnings.len()), (100, 0));

    let json =
        r#"{"version": 1, "limiters": {"api": {"strategy": "gcra", "limit": 100, "periodMs": 60000}}}"#;
    let said = with_input(&["import", "-"], json);
    assert!(said.ends_with == 0 && policy::load(&said.out).is_ok(), "{}", said.err);
    let both = TempDir::new().unwrap();
    file(&both, "one.yaml", theirs);
    file(&both, "two.yaml", &theirs.replace("api", "web"));
    let said = throttlekit(&["import", both.path().to_str().unwrap()]);
    let (all, _) = policy::load(&said.out).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!((said.ends_with, all.policies.len()), (0, 2));
    file(&both, "three.yaml", &theirs.replace("100", "many"));
    file(&both, "two.yaml", theirs);
    refuses(
        &["import", both.path().to_str().unwrap()],
        &["three.yaml:", "found `many`", "two.yaml:", "a limiter of an earlier file", "2 errors"],
    );
    // One of our own files is not one to import.
    let own = file(&folder, "own.yaml", "version: 1\npolicies: {}\n");
    refuses(&["import", &own], &["own.yaml", "nothing was imported"]);
}

#[test]
fn what_is_imported_from_envoy_is_a_policy_file() {
    let folder = TempDir::new().unwrap();
    let theirs = "domain: edge
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 20}
";
    let said = throttlekit(&["import-envoy", &file(&folder, "ratelimit.yaml", theirs)]);
    assert_eq!(said.ends_with, 0, "{}", said.err);
    assert!(said.err.starts_with("note: user: ") && said.err.contains("detailed_metric"), "{}", said.err);
    let (file_of, warnings) = policy::load(&said.out).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!((file_of.policies.len(), warnings.len()), (1, 0));
    assert_eq!(file_of.policies["edge/user"].rate[0].limit, 20);

    let said = with_input(&["import-envoy", "-"], theirs);
    assert!(said.ends_with == 0 && policy::load(&said.out).is_ok(), "{}", said.err);
    let both = TempDir::new().unwrap();
    file(&both, "one.yaml", theirs);
    file(&both, "two.yaml", &theirs.replace("edge", "core"));
    let said = throttlekit(&["import-envoy", both.path().to_str().unwrap()]);
    let (all, _) = policy::load(&said.out).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!((said.ends_with, all.policies.len(), all.envoy.len()), (0, 2, 2));
    file(&both, "three.yaml", &theirs.replace("20", "y"));
    file(&both, "two.yaml", theirs);
    refuses(
        &["import-envoy", both.path().to_str().unwrap()],
        &["three.yaml:", "found `y`", "two.yaml:", "the domain of an earlier file", "2 errors"],
    );

    let odd = theirs.replace("minute", "minuet");
    refuses(
        &["import-envoy", &file(&folder, "odd.yaml", &odd)],
        &["odd.yaml", "did you mean `minute`?", "line 5", "nothing was imported"],
    );
}

#[test]
fn a_check_refuses_what_a_start_refuses() {
    let folder = TempDir::new().unwrap();
    let good = file(&folder, "good.yaml", GOOD);
    let checks = |args: &[&'static str]| [&["serve", &good, "--check"], args].concat();
    #[cfg(feature = "otlp")]
    refuses(&checks(&["--otlp", "https://localhost:4317"]), &["--otlp", "http://HOST:PORT"]);
    refuses(&checks(&["--http", "127.0.0.1:50051"]), &["127.0.0.1:50051", "--http"]);
    refuses(&checks(&["--store-schema", "limits"]), &["a schema applies only to PostgreSQL"]);
    let bad_schema = ["--store", "postgres://127.0.0.1:1/d", "--store-schema", "No Schema"];
    refuses(&checks(&bad_schema), &["invalid schema name \"No Schema\""]);
    let said = throttlekit(&checks(&[]));
    assert_eq!(said.ends_with, 0, "{}", said.err);
    assert_eq!(said.out, format!("{good}: ready to serve, counts in memory\n"));
}

#[test]
fn migrate_validates_the_schema_name() {
    let args = ["migrate", "--store", "postgres://127.0.0.1:1/d", "--store-schema", "pg_limits"];
    refuses(&args, &["invalid schema name \"pg_limits\""]);
    refuses(
        &["migrate", "--store", "redis://127.0.0.1:1", "--store-schema", "a"],
        &["applies only to PostgreSQL"],
    );
}

#[test]
fn a_check_warns_of_an_unavailable_store_since_a_server_starts_without_it() {
    let folder = TempDir::new().unwrap();
    let good = file(&folder, "good.yaml", GOOD);
    for store in ["redis://127.0.0.1:1", "postgres://127.0.0.1:1/d"] {
        let said = throttlekit(&["serve", &good, "--check", "--store", store]);
        let kind = store.split(':').next().unwrap();
        assert_eq!(said.ends_with, 0, "{}", said.err);
        assert!(said.out.contains(&format!("the store ({kind}) cannot be used now")), "{}", said.out);
        assert!(said.out.starts_with("warning: ") && !said.out.contains("ready to serve"), "{}", said.out);
    }
}

#[test]
fn a_check_warns_of_shared_regions_without_a_name_for_each_server() {
    let folder = TempDir::new().unwrap();
    let policies = "version: 1\npolicies:\n  tokens: {fair: {limit: 90, per: 1m, regions: true}}\n";
    let shared = file(&folder, "shared.yaml", policies);
    let args = ["serve", &shared, "--check", "--store", "redis://127.0.0.1:1"];
    let warns = |said: &Said| said.out.contains("policy `tokens`: `regions` without --node-id");
    assert!(warns(&throttlekit(&args)));
    assert!(!warns(&throttlekit(&[&args[..], &["--node-id", "one"]].concat())));
}
