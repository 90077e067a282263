//! The five-minute pages of the book, run as they are written: files are created, commands typed in order, and each prints
//! what the page shows. Ports differ, and what a page installs is what tests have installed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit_verify::python::{interpreter, run};

use crate::common::reader::{Block, Reader, blocks};

const SERVICE: &str = include_str!("../../../docs/start/service.md");
const PYTHON: &str = include_str!("../../../docs/start/python.md");
const ENVOY: &str = include_str!("../../../docs/start/envoy.md");

/// The package of the Python page.
const PACKAGE: &str = "httpx==0.28.1";
/// From here on, the Python page needs our package, whose own tests run it.
const OUR_PACKAGE: &str = "## 3. ";
/// Beginnings of commands that run until they are stopped.
const SERVERS: [&str; 3] = ["throttlekit serve", "python3 -m http.server", "venv/bin/envoy"];
/// Beginnings of lines that install something.
const INSTALLS: [&str; 3] = ["cargo install", "python3 -m venv", "venv/bin/pip install"];
/// A page promises five minutes. A machine has a part of them, the reader the rest.
const WITHIN: Duration = Duration::from_secs(120);

/// Follows a page. Where a server was started before, and its first `--store` comes up, the page says to stop it.
fn type_in(reader: &mut Reader, page: &str) {
    let mut printed = String::new();
    for Block { language, file, text } in blocks(page) {
        let is = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
        match (language, file) {
            (_, Some(file)) => fs::write(reader.folder.path().join(file), reader.here(&text)).unwrap(),
            ("sh", None) if is(&INSTALLS) => {}
            ("sh", None) if is(&SERVERS) => {
                if text.contains("--store") && !text.contains("--listen") {
                    reader.stop();
                }
                reader.serve(&text);
            }
            ("sh", None) => printed = reader.types(&text),
            ("text", None) => shows(&text, &printed),
            _ => {}
        }
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
    type_in(&mut reader, page);
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
    let python = interpreter(PACKAGE);
    let page = PYTHON.split_once(OUR_PACKAGE).expect("the section is there").0;
    follow(page, |reader| {
        let folder = reader.folder.path().join("venv/bin");
        fs::create_dir_all(&folder).unwrap();
        let script = format!("#!/bin/sh\nexec {} \"$@\"\n", python.display());
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
