//! Python with the pinned client from PyPI, fetched once into the repository's target folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Stand;

const CLIENT: &str = "openai==3.49.0";
/// Fetching is the longest of what we run.
const SECONDS_MAX: &str = "300";

/// Plays one scene of the script against the gateway. It fails with what Python says.
pub(crate) fn play(scene: &str, stand: &Stand) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/scenes.py");
    let mut command = limited(&python());
    command.arg(script).arg(scene);
    command
        .env("GATEWAY", &stand.gateway.url)
        .env("ADMIN", &stand.gateway.admin)
        .env("MODEL", &stand.model.url);
    command.env("METER", stand.meter.label());
    command.env("RPM", stand.limits.rpm.to_string()).env("TPM", stand.limits.tpm.to_string());
    assert_eq!(run(command).trim(), format!("{scene}: as it should be"));
}

/// The interpreter that has the client. Whoever comes first fetches it, the others wait.
fn python() -> PathBuf {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/engines");
    fs::create_dir_all(&cache).unwrap();
    let turn = File::create(cache.join("openai.lock")).unwrap();
    turn.lock().unwrap();
    let folder = cache.join(CLIENT);
    let (python, ready) = (folder.join("bin/python"), folder.join("ready"));
    if !ready.exists() {
        let mut makes = limited(Path::new("python3"));
        makes.args(["-m", "venv", "--clear"]).arg(&folder);
        run(makes);
        let mut installs = limited(&python);
        installs.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", CLIENT]);
        run(installs);
        File::create(ready).unwrap();
    }
    python
}

fn limited(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS_MAX]).arg(program);
    command
}

fn run(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}
