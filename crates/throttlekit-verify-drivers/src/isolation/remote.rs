//! The remote client over a real server. Its own test has the server and runs the schedules; this module
//! collects the result.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The findings of the client's test.
pub(super) struct Remote {
    pub(super) figure: Value,
}

impl Remote {
    pub(super) fn schedules(&self) -> u64 {
        self.figure["schedules"].as_u64().unwrap_or(0)
    }

    pub(super) fn broken(&self) -> Option<String> {
        let violations = self.figure["violations"].as_u64().unwrap_or(u64::MAX);
        (violations > 0).then(|| format!("{violations} violations of the remote client"))
    }
}

/// Runs `schedules` schedules. Returns `None` if that is zero.
pub(super) fn run(schedules: u64) -> Result<Option<Remote>> {
    if schedules == 0 {
        return Ok(None);
    }
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--package", "throttlekit-client", "--test", "integration", "--"]);
    command.args(["--exact", "isolation::isolated_callers_of_a_remote_limiter", "--nocapture"]);
    command.env("ISOLATION_SCHEDULES", schedules.to_string());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut figure = None;
    for line in BufReader::new(child.stdout.take().context("its output")?).lines() {
        let line = line?;
        match line.strip_prefix("part: ") {
            Some(part) => figure = Some(serde_json::from_str(part)?),
            None if line.contains("iolation") => println!("  server:{line}"),
            None => {}
        }
    }
    let ended = child.wait()?;
    let figure: Value = figure.context("the client's test did not come to its end")?;
    println!("{:<12}{figure}", "server");
    ensure!(ended.success() || figure["violations"] != 0, "the client's test failed");
    Ok(Some(Remote { figure }))
}
