//! Files of Envoy's rate limit service.

use super::*;

fn refused_import(text: &str) -> String {
    let errors = import_envoy(text).expect_err("the file is refused");
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_whole_domain_becomes_policies_and_rules() {
    let imported = import_envoy(DOMAIN).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let text = serde_saphyr::to_string(&imported.file).unwrap();
    assert_eq!(text, IMPORTED);
    assert_eq!(imported.notes, NOTES);
    let (back, warnings) = load(&text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!(back, imported.file);
    assert_eq!(warnings, []);
}

#[test]
fn what_cannot_be_kept_is_refused_with_its_place() {
    let table = [
        (
            "domain: ''\n",
            "domain: missing domain name: use the one that Envoy's filter sends\n at line 1, column 9",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limits: {}\n",
            "descriptors[0]: unknown key `rate_limits`; did you mean `rate_limit`? Known keys: key, value, rate_limit, \
             descriptors, shadow_mode, quota_mode, detailed_metric, value_to_metric, share_threshold\n at line 4, column 5",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: minuet, requests_per_unit: 5}\n",
            "descriptors[0].rate_limit.unit: unknown unit `minuet`; did you mean `minute`? Units: second, minute, hour, \
             day, week, month, year\n at line 4, column 24",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: minute}\n",
            "descriptors[0].rate_limit: missing key `requests_per_unit`: add it; 0 denies everything\n at line 4, column 5",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    value: x*y\n",
            "descriptors[0].value: only a `*` at the end is a wildcard: write a rule for each prefix\n at line 4, column 12",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n  - key: a\n",
            "descriptors[1]: duplicate of descriptor 0 of this list (same key and value): keep one\n at line 4, column 5",
        ),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unlimited: true, unit: day}\n",
            "descriptors[0].rate_limit.unit: `unlimited` and `unit` contradict each other: keep one\n at line 4, column 41",
        ),
    ];
    for (text, says) in table {
        let told = refused_import(text);
        assert!(told.starts_with(says), "{told}");
    }
}

#[test]
fn all_errors_are_told_at_once() {
    let told = refused_import(
        "domain: ''\ndescriptors:\n  - key: a\n    value: '*a'\n    rate_limit: {unit: x, unit_multiplier: 0}\n  \
         - {key: '', share_threshold: true}\n",
    );
    let paths: Vec<_> = told
        .lines()
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let found = [
        "domain",
        "descriptors[0].value",
        "descriptors[0].rate_limit.unit",
        "descriptors[0].rate_limit.unit_multiplier",
        "descriptors[0].rate_limit",
        "descriptors[1].key",
        "descriptors[1].share_threshold",
    ];
    assert_eq!(paths, found, "{told}");
    let told = refused_import(
        "domain: d\ndescriptors:\n  - {key: 1, valu: 2}\n  - {value: 3}\n  - {key: a, rate_limit: {unit: []}}\n",
    );
    assert_eq!(told.matches("at line").count(), 3, "{told}");
}

#[test]
fn several_files_become_one_with_a_domain_each() {
    let file = |domain: &str, key: &str| {
        format!(
            "domain: {domain}\ndescriptors: [{{key: {key}, rate_limit: {{unit: day, requests_per_unit: 1}}}}]\n"
        )
    };
    let mut import = EnvoyImport::default();
    import.add(&file("a", "b/c")).unwrap();
    import.add(&file("a/b", "c")).unwrap();
    let errors = import.clone().add(&file("a", "d")).unwrap_err();
    assert_eq!(errors[0].message, "`a` is the domain of an earlier file: merge them");
    let imported = import.finish().unwrap();
    assert_eq!(imported.file.policies.keys().collect::<Vec<_>>(), ["a/b/c", "a/b/c~2"]);
    assert_eq!(imported.file.envoy.iter().map(|domain| &*domain.domain).collect::<Vec<_>>(), ["a", "a/b"]);
}

