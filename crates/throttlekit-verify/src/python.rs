//! Python with a pinned client from PyPI, downloaded once into the repository's target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The download takes the longest of all commands.
const SECONDS_MAX: &str = "300";
/// `$0` is the directory, `$1` the package.
const FETCH: &str = r#"
    test -e "$0/ready" || {
        python3 -m venv --clear "$0" &&
        "$0/bin/python" -m pip install --quiet --only-binary :all: "$1" &&
        touch "$0/ready"
    }"#;

/// Returns the interpreter that has this package (`name==version`). The first caller downloads it, the others
/// wait.
///
/// # Panics
///
/// Panics if it is not available: a test that needs a real client fails without it.
pub fn interpreter(package: &str) -> PathBuf {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/engines");
    fs::create_dir_all(&cache).unwrap_or_else(|error| panic!("{}: {error}", cache.display()));
    let folder = cache.join(package);
    let mut fetches = limited(Path::new("flock"));
    fetches.arg(cache.join(format!("{package}.lock"))).args(["sh", "-c", FETCH]).arg(&folder).arg(package);
    run(fetches);
    folder.join("bin/python")
}

/// Returns a command that is killed if it takes too long.
pub fn limited(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS_MAX]).arg(program);
    command
}

/// Runs a command, and returns its output.
///
/// # Panics
///
/// Panics if it fails, with its output.
#[allow(clippy::needless_pass_by_value, reason = "it runs once")]
pub fn run(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}
