//! A short load by the stream meter, with the checks of the long one.

use std::process::Command;

use llm_gateway_load::load::Plan;
use serde_json::Value;

#[test]
fn many_streams_through_three_gateways_keep_every_bound() {
    let mut load = Command::new(env!("CARGO_BIN_EXE_llm-gateway-load"));
    load.arg("load").args(Plan::SHORT.split(' ')).args(["--json", "-", "--redis", &redis()]);
    let output = load.output().unwrap();
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let figures: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!(figures["meter"], "stream");
    assert!(
        figures["windows"][0]["charged"].as_u64().unwrap() > 0 && figures["left"].as_u64().unwrap() > 0,
        "{stdout}"
    );
}

/// From `cargo xtask services up`. A test that needs an engine fails without it.
fn redis() -> String {
    let name = "THROTTLEKIT_REDIS";
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(cargo xtask services up)\""))
}
