//! The five-minute pages of the book, run as they are written: files are created, commands typed in order, and each prints
//! what the page shows. Ports differ, and what a page installs is what tests have installed.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;
use throttlekit::clock::{BootClock, Clock};
use throttlekit_verify::python::{interpreter, limited, run};

const SERVICE: &str = include_str!("../../../docs/start/service.md");
const PYTHON: &str = include_str!("../../../docs/start/python.md");
const ENVOY: &str = include_str!("../../../docs/start/envoy.md");

/// Packages of the Python page.
const PACKAGES: [&str; 2] = ["throttlekit-py==0.5.1", "httpx==0.28.1"];
/// Ports of the pages, and by default of a server.
const PORTS: [&str; 8] = ["50051", "8080", "9464", "50052", "8081", "9465", "9000", "10000"];
/// Beginnings of commands that run until they are stopped.
const SERVERS: [&str; 3] = ["throttlekit serve", "python3 -m http.server", "venv/bin/envoy"];
/// Beginnings of lines that install something.
const INSTALLS: [&str; 3] = ["cargo install", "python3 -m venv", "venv/bin/pip install"];
/// A page promises five minutes. A machine has a part of them, the reader the rest.
const WITHIN: Duration = Duration::from_secs(120);

/// A fenced block.
struct Block<'a> {
    language: &'a str,
    /// From the line before it, if that is a name in code.
    file: Option<&'a str>,
    text: String,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
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
struct Reader {
    folder: TempDir,
    ports: [String; 8],
    servers: Vec<Child>,
}

impl Reader {
    fn new() -> Self {
        let sockets = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = sockets.map(|socket| socket.local_addr().unwrap().port().to_string());
        Self { folder: TempDir::new().unwrap(), ports, servers: Vec::new() }
    }

    /// Replaces ports, the address of Redis and the path of Envoy by those of this machine.
    fn here(&self, text: &str) -> String {
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

    /// Starts a server, and waits until it accepts connections.
    fn serve(&mut self, command: &str) {
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

    fn stop(&mut self) {
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

    /// Follows a page. Where a server was started before, and its first `--store` comes up, the page says to stop it.
    fn follow(&mut self, page: &str) {
        let mut printed = String::new();
        for Block { language, file, text } in blocks(page) {
            let is = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
            match (language, file) {
                (_, Some(file)) => fs::write(self.folder.path().join(file), self.here(&text)).unwrap(),
                ("sh", None) if is(&INSTALLS) => {}
                ("sh", None) if is(&SERVERS) => {
                    if text.contains("--store") && !text.contains("--listen") {
                        self.stop();
                    }
                    self.serve(&text);
                }
                ("sh", None) => {
                    let target = format!("throttlekit top --target 127.0.0.1:{}", self.ports[0]);
                    let script = self.here(&text).replace("throttlekit top", &target);
                    printed = run(self.shell(&script));
                }
                ("text", None) => shows(&text, &printed),
                _ => {}
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Fails unless the lines that a page shows were printed, in their order. `…` stands for anything, and numbers in lines
/// about waits may differ.
fn shows(page: &str, printed: &str) {
    let mut lines = printed.lines();
    for line in page.lines().filter(|line| line.trim() != "…") {
        let waits = ["retry", "reset"].iter().any(|word| line.to_lowercase().contains(word));
        let same = |printed: &str| {
            if waits {
                matches(&without_numbers(line), &without_numbers(printed))
            } else {
                matches(line, printed)
            }
        };
        assert!(lines.any(same), "the page shows\n{line}\nand this was printed\n{printed}");
    }
}

fn matches(pattern: &str, printed: &str) -> bool {
    let mut rest = printed.trim_start();
    let found = |(index, part): (usize, &str)| {
        let at = rest.find(part.trim())?;
        rest = &rest[at + part.trim().len()..];
        Some(index > 0 || at == 0)
    };
    pattern.split('…').enumerate().map(found).all(|found| found == Some(true))
}

fn without_numbers(line: &str) -> String {
    line.split(|letter: char| letter.is_ascii_digit()).filter(|part| !part.is_empty()).collect()
}

fn follow(page: &str, prepare: impl FnOnce(&Reader)) {
    let (mut reader, began) = (Reader::new(), BootClock.now());
    prepare(&reader);
    reader.follow(page);
    let took = BootClock.now().since(began);
    println!("the page took {} ms", took.as_millis());
    assert!(took < WITHIN, "the page took {took:?}");
}

#[test]
fn the_page_for_a_service_is_true() {
    assert!(
        std::env::var_os("THROTTLEKIT_REDIS").is_some(),
        "set THROTTLEKIT_REDIS: cargo xtask services up"
    );
    follow(SERVICE, |_| {});
}

#[test]
fn the_page_for_python_is_true() {
    let pythons = PACKAGES.map(interpreter);
    follow(PYTHON, |reader| {
        // One environment with the packages of both.
        let libraries = pythons.map(|python| {
            let list = run({
                let mut list = limited(&python);
                list.args(["-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]);
                list
            });
            list.trim().to_owned()
        });
        let folder = reader.folder.path().join("venv/bin");
        fs::create_dir_all(&folder).unwrap();
        let script = format!("#!/bin/sh\nPYTHONPATH={} exec python3 \"$@\"\n", libraries.join(":"));
        fs::write(folder.join("python"), script).unwrap();
        run({
            let mut executable = Command::new("chmod");
            executable.arg("+x").arg(folder.join("python"));
            executable
        });
    });
}

#[test]
fn the_page_for_envoy_is_true() {
    assert!(
        std::env::var_os("THROTTLEKIT_ENVOY").is_some(),
        "set THROTTLEKIT_ENVOY: cargo xtask services up"
    );
    follow(ENVOY, |_| {});
}

#[test]
fn a_page_that_shows_something_else_is_found() {
    let printed = "{\"allowed\":true,\"limit\":5,\"retry_after_ms\":118} 200\nbye\n";
    shows(
        "{\"allowed\":true, … ,\"retry_after_ms\":99, …} 200\n…\nbye\n".replace(", …}", "}").as_str(),
        printed,
    );
    let wrong = std::panic::catch_unwind(|| shows("{\"allowed\":false, …\n", printed));
    assert!(wrong.is_err());
}
