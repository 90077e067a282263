//! Runs the program and compares what it prints.

use std::process::Command;

#[test]
fn no_call_is_refused_and_the_limit_is_learned() {
    let output = Command::new(env!("CARGO_BIN_EXE_outbound")).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("text");
    assert_eq!(printed, "30 of 30 calls answered, 0 refused\nlearned: 600 requests by the minute\n");
}
