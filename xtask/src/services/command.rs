//! Runs other programs with a time limit and without output on our standard output.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use throttlekit::clock::{Clock, PreciseClock};

/// A program and its arguments.
pub(super) type Words = Vec<String>;

/// Installing takes the longest of all commands.
const RUN_SECONDS_MAX: &str = "600";
const ANSWER_SECONDS_MAX: &str = "3";
const POLL_EVERY: Duration = Duration::from_millis(20);
const TAIL_LINES: usize = 12;

/// Returns owned words.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(str::to_owned).to_vec()
}

/// Runs a command to its end. Its output goes to a file: a pipe would stay open in the servers it starts.
pub(super) fn run(words: &[String], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join("commands.log");
    let log = File::options().create(true).append(true).open(&path)?;
    let mut command = limited(RUN_SECONDS_MAX, words);
    command.stdout(log.try_clone()?).stderr(log);
    let status = command.status().with_context(|| format!("cannot start {}", words[0]))?;
    ensure!(status.success(), "{status}: {}\n{}", words.join(" "), tail(&path));
    Ok(())
}

/// Returns the output of a command, if it succeeds soon.
pub(super) fn output(words: &[String]) -> Result<String> {
    let output = limited(ANSWER_SECONDS_MAX, words).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}: {said}", output.status, words.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs outside of our own directory, which another user may not be allowed to enter.
fn limited(seconds: &str, words: &[String]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", seconds]).args(words).current_dir("/").stdin(Stdio::null());
    command
}

/// Sends a signal. A process that has exited is not an error.
pub(super) fn signal(pid: u32, name: &str) {
    // The shell's own `kill`: small systems have no other.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("kill -{name} {pid}")]).stderr(Stdio::null());
    let _ = command.status();
}

/// Polls until it holds.
pub(super) fn wait_until(limit: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let clock = PreciseClock::new();
    let begun = clock.now();
    while !holds() {
        if clock.now().since(begun) > limit {
            bail!("waited {} s", limit.as_secs());
        }
        thread::sleep(POLL_EVERY);
    }
    Ok(())
}

/// Returns the end of a log, with its name.
pub(super) fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("{}:\n  {}", path.display(), end.join("\n  "))
}

/// Removes a directory that may not exist.
pub(super) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
