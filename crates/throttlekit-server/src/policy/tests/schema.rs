//! Tests that the checked-in schema is that of the code.

use std::path::{Path, PathBuf};

use super::*;

fn checked_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.schema.json")
}

/// Updates the file if `UPDATE_SCHEMA` is set in the environment.
#[test]
fn the_checked_in_schema_is_up_to_date() {
    let now = schema();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(checked_in(), serde_json::to_string_pretty(&now).unwrap() + "\n").unwrap();
    }
    let then: serde_json::Value = serde_json::from_slice(&std::fs::read(checked_in()).unwrap()).unwrap();
    assert!(
        now == then,
        "run `UPDATE_SCHEMA=1 cargo test -p throttlekit-server schema` and look at what changed"
    );
}

#[test]
fn the_schema_says_what_keys_mean_and_allows_no_others() {
    let schema = schema();
    let rate = &schema["$defs"]["RateSpec"];
    assert_eq!(rate["additionalProperties"], false);
    assert_eq!(rate["properties"]["limit"]["description"], "Number of units.");
    assert_eq!(schema["$defs"]["Span"]["pattern"], "^[0-9]+(ms|s|m|h|d)$");
    let named = schema["$defs"]["PolicySpec"]["properties"]["rate"].to_string();
    assert!(named.contains("OneOrMany"), "{named}");
}
