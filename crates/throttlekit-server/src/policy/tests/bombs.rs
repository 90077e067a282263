//! Malicious files: each is rejected, soon, with a reason.

use std::fmt::Write as _;

use super::*;

/// Checks that the file is rejected with this message.
fn says(text: &str, words: &str) {
    let told = refused(text);
    assert!(told.contains(words), "{told}");
    assert!(told.len() < 100_000, "{} bytes of errors", told.len());
}

#[test]
fn a_billion_laughs_end_at_the_limit_of_a_file_without_aliases() {
    let mut text = String::from("a: &a [lol, lol]\n");
    for (this, last) in "bcdefghij".chars().zip("abcdefghi".chars()) {
        writeln!(
            text,
            "{this}: &{this} [*{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}]"
        )
        .unwrap();
    }
    says(&text, "the file has more than 250000 keys and values");
}

#[test]
fn aliases_count_as_what_they_stand_for() {
    let copies = |each: &str, text: &str| format!("a: &a {text}\nb: [{}]\n", each.repeat(10_000));
    says(&copies("*a, ", &"x".repeat(SCALAR_BYTES_MAX)), "the aliases stand for more than 1048576 bytes");
    says(&copies("*a, ", &format!("[{}]", "1, ".repeat(30))), "more than 250000 keys and values");
    let deep =
        format!("a: &a {}{}\nb: {}*a{}\n", "[".repeat(20), "]".repeat(20), "[".repeat(20), "]".repeat(20));
    says(&deep, "nested too deeply with its aliases: at most 32 levels");
    // An anchor alone takes memory as well: here one around another, all of them around many values.
    let nested = format!("{}[{}]{}", "&a [".repeat(30), "1, ".repeat(10_000), "]".repeat(30));
    says(&nested, "more than 250000 keys and values");
}

#[test]
fn merge_keys_take_mappings() {
    says("version: 1\n<<: {policies: 1}\n", "policies: expected a mapping, found `1`");
    says("version: 1\n<<: 1\n", "2:1 `<<` merges a mapping, or a list of mappings");
    says("version: 1\n<<: [{}, 1]\n", "2:1 `<<` merges a mapping, or a list of mappings");
    says("version: 1\n\"<<\": {}\n", "unknown key `<<`");
}

#[test]
fn anchors_aliases_and_merge_keys_are_read_as_what_they_stand_for() {
    let short = "version: 1\npolicies:\n  a:\n    rate: &rate {limit: 5, per: &minute 1m}\n  b: &b {rate: *rate, shadow: true}\n  \
                 c: {<<: *b, shadow: false}\n  d: {rate: {<<: [{burst: 2}, *rate, {burst: 3}], per: *minute, limit: 7}}\n";
    let long = "version: 1\npolicies:\n  a: {rate: {limit: 5, per: 1m}}\n  b: {rate: {limit: 5, per: 1m}, shadow: true}\n  \
                c: {rate: {limit: 5, per: 1m}}\n  d: {rate: {limit: 7, per: 1m, burst: 2}}\n";
    assert_eq!(load(short).unwrap().0, load(long).unwrap().0);
    let wrong = short.replace("limit: 5", "limit: 0");
    let told = refused(&wrong);
    let lines: Vec<_> = told.lines().map(|line| line.split(": ").next().unwrap_or_default()).collect();
    assert_eq!(
        lines,
        ["4:25 policies.a.rate[0].limit", "4:25 policies.b.rate[0].limit", "4:25 policies.c.rate[0].limit"]
    );
}

#[test]
fn nesting_ends_at_its_cap_in_every_notation() {
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>(),
        format!("version: 1\npolicies: {}{}", "[".repeat(40), "]".repeat(40)),
    ] {
        let told = refused(&text);
        assert!(told.contains("32 levels") || told.contains("a key must be text"), "{told}");
    }
}

#[test]
fn one_level_below_the_cap_is_read() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(tree::parse(&nested(DEPTH_MAX)).is_ok());
    assert!(tree::parse(&nested(DEPTH_MAX + 1)).is_err());
}

#[test]
fn a_million_policies_are_too_many_bytes() {
    let text = (0..1_000_000).fold(String::from("version: 1\npolicies:\n"), |mut text, i| {
        writeln!(text, "  p{i}: {{disabled: true}}").unwrap();
        text
    });
    says(&text, "at most 1048576 are allowed: split it");
}

#[test]
fn ten_thousand_policies_are_read_and_one_more_is_refused() {
    let text = |policies: usize| {
        (0..policies).fold(String::from("version: 1\npolicies:\n"), |mut text, i| {
            writeln!(text, "  p{i}: {{disabled: true}}").unwrap();
            text
        })
    };
    assert_eq!(load(&text(POLICIES_MAX)).unwrap().0.policies.len(), POLICIES_MAX);
    says(&text(POLICIES_MAX + 1), "2:1 policies: 10001 policies, at most 10000 are allowed: split them");
}

