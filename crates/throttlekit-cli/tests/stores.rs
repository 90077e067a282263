//! Stores as operators run them: behind Sentinels and poolers, in clusters, with TLS, client certificates and passwords.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::common::Serving;
use crate::operations::ask;

/// A policy that no other test and no earlier run has: their counts are in the same store.
fn policy(name: &str) -> String {
    format!("{name}-{}-{}", std::process::id(), free_port())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn env(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("no {name}: start the engines with `cargo xtask services up`"))
}

/// A server with this store admits exactly the limit, and says so with one of these guarantees.
fn admits_the_limit(name: &str, args: &[&str], guarantees: &[&str]) {
    let policy = policy(name);
    // Short windows: a fence refuses all keys until a window has begun in which nothing can have been lost.
    let rate = "{algorithm: fixed_window, limit: 2, per: 10s}";
    let serving = Serving::start(&format!("version: 1\npolicies: {{{policy}: {{rate: {rate}}}}}\n"), args);
    let port = serving.at("http").rsplit(':').next().unwrap().parse().unwrap();
    let check = |key: u32| {
        let body = format!(r#"{{"policy":"{policy}","key":"{key}"}}"#);
        let head = "host: a\r\nconnection: close\r\ncontent-type: application/json";
        let path = "/v1/check?status=429";
        let length = body.len();
        ask(port, &format!("POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"))
            .unwrap()
    };
    let mut seen = Vec::new();
    // A window may end in between, so a second key may be needed.
    let exact = (0..10).any(|key| {
        seen = [(); 3].map(|()| check(key)).to_vec();
        let holds = seen.iter().map(|(status, _)| *status).eq([200, 200, 429]);
        if !holds {
            std::thread::sleep(Duration::from_secs(2));
        }
        holds
    });
    assert!(exact, "{seen:?}");
    for (_, body) in seen {
        assert!(guarantees.iter().any(|label| body.contains(&format!(r#""{label}""#))), "{body}");
    }
    serving.stop();
}

#[test]
fn a_primary_behind_sentinels() {
    let url = format!("redis+sentinel://{}/mymaster", env("THROTTLEKIT_SENTINEL"));
    for mode in ["async", "async:100", "wait:1", "fence:2"] {
        let args = ["--store", &url, "--store-failover", mode, "--store-deadline-ms", "2000"];
        admits_the_limit("sentinel", &args, &["exact", "bounded"]);
    }
}

#[test]
fn a_cluster() {
    let nodes = env("THROTTLEKIT_REDIS_CLUSTER").replace("redis://", "");
    let url = format!("redis+cluster://{nodes}");
    admits_the_limit("cluster", &["--store", &url, "--store-deadline-ms", "2000"], &["exact", "bounded"]);
}

#[test]
fn postgres_through_a_pooler() {
    let url = env("THROTTLEKIT_PGBOUNCER");
    let args = ["--store", &url, "--store-pooled", "--migrate", "--store-deadline-ms", "5000"];
    admits_the_limit("pooler", &args, &["exact"]);
    let deferred = [&args[..], &["--store-durability", "deferred", "--store-connections", "2"]].concat();
    admits_the_limit("deferred", &deferred, &["bounded"]);
}

/// A Redis with a password that demands client certificates.
struct Guarded {
    child: Child,
    port: u16,
    folder: TempDir,
    /// The certificates of the engine with TLS.
    certificates: PathBuf,
}

const PASSWORD: &str = "p@ss/word:1";

impl Guarded {
    fn start() -> Self {
        let certificates = Path::new(&env("THROTTLEKIT_REDIS_TLS_CA")).parent().unwrap().to_owned();
        let (folder, port) = (TempDir::new().unwrap(), free_port());
        std::fs::write(folder.path().join("password"), format!("{PASSWORD}\n")).unwrap();
        issue_client_certificate(folder.path(), &certificates);
        let mut server = Command::new("redis-server");
        server.args(["--port", "0", "--bind", "127.0.0.1", "--save", "", "--tls-auth-clients", "yes"]);
        server.args(["--tls-port", &port.to_string(), "--requirepass", PASSWORD]);
        for (option, file) in [("ca-cert", "ca.crt"), ("cert", "server.crt"), ("key", "server.key")] {
            server.arg(format!("--tls-{option}-file")).arg(certificates.join(file));
        }
        let child = server.current_dir(&folder).stdout(Stdio::null()).spawn().unwrap();
        let guarded = Self { child, port, folder, certificates };
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return guarded;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("redis-server does not start");
    }

    /// The options that this server demands.
    fn args(&self) -> Vec<String> {
        let shown = |path: PathBuf| path.to_str().unwrap().to_owned();
        let own = |name: &str| shown(self.folder.path().join(name));
        vec![
            "--store".into(),
            format!("rediss://127.0.0.1:{}", self.port),
            "--store-ca".into(),
            shown(self.certificates.join("ca.crt")),
            "--store-password-file".into(),
            own("password"),
            "--store-cert".into(),
            own("client.crt"),
            "--store-key".into(),
            own("client.key"),
            "--store-deadline-ms".into(),
            "2000".into(),
        ]
    }
}

/// Issues `client.crt` and `client.key` by the CA of the engine with TLS.
fn issue_client_certificate(folder: &Path, authority: &Path) {
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        for arg in args.split(' ') {
            command.arg(arg.replace('@', authority.to_str().unwrap()));
        }
        let done = command.current_dir(folder).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    openssl(
        "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout client.key -out client.csr -subj /CN=client",
    );
    // Extensions make it a certificate of version 3, which rustls requires.
    std::fs::write(folder.join("extensions"), "basicConstraints=CA:FALSE\n").unwrap();
    openssl(
        "x509 -req -in client.csr -CA @/ca.crt -CAkey @/ca.key -set_serial 7 -days 2 -extfile extensions -out client.crt",
    );
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn redis_with_a_password_and_client_certificates() {
    let guarded = Guarded::start();
    let args = guarded.args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    admits_the_limit("guarded", &args, &["exact", "bounded"]);
}

/// Runs `serve` with variables instead of options, until it ends.
fn serve(policies: &str, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("policies.yaml");
    std::fs::write(&file, policies).unwrap();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_throttlekit"));
    serve.arg("serve").arg(&file).args(args).env_remove("THROTTLEKIT_STORE");
    serve.envs(variables.iter().copied()).output().unwrap()
}

const POLICIES: &str = "version: 1\npolicies: {api: {rate: {limit: 2, per: 1d}}}\n";

#[test]
fn a_check_starts_nothing_and_finds_what_is_wrong() {
    let good = serve(POLICIES, &["--check"], &[("THROTTLEKIT_STORE", &env("THROTTLEKIT_REDIS"))]);
    let said = String::from_utf8_lossy(&good.stdout);
    assert!(good.status.success() && said.contains("counts in redis"), "{good:?}");
    for (policies, args, variables, expected) in [
        ("version: 1\npolicies: {api: {rat: 1}}\n", &[][..], &[][..], "rat"),
        (POLICIES, &["--store", "redis://127.0.0.1:1", "--store-pooled"], &[], "applies only to PostgreSQL"),
        (POLICIES, &["--store-failover", "wait:1"], &[], "applies only to Redis"),
        (POLICIES, &["--tls-cert", "/missing"], &[], "tls"),
        (POLICIES, &[], &[("THROTTLEKIT_STORE_PASSWORD_FILE", "/missing")], "/missing"),
        (POLICIES, &[], &[("THROTTLEKIT_LISTEN", "nowhere")], "nowhere"),
    ] {
        let refused = serve(policies, &[&["--check"], args].concat(), variables);
        let said = String::from_utf8_lossy(&refused.stderr).to_lowercase();
        assert!(
            !refused.status.success() && said.contains(&expected.to_lowercase()),
            "{expected}: {refused:?}"
        );
    }
}
