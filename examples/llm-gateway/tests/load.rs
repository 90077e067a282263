//! A short load by our own meter, judged as the long one is.

use std::process::Command;

use crate::common;
use llm_gateway::load::Plan;
use serde_json::Value;

#[test]
fn many_streams_through_three_gateways_keep_every_bound() {
    let mut load = Command::new(env!("CARGO_BIN_EXE_llm-gateway"));
    load.arg("load").args(Plan::SHORT.split(' ')).args(["--json", "-", "--redis", &common::redis()]);
    let output = load.output().unwrap();
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{said}\n{errors}");
    let figures: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(figures["meter"], "stream");
    assert!(
        figures["windows"][0]["charged"].as_u64().unwrap() > 0 && figures["left"].as_u64().unwrap() > 0,
        "{said}"
    );
}
