//! Python with a pinned client from PyPI, fetched once into the repository's target folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fetching is the longest of what is run.
const SECONDS_MAX: &str = "300";

/// The interpreter that has this package (`name==version`). Whoever comes first fetches it, the others wait.
///
/// # Panics
///
/// If it cannot be had: a test that needs a real client fails without it.
pub fn interpreter(package: &str) -> PathBuf {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/engines");
    let done =
        |result: std::io::Result<()>| result.unwrap_or_else(|error| panic!("{}: {error}", cache.display()));
    done(fs::create_dir_all(&cache));
    let turn =
        File::create(cache.join(format!("{package}.lock"))).and_then(|file| file.lock().map(|()| file));
    let _turn = turn.unwrap_or_else(|error| panic!("{package}: {error}"));
    let folder = cache.join(package);
    let (python, ready) = (folder.join("bin/python"), folder.join("ready"));
    if !ready.exists() {
        let mut makes = limited(Path::new("python3"));
        makes.args(["-m", "venv", "--clear"]).arg(&folder);
        run(makes);
        let mut installs = limited(&python);
        installs.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", package]);
        run(installs);
        done(File::create(ready).map(drop));
    }
    python
}

/// A command that is ended if it takes too long.
pub fn limited(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS_MAX]).arg(program);
    command
}

/// Runs a command, and returns what it said.
///
/// # Panics
///
/// If it fails, with all that it said.
#[allow(clippy::needless_pass_by_value, reason = "it runs once")]
pub fn run(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}