#[test]
fn names_of_replaced_limits_become_those_of_their_policies() {
    let text = "domain: d\ndescriptors:\n  - {key: a, rate_limit: &x {unit: day, requests_per_unit: 1, name: x}}\n  \
                - {key: b, rate_limit: *x}\n  - {key: c, rate_limit: {<<: *x, replaces: [{name: x}, {name: y}]}}\n  \
                - {key: e, rate_limit: {unlimited: true, replaces: [{name: x}]}}\n";
    let imported = import_envoy(text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let rules = &imported.file.envoy[0].rules;
    assert_eq!(rules[2].replaces, ["d/a", "d/b"]);
    assert_eq!(rules[3].replaces, ["d/a", "d/b", "d/c"]);
    assert_eq!(
        imported.notes,
        ["c: `replaces` is ignored for `y`: no other limit of the domain has this name"]
    );
}

#[test]
fn long_and_odd_paths_get_names_of_their_own() {
    let long = "x".repeat(200);
    let text = format!(
        "domain: d\ndescriptors:\n  - {{key: '{long}a b', rate_limit: {{unit: day, requests_per_unit: 1}}}}\n  \
         - {{key: '{long}c', rate_limit: {{unit: DAY, requests_per_unit: 2}}}}\n"
    );
    let imported = import_envoy(&text).unwrap();
    let names: Vec<_> = imported.file.policies.keys().map(|name| name.chars().count()).collect();
    assert_eq!(names, [120, 122]);
}

const DOMAIN: &str = "---
domain: shop
descriptors:
  # Every address, each for itself.
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10}
  # The office is let through.
  - key: remote_address
    value: 10.0.0.1
  - key: remote_address
    value: 10.9.*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 1000}
  - key: plan
    value: free
    detailed_metric: true
    descriptors:
      - key: path
        value: /search
        shadow_mode: true
        rate_limit: {name: search, unit: HOUR, requests_per_unit: 100}
      - key: path
        value: /files/*
        rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 20, replaces: [{name: search}]}
  - key: plan
    value: staff
    rate_limit: {unlimited: true}
  - key: code
    value: 404
    rate_limit: {unit: month, requests_per_unit: 5}
  - key: code
    value: 418
    rate_limit: {unit: second, requests_per_unit: 0}
";

const NOTES: [&str; 1] = [
    "plan=free: detailed_metric and value_to_metric are ignored: metrics are labeled by policy, without values",
];

const IMPORTED: &str = r#"version: 1
policies:
  shop/code=404:
    rate:
    - algorithm: fixed_window
      limit: 5
      per: 30d
  shop/code=418:
    deny: true
  shop/plan=free/path=/files/*:
    rate:
    - algorithm: fixed_window
      limit: 20
      per: 5m
  shop/plan=free/path=/search:
    description: Was named search.
    rate:
    - algorithm: fixed_window
      limit: 100
      per: 1h
    shadow: true
  shop/remote_address:
    rate:
    - algorithm: fixed_window
      limit: 10
      per: 1s
  shop/remote_address=10.9.*:
    rate:
    - algorithm: fixed_window
      limit: 1000
      per: 1m
envoy:
- domain: shop
  rules:
  - entries:
    - key: remote_address
    policy: shop/remote_address
  - entries:
    - key: remote_address
      value: "10.0.0.1"
    unlimited: true
  - entries:
    - key: remote_address
      value: 10.9.*
      shared: true
    policy: shop/remote_address=10.9.*
  - entries:
    - key: plan
      value: free
    - key: path
      value: /search
    policy: shop/plan=free/path=/search
  - entries:
    - key: plan
      value: free
    - key: path
      value: /files/*
    policy: shop/plan=free/path=/files/*
    replaces:
    - shop/plan=free/path=/search
  - entries:
    - key: plan
      value: staff
    unlimited: true
  - entries:
    - key: code
      value: "404"
    policy: shop/code=404
  - entries:
    - key: code
      value: "418"
    policy: shop/code=418
  tree: true
"#;
