//! Python with a pinned client from PyPI, fetched once into the repository's target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fetching is the longest of what is run.
const SECONDS_MAX: &str = "300";
/// `$0` is the folder, `$1` the package.
const FETCH: &str = r#"
    test -e "$0/ready" || {
        python3 -m venv --clear "$0" &&
        "$0/bin/python" -m pip install --quiet --only-binary :all: "$1" &&
        touch "$0/ready"
    }"#;

/// The interpreter that has this package (`name==version`). Whoever comes first fetches it, the others wait.
///
/// # Panics
///
/// If it cannot be had: a test that needs a real client fails without it.
pub fn interpreter(package: &str) -> PathBuf {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/engines");
    fs::create_dir_all(&cache).unwrap_or_else(|error| panic!("{}: {error}", cache.display()));
    let folder = cache.join(package);
    let mut fetches = limited(Path::new("flock"));
    fetches.arg(cache.join(format!("{package}.lock"))).args(["sh", "-c", FETCH]).arg(&folder).arg(package);
    run(fetches);
    folder.join("bin/python")
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