#[test]
fn leases_of_a_file_have_at_most_so_many_lives() {
    let text = |lives: usize| {
        (0..lives * 2).fold(String::from("version: 1\npolicies:\n"), |mut text, i| {
            let (life, slots) = (1_000 + i % lives, "concurrency: {limit: 1, lease_for");
            writeln!(text, "  p{i:03}: {{{slots}: {life}ms}}}}").unwrap();
            text
        })
    };
    let (file, _) = load(&text(LEASE_LIVES_MAX)).unwrap();
    assert_eq!(starts(&file), Ok(()), "the same lives twice");
    says(
        &text(LEASE_LIVES_MAX + 1),
        "67:45 policies.p064.concurrency.lease_for: 1064ms exceeds the 64 different values that a file may have: use one of those",
    );
}

#[test]
fn overrides_weights_rates_and_names_have_their_caps() {
    let many = |number: usize, each: &str| (0..number).map(|i| format!("{i}: {each},")).collect::<String>();
    let base = "rate: {limit: 5, per: 1s}";
    says(&api(&format!("{base}\noverrides: {{{}}}", many(10_001, "{unlimited: true}"))), "10001 overrides");
    says(
        &api(&format!("fair: {{limit: 5, per: 1s, weights: {{{}}}}}", many(100_001, "1"))),
        "100001 weights",
    );
    let rates = |number: usize| {
        (0..number).map(|i| format!("{{name: n{i}, limit: 5, per: 1s}}, ")).collect::<String>()
    };
    says(&api(&format!("rate: [{}]", rates(7))), "7 rates, at most 6 are allowed");
    assert!(load(&api(&format!("rate: [{}]", rates(6)))).is_ok());
    let budgets = |number: usize| {
        (0..number).map(|i| format!("{{name: n{i}, budget: 5, per: 1s}}, ")).collect::<String>()
    };
    says(
        &api(&format!("cost: [{}]", budgets(16))),
        "16 limits on the store, cost included, at most 15 are allowed",
    );
    assert!(load(&api(&format!("cost: [{}]", budgets(15)))).is_ok());
    says(
        &api(&format!("cost: [{} {{name: run, budget: 5, per: total, by: [0, 1]}}]", budgets(14))),
        "16 limits on the store, cost included, at most 15 are allowed",
    );
    let named =
        |length: usize| format!("version: 1\npolicies:\n  {}: {{disabled: true}}\n", "n".repeat(length));
    assert!(load(&named(128)).is_ok());
    says(&named(129), "the name of a policy has 1 to 128 characters, found 129");
}

#[test]
fn too_many_values_and_too_long_ones_are_refused() {
    says(&format!("version: [{}]", "1,".repeat(NODES_MAX)), "more than 131072 entries");
    says(&format!("version: [{}]", "[1],".repeat(NODES_MAX / 2)), "more than 250000 keys and values");
    let long = "x".repeat(SCALAR_BYTES_MAX + 1);
    says(&api(&format!("description: {long}")), "text has 16385 bytes, at most 16384 are allowed");
    says(&"x".repeat(BYTES_MAX + 1), "the file has 1048577 bytes");
}

#[test]
fn many_errors_are_told_in_part() {
    let text = (0..5_000).fold(String::from("version: 1\npolicies:\n"), |mut text, i| {
        writeln!(text, "  p{i}: {{rate: {{limit: 0, per: 1s}}}}").unwrap();
        text
    });
    let errors = load(&text).unwrap_err();
    assert_eq!(errors.len(), ERRORS_MAX + 1);
    assert_eq!(errors[ERRORS_MAX].to_string(), "and 4900 more");
}

#[test]
fn names_that_look_like_others_are_refused() {
    for name in ["a\\u200bb", "a\\0b", "a\\tb", "a\\u202eb", "\\ufeffa"] {
        let text = format!("version: 1\npolicies: {{\"{name}\": {{disabled: true}}}}");
        says(&text, "must not contain spaces or invisible characters");
    }
}

#[test]
fn what_could_not_be_written_back_is_refused_and_its_neighbours_are_read() {
    let told = |escape: &str| api(&format!("description: \"a{escape}b\"\nrate: {{limit: 5, per: 1s}}"));
    for escape in ["\\x7f", "\\x80", "\\x84", "\\x86", "\\u0089", "\\x9f", "\\ufffe", "\\uffff"] {
        says(&told(escape), "which is invisible: remove it");
    }
    for escape in ["~", "\\x85", "\\xa0", "\\ufffd", "\\t", "\\x01", "\\u2028", "\\ufeff"] {
        let file = load(&told(escape)).unwrap().0;
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(load(&json).unwrap().0, file, "{escape}");
        let yaml = serde_saphyr::to_string(&file).unwrap();
        assert_eq!(load(&yaml).unwrap().0, file, "{escape}");
    }
}

#[test]
fn control_characters_and_other_encodings_are_told_by_place() {
    assert!(load("version: 1\npolicies: {a\0b: {}}\n").is_err());
    let error = text(b"version: 1\n# caf\xe9\n").unwrap_err();
    assert_eq!(error.to_string(), "invalid UTF-8: save the file as UTF-8\n at line 2, column 6");
    assert_eq!(text("version: 1 # café".as_bytes()).unwrap(), "version: 1 # café");
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_read() {
    let plain = api("rate: {limit: 5, per: 1s}");
    let odd = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
    assert_eq!(load(&odd).unwrap().0, load(&plain).unwrap().0);
}
