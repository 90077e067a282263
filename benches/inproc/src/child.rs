//! Probes run in a process of their own, so that the measured memory is theirs alone.

use std::process::{Command, Stdio};

use serde_json::Value;

/// The running program, even if a build has replaced the file meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Runs this program again with other arguments. Returns the JSON on its stdout.
pub fn ask(arguments: &[&str]) -> Value {
    let output =
        Command::new(THIS_PROGRAM).args(arguments).stderr(Stdio::inherit()).output().expect("a process");
    assert!(output.status.success(), "the probe {arguments:?} ends well");
    serde_json::from_slice(&output.stdout).expect("a probe answers in JSON")
}

/// Returns a number of a response.
pub fn number(answer: &Value, name: &str) -> f64 {
    answer[name].as_f64().unwrap_or_else(|| panic!("{name} is a number in {answer}"))
}
