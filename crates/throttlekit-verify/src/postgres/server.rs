//! PostgreSQL servers of a test, which it may stop, kill, promote and restore. Failing to get a server panics
//! with the reason.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const SETTINGS: &str = "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 40\n\
                        max_wal_senders = 4\nwal_level = replica\nhot_standby = on\nwal_keep_size = 64MB\n";

const PATIENCE: Duration = Duration::from_millis(50);
const PATIENCE_POLLS: u32 = 400;

/// A database cluster in its own directory. Removed on drop.
pub struct Server {
    folder: PathBuf,
    port: u16,
}

impl Server {
    /// Creates a new cluster, not started.
    pub fn create() -> Self {
        let server = Self::empty();
        run(&program("initdb"), &["-D", &server.data(), "-A", "trust", "-U", "postgres", "--no-sync"]);
        server.configure(SETTINGS);
        server
    }

    /// Creates and starts a standby that follows this server.
    pub fn standby(&self) -> Self {
        let (standby, port) = (Self::empty(), self.port.to_string());
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-D", &standby.data()];
        let how = ["-R", "-X", "stream", "--no-sync", "-c", "fast"];
        run(&program("pg_basebackup"), &[&from[..], &how[..]].concat());
        standby.start();
        standby
    }

    /// Runs statements, one at a time, and returns their output.
    pub fn sql(&self, statements: &[&str]) -> String {
        let mut args = psql_args(self.port, "postgres");
        for statement in statements {
            args.extend(["-c".to_owned(), (*statement).to_owned()]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(&program("psql"), &args).trim().to_owned()
    }

    /// Connects as this role and runs a statement, as any application does. Returns `None` if that fails.
    pub fn try_sql(&self, role: &str, statement: &str) -> Option<String> {
        query(self.port, role, statement)
    }

    /// Runs a statement repeatedly and passes each row to `row`, until that returns `false`.
    pub fn watch(&self, statement: &str, every: Duration, mut row: impl FnMut(&str) -> bool) {
        let args = psql_args(self.port, "postgres");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut psql = command(&program("psql"), &args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql starts");
        let script = format!("{statement} \\watch {}\n", every.as_secs_f64());
        psql.stdin.as_mut().expect("piped").write_all(script.as_bytes()).expect("psql reads");
        let printed = BufReader::new(psql.stdout.take().expect("piped"));
        for line in printed.lines().map_while(Result::ok).filter(|line| line.contains('|')) {
            if !row(&line) {
                break;
            }
        }
        let _ = psql.kill();
        let _ = psql.wait();
    }

    /// Waits until a standby has replayed what this server has written so far.
    pub fn wait_for(&self, standby: &Self) {
        let written = self.sql(&["SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"]);
        for _ in 0..PATIENCE_POLLS {
            let replayed = standby.sql(&["SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint"]);
            if replayed.parse::<u64>().unwrap_or(0) >= written.parse().unwrap_or(u64::MAX) {
                return;
            }
            sleep(PATIENCE);
        }
        panic!("the standby does not catch up");
    }

    /// Cuts a standby off from its primary.
    pub fn cut_off(&self) {
        self.sql(&["ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"]);
        for _ in 0..PATIENCE_POLLS {
            if self.sql(&["SELECT count(*) FROM pg_stat_wal_receiver"]) == "0" {
                return;
            }
            sleep(PATIENCE);
        }
        panic!("the standby goes on receiving");
    }

    fn empty() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = run("mktemp", &["-d", "-p", "/tmp", "throttlekit-own-XXXXXX"]);
        Self { folder: PathBuf::from(folder.trim()), port }
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    /// Appends settings, which apply from the next start or reload on.
    pub fn configure(&self, settings: &str) {
        let file = self.folder.join("data/postgresql.conf");
        let script = format!("printf '%s' \"$1\" >> {}", file.display());
        run("sh", &["-c", &script, "sh", settings]);
    }

    /// Returns its port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns its address.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the address of both, this one first.
    pub fn url_with(&self, other: &Self) -> String {
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", self.port, other.port);
        format!("postgres://postgres@{hosts}/postgres?target_session_attrs=read-write")
    }

    /// Starts it and waits until it accepts connections.
    pub fn start(&self) {
        let log = self.folder.join("log").display().to_string();
        let options = format!("-p {}", self.port);
        run(&program("pg_ctl"), &["-D", &self.data(), "-l", &log, "-o", &options, "-w", "-t", "60", "start"]);
    }

    /// Stops it in this mode: `fast`, or `immediate` as a crash does.
    pub fn stop(&self, mode: &str) {
        run(&program("pg_ctl"), &["-D", &self.data(), "-m", mode, "-w", "-t", "60", "stop"]);
    }

    /// Promotes a standby.
    pub fn promote(&self) {
        run(&program("pg_ctl"), &["-D", &self.data(), "-w", "-t", "60", "promote"]);
    }

    /// Copies the files of a stopped server aside.
    pub fn copy_aside(&self) {
        let aside = self.folder.join("aside").display().to_string();
        run("rm", &["-rf", &aside]);
        run("cp", &["-a", &self.data(), &aside]);
    }

    /// Replaces the files of a stopped server with the copy.
    pub fn restore_copy(&self) {
        let aside = self.folder.join("aside").display().to_string();
        run("rm", &["-rf", &self.data()]);
        run("cp", &["-a", &aside, &self.data()]);
    }

    /// Kills the postmaster with `kill -9`, and waits until its sessions have noticed and ended: a new
    /// postmaster refuses to start while they hold its memory.
    pub fn kill(&self) {
        let mut processes = self.children();
        processes.push(self.postmaster());
        run("kill", &["-9", &self.postmaster()]);
        for _ in 0..PATIENCE_POLLS {
            if !processes.iter().any(|pid| Path::new("/proc").join(pid).exists()) {
                break;
            }
            sleep(PATIENCE);
        }
        let _ = fs::remove_file(self.folder.join("data/postmaster.pid"));
    }

    /// Signals every process of the server. The postmaster first, so that it starts no more.
    pub fn signal_all(&self, signal: &str) {
        let signal_one = |pid: &str| {
            // One may have ended meanwhile.
            let _ = command("kill", &[&format!("-{signal}"), pid]).output();
        };
        signal_one(&self.postmaster());
        self.children().iter().for_each(|pid| signal_one(pid));
    }

    fn children(&self) -> Vec<String> {
        let children = Command::new("pgrep").args(["-P", &self.postmaster()]).output().expect("pgrep runs");
        String::from_utf8_lossy(&children.stdout).lines().map(str::to_owned).collect()
    }

    fn postmaster(&self) -> String {
        let pid = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        pid.lines().next().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.folder.join("data/postmaster.pid").exists() {
            self.signal_all("CONT");
            let _ =
                command(&program("pg_ctl"), &["-D", &self.data(), "-m", "immediate", "-w", "stop"]).output();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Connects to the server at a local port as this role and runs a statement. Returns `None` if that fails.
pub fn query(port: u16, role: &str, statement: &str) -> Option<String> {
    let mut args = psql_args(port, role);
    args.extend(["-c".to_owned(), statement.to_owned()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = command(&program("psql"), &args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn psql_args(port: u16, role: &str) -> Vec<String> {
    let port = port.to_string();
    let to = ["-h", "127.0.0.1", "-p", &port, "-U", role, "-d", "postgres"];
    [&to[..], &["-XAtqw", "-v", "ON_ERROR_STOP=1"]].concat().into_iter().map(str::to_owned).collect()
}

/// PostgreSQL does not run as root; then its own user runs it.
pub(super) fn command(program: &str, args: &[&str]) -> Command {
    let we_are_root = fs::read_dir("/root").is_ok();
    let mut command = Command::new(if we_are_root { "runuser" } else { program });
    if we_are_root {
        command.args(["-u", "postgres", "--", program]);
    }
    command.args(args);
    command
}

pub(super) fn run(program: &str, args: &[&str]) -> String {
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
