//! Servers as processes of their own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};

/// A server that ends with this.
pub struct Served {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub uri: String,
}

impl Served {
    /// Starts this very program with these arguments.
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

    /// How often this policy called its store.
    pub fn store_calls(&mut self, policy: &str) -> Result<u64> {
        let stdin = self.stdin.as_mut().context("a pipe")?;
        writeln!(stdin, "{policy}")?;
        stdin.flush()?;
        self.line()?.parse().context("a number")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
