//! What rules say that this door cannot do, found when a file is loaded.

use std::collections::HashSet;

use super::spec::{DomainSpec, RuleSpec};
use crate::engine::KEYS_MAX;
use crate::policy::PolicyFile;

/// What will not work as it reads: one line each. Descriptors of such rules pass without a limit.
pub fn check(file: &PolicyFile) -> Vec<String> {
    file.envoy.iter().flat_map(|domain| of_domain(file, domain)).collect()
}

fn of_domain(file: &PolicyFile, domain: &DomainSpec) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for (place, rule) in domain.rules.iter().enumerate() {
        let shape: Vec<_> = rule.entries.iter().map(|entry| (&entry.key, &entry.value)).collect();
        let twice = (!seen.insert(shape)).then(|| "an earlier rule matches the same descriptors".to_owned());
        let wrong = twice.or_else(|| of_rule(file, rule));
        found.extend(wrong.map(|why| format!("envoy domain `{}`, rule {}: {why}", domain.domain, place + 1)));
    }
    found
}

fn of_rule(file: &PolicyFile, rule: &RuleSpec) -> Option<String> {
    let name = match (&rule.policy, rule.unlimited) {
        (None, true) => return None,
        (None, false) => return Some("it names no policy: say `unlimited: true`, or name one".into()),
        (Some(_), true) => return Some("it is unlimited and names a policy: keep one of them".into()),
        (Some(name), false) => name,
    };
    let Some(policy) = file.policies.get(name) else { return Some(format!("no policy is named `{name}`")) };
    if rule.entries.is_empty() {
        return Some("it has no entries, and a descriptor always has some".into());
    }
    if rule.entries.iter().any(|entry| usize::from(entry.by) >= KEYS_MAX) {
        return Some(format!("`by` is below {KEYS_MAX}"));
    }
    policy.concurrency.as_ref()?;
    Some(format!("policy `{name}` holds slots, which Envoy would never give back"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::envoy::tests::{entry, file, rule};

    #[test]
    fn what_the_door_cannot_do_is_told_and_the_rest_is_not() {
        let mut file = file();
        let slots = r#"{"concurrency": {"limit": 3}}"#;
        file.policies.insert("slots".into(), serde_json::from_str(slots).unwrap());
        assert_eq!(check(&file), [""; 0]);
        let mut far = rule(&[entry("far", None)], "minute");
        far.entries[0].by = 4;
        file.envoy[0].rules = vec![
            rule(&[entry("a", None)], "minute"),
            rule(&[entry("a", None)], "minute"),
            rule(&[entry("b", None)], "nowhere"),
            rule(&[entry("c", None)], "slots"),
            far,
            RuleSpec { entries: vec![entry("d", None)], policy: None, unlimited: false },
        ];
        let lines = check(&file);
        let about = [
            "rule 2: an earlier",
            "rule 3: no policy",
            "rule 4: policy `slots`",
            "rule 5: `by`",
            "rule 6: it names no",
        ];
        assert_eq!(lines.len(), about.len(), "{lines:#?}");
        for (line, about) in lines.iter().zip(about) {
            assert!(line.contains(about), "{line}");
        }
    }
}
