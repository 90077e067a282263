//! Runs each program and compares what it prints.

use std::process::Command;

fn run(program: &str) -> String {
    let output = Command::new(program).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn one_process_allows_the_burst() {
    let printed = run(env!("CARGO_BIN_EXE_one_process"));
    assert_eq!(printed.matches(": 200").count(), 10, "{printed}");
    assert!(printed.contains("12: 429, retry after "), "{printed}");
}

#[test]
fn several_limits_are_charged_together() {
    let printed = run(env!("CARGO_BIN_EXE_several_limits"));
    assert_eq!(printed, "alice: 10 of 20 allowed\nbob:   5 of 20 allowed\n");
}

#[test]
fn shared_counts_on_redis() {
    let printed = run(env!("CARGO_BIN_EXE_shared"));
    assert_eq!(printed.matches(": 200").count(), 10, "{printed}");
    assert!(printed.contains("1: 200, 9 left, "), "{printed}");
}

#[test]
fn leased_spends_in_process_and_keeps_the_limit() {
    let printed = run(env!("CARGO_BIN_EXE_leased"));
    assert!(printed.starts_with("1000 of 1200 allowed"), "{printed}");
}

#[test]
fn three_axes_name_the_one_that_denied() {
    let printed = run(env!("CARGO_BIN_EXE_three_axes"));
    assert!(printed.contains("prompt 3: 429, denied by concurrency"), "{printed}");
    assert_eq!(printed.matches("a stream used 200 of 1500 tokens").count(), 2, "{printed}");
}

#[test]
fn fair_tenants_share_by_weight() {
    assert_eq!(run(env!("CARGO_BIN_EXE_fair_tenants")), "gold 300, silver 100\n");
}

#[test]
fn web_refuses_the_third_request() {
    assert_eq!(run(env!("CARGO_BIN_EXE_web")), "200 OK\n200 OK\n429 Too Many Requests\n");
}

#[test]
fn backend_is_full_at_its_limit() {
    let printed = run(env!("CARGO_BIN_EXE_backend"));
    assert!(printed.contains("full after "), "{printed}");
}
