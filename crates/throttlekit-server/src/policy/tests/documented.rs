//! Tests that the examples of the reference are what the server reads.

use super::*;

const PAGE: &str = include_str!("../../../../../docs/reference/policy-file.md");

/// Returns the code blocks of the page in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let opening = format!("```{language}\n");
    let all = PAGE.split(opening.as_str()).skip(1);
    all.map(|block| block.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn every_file_of_the_reference_is_read_without_a_warning() {
    let files = blocks("yaml");
    assert_eq!(files.len(), 12);
    for text in files {
        assert_eq!(warned(text), "", "{text}");
    }
}

#[test]
fn the_file_of_the_guide_about_money_is_read_without_a_warning() {
    let page = include_str!("../../../../../docs/guides/money.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    assert_eq!(warned(text), "");
    let told = explain(&parse(text).unwrap());
    assert!(told.contains("5,000,000 tokens per calendar day from midnight in America/New_York"), "{told}");
}

#[test]
fn the_first_file_is_explained_as_the_reference_says() {
    assert_eq!(explain(&parse(blocks("yaml")[0]).unwrap()), blocks("text")[0]);
}

#[test]
fn every_key_of_the_schema_is_in_the_reference() {
    let schema = schema();
    let types = [
        "Defaults",
        "PolicySpec",
        "OverrideSpec",
        "RateSpec",
        "LeaseSpec",
        "CostSpec",
        "ConcurrencySpec",
        "AdaptiveSpec",
        "FairSpec",
        "PriceSpec",
        "LearnSpec",
        "FleetSpec",
    ];
    let keys = types.iter().flat_map(|name| schema["$defs"][name]["properties"].as_object().unwrap().keys());
    let missing: Vec<_> = keys.filter(|key| !PAGE.contains(&format!("`{key}`"))).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

#[test]
fn the_caps_of_the_reference_are_those_of_the_code() {
    let rows = [
        ("bytes of a file", BYTES_MAX),
        ("levels of nesting", DEPTH_MAX),
        ("keys and values in all", NODES_MAX),
        ("entries of one list or mapping", ITEMS_MAX),
        ("bytes of one text", SCALAR_BYTES_MAX),
        ("policies", POLICIES_MAX),
        ("overrides of a policy", OVERRIDES_MAX),
        ("weights of a fair budget", WEIGHTS_MAX),
        ("different `lease_for`", LEASE_LIVES_MAX),
        ("rules for Envoy", RULES_MAX),
    ];
    for (what, cap) in rows {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| {what} |"))).unwrap();
        let digits: String = row.chars().filter(char::is_ascii_digit).take(cap.to_string().len()).collect();
        assert_eq!(digits, cap.to_string(), "{row}");
    }
}
