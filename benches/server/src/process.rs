//! Servers as processes of their own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};

use crate::child::ALLOCATIONS;

/// A server that is killed on drop.
pub struct Served {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub uri: String,
}

impl Served {
    /// Starts this program with these arguments.
    pub fn start(args: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the server did not start")?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut served = Self { child, stdin, stdout, uri: String::new() };
        served.uri = format!("http://{}", served.line()?);
        Ok(served)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let line = line.trim().to_owned();
        anyhow::ensure!(!line.is_empty(), "the server ended");
        Ok(line)
    }

    /// Returns the number of calls of this policy to its store.
    pub fn store_calls(&mut self, policy: &str) -> Result<u64> {
        self.number(policy)
    }

    /// Returns the number of allocations of the server since the first of these calls.
    pub fn allocations(&mut self) -> Result<u64> {
        self.number(ALLOCATIONS)
    }

    fn number(&mut self, line: &str) -> Result<u64> {
        let stdin = self.stdin.as_mut().context("a pipe")?;
        writeln!(stdin, "{line}")?;
        stdin.flush()?;
        self.line()?.parse().context("a number")
    }

    /// Returns the processor time of all threads of the server, in seconds.
    pub fn processor_time(&self) -> Result<f64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        let mut nanos = 0.0;
        for thread in threads {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += text.split(' ').next().context("a number")?.parse::<f64>()?;
        }
        Ok(nanos / 1e9)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
