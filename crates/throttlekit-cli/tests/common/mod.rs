//! A server as people run it: a process that says where it serves.

#[cfg(feature = "dashboard")]
pub(crate) mod pty;
pub(crate) mod reader;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// How long it may take to come up, on a machine that is busy.
const UP_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Serving {
    child: Child,
    /// What it said when it was up: `grpc`, `http` and `metrics` are addresses, or `off`.
    said: Value,
    /// The messages of its log.
    log: Arc<Mutex<Vec<String>>>,
    _folder: TempDir,
}

impl Serving {
    /// Serves these policies on free ports. What is given in `args` holds before that.
    pub(crate) fn start(policies: &str, args: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("policies.yaml");
        std::fs::write(&file, policies).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_throttlekit"));
        serve.arg("serve").arg(&file).arg("--log-json").env_remove("THROTTLEKIT_STORE").args(args);
        serve.args(["--lame-duck-s", "0", "--fresh-start"]);
        for listener in ["--listen", "--http", "--metrics"] {
            if !args.contains(&listener) {
                serve.args([listener, "127.0.0.1:0"]);
            }
        }
        let mut child = serve.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::default();
        let said = up(child.stderr.take().unwrap(), &log);
        Self { child, said, log, _folder: folder }
    }

    /// Checks whether it has logged this message, or does so soon.
    pub(crate) fn logged(&self, message: &str) -> bool {
        (0..100).any(|_| {
            let found = self.log.lock().unwrap().iter().any(|line| line == message);
            if !found {
                std::thread::sleep(Duration::from_millis(20));
            }
            found
        })
    }

    /// Returns the address of a listener: `grpc`, `http` or `metrics`.
    pub(crate) fn at(&self, listener: &str) -> &str {
        self.said[listener].as_str().unwrap()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    /// Stops it as a supervisor would, and waits until it has ended.
    pub(crate) fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("sh").args(["-c", "kill -TERM \"$0\"", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line that says where it serves. All of its log is read, so that it never waits for a reader.
fn up(log: impl Read + Send + 'static, messages: &Arc<Mutex<Vec<String>>>) -> Value {
    let ((told, heard), messages) = (mpsc::channel(), messages.clone());
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            messages.lock().unwrap().extend(line["message"].as_str().map(str::to_owned));
            if line["message"] == "server started" {
                let _ = told.send(line);
            }
        }
    });
    heard.recv_timeout(UP_WITHIN).expect("it serves in time")
}
