//! Runs the program and compares what it prints.

use std::process::Command;

#[test]
fn both_clients_share_the_limits_and_learn_those_of_the_provider() {
    let output = Command::new(env!("CARGO_BIN_EXE_outbound-reqwest")).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("text");
    assert_eq!(printed, "20 calls, 0 refused\nlearned: 600 requests by the minute\n");
}
