//! A Redis of a test's own, which it may stop.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const START_MAX: Duration = Duration::from_secs(10);

pub(crate) struct OwnRedis {
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl OwnRedis {
    /// Returns when it takes connections.
    pub(crate) async fn start() -> Self {
        let (port, folder) = (free_port(), TempDir::new().unwrap());
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot start redis-server: {error}; `cargo xtask services up` installs it")
            });
        let own = Self { port, child, _folder: folder };
        timeout(START_MAX, async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("it starts");
        own
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        self.stop();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
