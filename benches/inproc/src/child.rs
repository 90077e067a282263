//! Probes run in a process of their own, so that the memory they look at is theirs alone.

use std::process::{Command, Stdio};

use serde_json::Value;

/// The program that runs, even when a build has put another in its place meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Runs this program again with other arguments; the answer is the JSON on its stdout.
pub fn ask(arguments: &[&str]) -> Value {
    let output =
        Command::new(THIS_PROGRAM).args(arguments).stderr(Stdio::inherit()).output().expect("a process");
    assert!(output.status.success(), "the probe {arguments:?} ends well");
    serde_json::from_slice(&output.stdout).expect("a probe answers in JSON")
}

/// A number in an answer.
pub fn number(answer: &Value, name: &str) -> f64 {
    answer[name].as_f64().unwrap_or_else(|| panic!("{name} is a number in {answer}"))
}
