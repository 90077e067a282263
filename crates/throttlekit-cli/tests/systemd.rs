//! A server beside a service manager: notifications, the watchdog, and sockets that are already open.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use tempfile::TempDir;

const POLICIES: &str = "version: 1\npolicies: {api: {rate: {limit: 10, per: 1m}}}\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a policy file and a socket for notifications.
struct Manager {
    folder: TempDir,
    inbox: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("policies.yaml"), POLICIES).unwrap();
        let inbox = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        inbox.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { folder, inbox }
    }

    fn serve(&self, grpc: &str) -> Command {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_throttlekit"));
        serve.arg("serve").arg(self.folder.path().join("policies.yaml"));
        serve.args(["--listen", grpc, "--http", "off", "--metrics", "off", "--lame-duck-s", "0"]);
        serve.env("NOTIFY_SOCKET", self.folder.path().join("notify")).env_remove("THROTTLEKIT_STORE");
        serve.stdin(Stdio::null()).stderr(Stdio::null());
        serve
    }

    /// Waits for a message with this line, and returns the lines of all messages up to its end.
    fn receive(&self, line: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while !lines.iter().any(|found| found == line) {
            let mut bytes = [0; 256];
            let length = self.inbox.recv(&mut bytes).unwrap_or_else(|error| panic!("{line}: {error}"));
            lines.extend(String::from_utf8_lossy(&bytes[..length]).lines().map(str::to_owned));
        }
        lines
    }
}

struct Running(Child);

impl Running {
    fn signal(&self, signal: &str) {
        let id = self.0.id().to_string();
        let kill = format!("kill -{signal} \"$0\"");
        assert!(Command::new("sh").args(["-c", &kill, &id]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A socket that a child process inherits as `LISTEN_FDS_FIRST_FD`. Tests run in processes of their own.
fn inheritable() -> (TcpListener, String) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    fcntl_setfd(socket.as_fd(), FdFlags::empty()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

fn pass(serve: &mut Command, socket: &TcpListener) {
    serve.env("LISTEN_FDS", "1").env("LISTEN_FDS_FIRST_FD", socket.as_raw_fd().to_string());
    serve.env_remove("LISTEN_PID");
}

/// Opens HTTP/2, and returns the first bytes of the response: a SETTINGS frame.
fn greeting(address: &str) -> [u8; 9] {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    frame
}

#[test]
fn ready_reloading_watchdog_and_stopping_are_reported_in_order() {
    let manager = Manager::new();
    let mut serve = manager.serve("127.0.0.1:0");
    serve.env("WATCHDOG_USEC", "200000");
    let running = Running(serve.spawn().unwrap());
    assert_eq!(manager.receive("READY=1")[0], "READY=1", "nothing precedes readiness");
    manager.receive("WATCHDOG=1");
    running.signal("HUP");
    let reload = manager.receive("RELOADING=1");
    assert!(reload.iter().any(|line| line.starts_with("MONOTONIC_USEC=")), "{reload:?}");
    manager.receive("READY=1");
    running.signal("TERM");
    manager.receive("STOPPING=1");
}

#[test]
fn a_passed_socket_is_served_and_survives_a_restart() {
    let (socket, address) = inheritable();
    for _ in 0..2 {
        let manager = Manager::new();
        let mut serve = manager.serve(&address);
        pass(&mut serve, &socket);
        let mut running = Running(serve.spawn().unwrap());
        // Connections wait in the queue of the socket until the server accepts them.
        assert_eq!(greeting(&address)[3], 4, "a SETTINGS frame");
        manager.receive("READY=1");
        running.signal("TERM");
        assert!(running.0.wait().unwrap().success());
    }
}

#[test]
fn a_passed_socket_that_no_listener_uses_is_an_error_also_of_a_check() {
    for check in [false, true] {
        let (socket, address) = inheritable();
        let manager = Manager::new();
        let mut serve = manager.serve("127.0.0.1:0");
        serve.args(check.then_some("--check"));
        pass(&mut serve, &socket);
        let Output { status, stderr, .. } = serve.stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && stderr.contains(&address) && stderr.contains("--listen"), "{stderr}");
    }
}
