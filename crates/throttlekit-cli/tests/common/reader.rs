//! A reader who follows a page: the blocks of the page, and a machine to type them into.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;
use throttlekit_verify::python::{limited, run};

/// Ports of the pages, and by default of a server.
const PORTS: [&str; 8] = ["50051", "8080", "9464", "50052", "8081", "9465", "9000", "10000"];

/// A fenced block.
pub(crate) struct Block<'a> {
    pub(crate) language: &'a str,
    /// From the line before it, if that is a name in code.
    pub(crate) file: Option<&'a str>,
    pub(crate) text: String,
}

/// Returns the fenced blocks of a page, in order.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut lines, mut before) = (Vec::new(), page.lines(), "");
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            let file = before.strip_prefix('`').and_then(|name| name.strip_suffix("`:"));
            blocks.push(Block { language, file, text: text.join("\n") + "\n" });
        }
        before = if line.is_empty() { before } else { line };
    }
    blocks
}

/// A reader's machine: a folder, the programs, free ports, and the servers that were started.
pub(crate) struct Reader {
    pub(crate) folder: TempDir,
    pub(crate) ports: [String; 8],
    servers: Vec<Child>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let sockets = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = sockets.map(|socket| socket.local_addr().unwrap().port().to_string());
        Self { folder: TempDir::new().unwrap(), ports, servers: Vec::new() }
    }

    /// Replaces ports, the address of Redis and the path of Envoy by those of this machine.
    pub(crate) fn here(&self, text: &str) -> String {
        let text = PORTS
            .iter()
            .zip(&self.ports)
            .fold(text.to_owned(), |text, (port, free)| text.replace(port, free));
        let text = text.replace("venv/bin/envoy", &std::env::var("THROTTLEKIT_ENVOY").unwrap_or_default());
        text.replace("redis://127.0.0.1:6379", &std::env::var("THROTTLEKIT_REDIS").unwrap_or_default())
    }

    fn shell(&self, script: &str) -> Command {
        let built = PathBuf::from(env!("CARGO_BIN_EXE_throttlekit")).parent().unwrap().to_owned();
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(built).chain(std::env::split_paths(&rest))).unwrap();
        let mut shell = limited(Path::new("sh"));
        shell.args(["-euc", script]).current_dir(self.folder.path()).env("PATH", path);
        shell.env_remove("THROTTLEKIT_STORE");
        shell
    }

    /// Types these lines into a shell, and returns what they print.
    pub(crate) fn types(&self, lines: &str) -> String {
        let target = format!("throttlekit top --target 127.0.0.1:{}", self.ports[0]);
        run(self.shell(&self.here(lines).replace("throttlekit top", &target)))
    }

    /// Starts a server, and waits until it accepts connections.
    pub(crate) fn serve(&mut self, command: &str) {
        let [grpc, http, metrics, ..] = &self.ports;
        let mut command = self.here(command).replace("\\\n", " ");
        if command.starts_with("throttlekit") && !command.contains("--listen") {
            let listeners =
                format!("--listen 127.0.0.1:{grpc} --http 127.0.0.1:{http} --metrics 127.0.0.1:{metrics}");
            command = format!("{} {listeners}", command.trim());
        }
        let port = if command.starts_with("throttlekit") {
            let listen = command.split("--http 127.0.0.1:").nth(1).unwrap();
            listen.split_whitespace().next().unwrap().to_owned()
        } else {
            self.ports[if command.contains("http.server") { 6 } else { 7 }].clone()
        };
        let mut shell = self.shell(&format!("exec {command}"));
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        self.servers.push(shell.spawn().unwrap());
        let up = (0..400).any(|_| {
            sleep(Duration::from_millis(50));
            TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
        });
        assert!(up, "does not start: {command}");
        // A server grants slots once those of an earlier process have expired. A reader takes longer.
        sleep(Duration::from_millis(2_500));
    }

    pub(crate) fn stop(&mut self) {
        for mut server in self.servers.drain(..) {
            // `timeout` passes the signal on.
            run({
                let mut kill = Command::new("kill");
                kill.arg(server.id().to_string());
                kill
            });
            server.wait().unwrap();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
    }
}
