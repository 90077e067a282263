//! A server of our own, killed and started again: what callers get meanwhile, what is kept, how soon it is over.

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use throttlekit::store::LineOptions;
use throttlekit::{Clock, Guarantee, Limit, PreciseClock, SharedLimiter};
use throttlekit_postgres::PostgresStore;
use tokio::time::{sleep, timeout};

const LIMIT: u64 = 1_000;
const DAY: Duration = Duration::from_secs(86_400);
const RECOVERY_MAX: Duration = Duration::from_millis(300);
const ATTEMPTS: usize = 2;

/// A database cluster in a folder of its own. Gone with the value.
struct Server {
    folder: PathBuf,
    port: u16,
}

impl Server {
    fn create() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = run("mktemp", &["-d", "-p", "/tmp", "throttlekit-killed-XXXXXX"]);
        let server = Self { folder: PathBuf::from(folder.trim()), port };
        run(&program("initdb"), &["-D", &server.data(), "-A", "trust", "-U", "postgres", "--no-sync"]);
        server
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts it and waits until it takes connections.
    fn start(&self) {
        let options = format!("-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories=", self.port);
        let log = self.folder.join("log").display().to_string();
        run(&program("pg_ctl"), &["-D", &self.data(), "-l", &log, "-o", &options, "-w", "-t", "30", "start"]);
    }

    /// `kill -9` of the postmaster; its sessions notice by themselves and end.
    fn kill(&self) {
        let pid = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        run("kill", &["-9", pid.lines().next().unwrap()]);
        // A new postmaster refuses while sessions of the old one hold its memory.
        let gone = || Command::new("pgrep").args(["-f", &self.data()]).output().unwrap().stdout.is_empty();
        for _ in 0..100 {
            if gone() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = fs::remove_file(self.folder.join("data/postmaster.pid"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = command(&program("pg_ctl"), &["-D", &self.data(), "-m", "immediate", "stop"]).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// PostgreSQL does not run as root; then its own user runs it.
fn command(program: &str, args: &[&str]) -> Command {
    let we_are_root = fs::read_dir("/root").is_ok();
    let mut command = Command::new(if we_are_root { "runuser" } else { program });
    if we_are_root {
        command.args(["-u", "postgres", "--", program]);
    }
    command.args(args);
    command
}

fn run(program: &str, args: &[&str]) -> String {
    let output = command(program, args).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error}; `cargo xtask services up` installs it"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Debian keeps the server's programs in a folder for each version.
fn program(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name)).find(|path| path.exists());
    found.map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_forgets_nothing_that_it_answered_and_is_found_again() {
    let server = Server::create();
    server.start();
    let line = LineOptions { deadline: Duration::from_millis(250), ..LineOptions::default() };
    let store =
        PostgresStore::builder(server.url()).line(line).migrate_on_connect(true).connect().await.unwrap();
    let limiter = SharedLimiter::new(store, "killed", Limit::fixed_window(LIMIT, DAY).unwrap()).unwrap();
    let clock = PreciseClock::new();
    let mut admitted = 0;
    let mut best = Duration::MAX;
    for attempt in 1..=ATTEMPTS {
        for _ in 0..20 {
            let answer = limiter.check("alice").await.unwrap();
            admitted += u64::from(answer.decision.allowed && answer.guarantee == Guarantee::Exact);
        }
        server.kill();
        for _ in 0..10 {
            let answer = limiter.check("alice").await.unwrap();
            assert_eq!((answer.decision.allowed, answer.guarantee), (false, Guarantee::Closed), "{answer:?}");
        }
        assert!(limiter.store().line_stats().open, "five outages open the breaker");
        // While it is open a decision costs no wait.
        let begun = clock.now();
        for _ in 0..10_000 {
            limiter.check("alice").await.unwrap();
        }
        let mean = clock.now().since(begun) / 10_000;
        assert!(mean < Duration::from_millis(1), "{mean:?} for a decision while the server is away");

        server.start();
        let up = clock.now();
        let back = timeout(Duration::from_secs(20), async {
            while limiter.check("alice").await.unwrap().guarantee != Guarantee::Exact {
                sleep(Duration::from_millis(2)).await;
            }
        });
        back.await.expect("the store is found again");
        admitted += 1;
        let took = clock.now().since(up);
        println!(
            "figure: postgres killed and restarted, attempt {attempt}: recovery_ms {}",
            took.as_millis()
        );
        best = best.min(took);
    }
    assert!(best <= RECOVERY_MAX, "{best:?} until the first good decision");
    let left = limiter.peek_each([b"alice"]).await.unwrap()[0].remaining;
    assert_eq!(left, LIMIT - admitted, "what was answered is kept, and nothing was charged twice");
}
