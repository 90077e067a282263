//! The README's first five minutes with the server, run as they are written: only the ports are others, so that
//! tests do not meet, and what is installed there is what was just built.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use throttlekit::clock::{BootClock, Clock};
use throttlekit_verify::python::{interpreter, limited, run};

const README: &str = include_str!("../../../README.md");
const HEADING: &str = "## As a service, for any language\n";
const CLIENT: &str = "throttlekit-py==0.5.1";
/// The doors as the README has them: gRPC, HTTP, metrics.
const PORTS: [&str; 3] = ["50051", "8080", "9464"];
/// How often a server that comes up is asked whether it is there, 50 ms apart.
const TRIES_MAX: u32 = 400;

/// The fenced blocks of the section, in order: language and text.
fn blocks() -> Vec<(String, String)> {
    let section = README.split_once(HEADING).expect("the section is there").1;
    let section = section.split_once("\n## ").expect("another follows").0;
    let mut blocks = Vec::new();
    let mut lines = section.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((language.to_owned(), text.join("\n") + "\n"));
    }
    blocks
}

fn of(language: &str) -> Vec<String> {
    blocks().into_iter().filter(|(is, _)| is == language).map(|(_, text)| text).collect()
}

/// A newcomer's machine: a folder to work in, `throttlekit` on the path, and ports that are free.
struct Seat {
    folder: TempDir,
    ports: [String; 3],
    server: Option<Child>,
}

impl Seat {
    fn take() -> Self {
        let sockets = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = sockets.map(|socket| socket.local_addr().unwrap().port().to_string());
        Self { folder: TempDir::new().unwrap(), ports, server: None }
    }

    fn here(&self, text: &str) -> String {
        let ours = PORTS.iter().zip(&self.ports);
        ours.fold(text.to_owned(), |text, (port, free)| {
            text.replace(&format!(":{port}"), &format!(":{free}"))
        })
    }

    /// Types these lines into a shell.
    fn shell(&self, lines: &str) -> String {
        let mut shell = limited(Path::new("sh"));
        shell.args(["-euc", &self.here(lines)]).current_dir(self.folder.path()).env("PATH", path());
        run(shell)
    }

    /// The command that the README gives, with the doors that it has unless told otherwise told.
    fn serve(&mut self, line: &str) {
        let [grpc, http, metrics] = &self.ports;
        let doors =
            format!(" --listen 127.0.0.1:{grpc} --http 127.0.0.1:{http} --metrics 127.0.0.1:{metrics}");
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("exec {line}{doors}"))
            .current_dir(self.folder.path())
            .env("PATH", path());
        shell.env_remove("THROTTLEKIT_STORE").stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(shell.spawn().unwrap());
        let up = (0..TRIES_MAX).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            let mut health = Command::new(env!("CARGO_BIN_EXE_throttlekit"));
            health.args(["health", "--ready", "--target", &format!("127.0.0.1:{grpc}")]);
            health.output().unwrap().status.success()
        });
        assert!(up, "the server does not come up");
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The path, with what was just built before all else.
fn path() -> std::ffi::OsString {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_throttlekit")).parent().unwrap().to_owned();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(built).chain(std::env::split_paths(&rest))).unwrap()
}

#[test]
fn the_readmes_first_five_minutes_are_true() {
    let python = interpreter(CLIENT);
    let began = BootClock.now();
    let mut seat = Seat::take();
    let [policies] = &of("yaml")[..] else { panic!("one policy file") };
    fs::write(seat.folder.path().join("policies.yaml"), policies).unwrap();
    let [install, start, ask, top] = &of("sh")[..] else { panic!("install, start, ask, top") };
    let crate_path = install.trim().strip_prefix("cargo install --path ").expect("how it is installed");
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).ends_with(crate_path), "{crate_path}");

    let (lint, serve) = start.trim().split_once('\n').expect("lint, then serve");
    let said = seat.shell(lint);
    assert!(said.contains("api:\n  5 units per minute for each key"), "{said}");
    assert!(said.contains("2,000 tokens per calendar day"), "{said}");
    seat.serve(serve);

    let said = seat.shell(ask);
    let answers: Vec<_> = said.lines().collect();
    assert_eq!(answers.len(), 6, "{said}");
    for (turn, answer) in answers[..5].iter().enumerate() {
        assert!(answer.contains(r#""allowed":true"#) && answer.ends_with(" 200"), "{answer}");
        assert!(answer.contains(&format!(r#""remaining":{},"#, 4 - turn)), "{answer}");
    }
    let last = answers[5];
    assert!(last.contains(r#""allowed":false"#) && last.ends_with(" 429"), "{last}");
    assert!(last.contains(r#""retry":"after""#) && !last.contains(r#""retry_after_ms":0,"#), "{last}");

    let [script] = &of("python")[..] else { panic!("one script") };
    let mut runs = limited(&python);
    runs.args(["-c", &seat.here(script)]);
    let said = run(runs);
    let expected = ["bob may call: True", "tokens left: 1100", "tokens left: 200", "tokens left: 0"];
    assert_eq!(said.lines().take(4).collect::<Vec<_>>(), expected, "{said}");
    assert_eq!(said.lines().skip(4).collect::<Vec<_>>(), ["tokens left: none, stop"], "{said}");

    let top = top.trim().to_owned() + &format!(" --target localhost:{}", seat.ports[0]);
    // Lists of keys follow decisions by a moment.
    let told = |said: &str| {
        said.contains(r#"policy name="api" kind=rate allowed=6 denied=1"#) && said.contains(r#"key="alice""#)
    };
    let mut said = String::new();
    let seen = (0..TRIES_MAX).any(|_| {
        said = seat.shell(&top);
        told(&said) || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(seen, "{said}");
    println!("the README's path took {} ms", BootClock.now().since(began).as_millis());
}
