//! Probes run in a process of their own, so that the memory they look at is theirs alone.

use std::env;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs this program again with other arguments; the answer is the JSON on its stdout.
pub fn ask(arguments: &[&str]) -> Value {
    let program = env::current_exe().expect("a path to this program");
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output().expect("a process");
    assert!(output.status.success(), "the probe {arguments:?} ends well");
    serde_json::from_slice(&output.stdout).expect("a probe answers in JSON")
}

/// A number in an answer.
pub fn number(answer: &Value, name: &str) -> f64 {
    answer[name].as_f64().unwrap_or_else(|| panic!("{name} is a number in {answer}"))
}
