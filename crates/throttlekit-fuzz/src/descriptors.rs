//! Rules and descriptors in any mix, compared with a slow search that is obviously correct.

use arbitrary::{Arbitrary, Result, Unstructured};
use throttlekit_server::internals::api::envoy::{Matcher, joined};
use throttlekit_server::policy::{DomainSpec, EntrySpec, RuleSpec};

const DOMAINS_MAX: usize = 3;
const RULES_MAX: usize = 8;
const ENTRIES_MAX: usize = 4;
const ASKED_MAX: usize = 4;
const NAMES: [&str; 5] = ["a", "b", "ab", "", "é"];
/// Values with special characters, and values with a common prefix.
const VALUES: [&str; 16] =
    ["", "a", "ab", "abc", "b", "e", "|", "\\", "\\e", "a|b", "\\#", "é", "*", "a*b", "a\\|", "||"];

/// Builds rules and looks up descriptors: the result equals that of the slow search, and different values are
/// counted under different keys.
pub fn descriptors(data: &[u8]) -> bool {
    Case::arbitrary(&mut Unstructured::new(data)).is_ok_and(|case| case.judge())
}

struct Case {
    domains: Vec<DomainSpec>,
    asked: Vec<(String, Vec<(String, String)>)>,
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let domains = several(u, DOMAINS_MAX, |u| {
            let rules = several(u, RULES_MAX, rule)?;
            Ok(DomainSpec { domain: name(u)?, rules, tree: u.arbitrary()?, ..DomainSpec::default() })
        })?;
        let asked = several(u, ASKED_MAX, |u| asked(u, &domains))?;
        Ok(Self { domains, asked })
    }
}

/// Draws a descriptor: any, or one that matches an existing rule, or nearly.
fn asked(u: &mut Unstructured<'_>, domains: &[DomainSpec]) -> Result<(String, Vec<(String, String)>)> {
    if domains.is_empty() || u.ratio(1, 4)? {
        return Ok((name(u)?, several(u, ENTRIES_MAX, |u| Ok((name(u)?, value(u)?)))?));
    }
    let domain = u.choose(domains)?;
    let Some(rule) =
        domain.rules.get(usize::from(u.arbitrary::<u8>()?) % RULES_MAX.min(domain.rules.len().max(1)))
    else {
        return Ok((domain.domain.clone(), Vec::new()));
    };
    let mut entries = Vec::new();
    for spec in &rule.entries {
        let key = if u.ratio(1, 16)? { name(u)? } else { spec.key.clone() };
        let value = match spec.value.as_deref().map(|pattern| pattern.strip_suffix('*').ok_or(pattern)) {
            Some(Err(exact)) if u.ratio(7, 8)? => exact.to_owned(),
            Some(Ok(prefix)) if u.ratio(7, 8)? => prefix.to_owned() + &value(u)?,
            _ => value(u)?,
        };
        entries.push((key, value));
    }
    Ok((domain.domain.clone(), entries))
}

fn several<'a, T>(
    u: &mut Unstructured<'a>,
    most: usize,
    mut one: impl FnMut(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = u.int_in_range(0..=most)?;
    (0..count).map(|_| one(u)).collect()
}

fn name(u: &mut Unstructured<'_>) -> Result<String> {
    // Two of five are common, so that descriptors match rules.
    let at = u.arbitrary::<u8>()? % 10;
    Ok(NAMES.get(usize::from(at)).unwrap_or(&"a").to_string())
}

fn value(u: &mut Unstructured<'_>) -> Result<String> {
    match u.arbitrary::<u8>()? {
        0..16 => Ok(String::arbitrary(u)?.chars().take(12).collect()),
        // A value that is too long for a key.
        16 => Ok("x".repeat(1_020 + usize::from(u.arbitrary::<u8>()? % 8))),
        one => Ok(VALUES[usize::from(one) % VALUES.len()].to_owned()),
    }
}

fn rule(u: &mut Unstructured<'_>) -> Result<RuleSpec> {
    let entries = several(u, ENTRIES_MAX, |u| {
        let pattern = match u.arbitrary::<u8>()? % 4 {
            0 => None,
            1 => Some(value(u)?),
            _ => Some(value(u)? + "*"),
        };
        Ok(EntrySpec { key: name(u)?, value: pattern, shared: u.ratio(1, 4)?, by: u.arbitrary::<u8>()? % 4 })
    })?;
    let policy = u.arbitrary::<Option<u8>>()?.map(|number| number.to_string());
    Ok(RuleSpec { entries, policy, unlimited: u.ratio(1, 8)?, ..RuleSpec::default() })
}

/// A rule, the values at its entries, and the resulting key.
type Found<'a> = (*const RuleSpec, Vec<Vec<&'a str>>, Vec<Vec<u8>>);

impl Case {
    /// Checks the descriptors. Returns `true` if one matched a rule.
    fn judge(&self) -> bool {
        let matcher = Matcher::of(&self.domains);
        let mut seen: Vec<Found> = Vec::new();
        for (domain, entries) in &self.asked {
            let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
            let found = matcher.find(domain, &entries);
            let Some(rule) = self.search(domain, &entries) else {
                assert_eq!(found, None, "no rule matches {domain} {entries:?}");
                continue;
            };
            let found = found.unwrap_or_else(|| panic!("{rule:?} matches {domain} {entries:?}"));
            let policy = rule.policy.as_deref().filter(|_| !rule.unlimited);
            assert_eq!(found.policy, policy, "{domain} {entries:?} goes by {rule:?}");
            let counted = counted(rule, &entries);
            for (other, values, keys) in &seen {
                if std::ptr::eq(*other, rule) {
                    assert_eq!(*keys == found.keys, *values == counted, "{values:?} and {counted:?}");
                }
            }
            seen.push((rule, counted, found.keys));
        }
        self.judge_keys();
        !seen.is_empty()
    }

    /// Checks that two lists of values have the same key only if they are equal.
    fn judge_keys(&self) {
        let lists: Vec<Vec<&str>> = self
            .asked
            .iter()
            .map(|(_, entries)| entries.iter().map(|(_, value)| &**value).collect())
            .collect();
        for one in &lists {
            for other in &lists {
                let same = joined(one.iter().copied()) == joined(other.iter().copied());
                assert_eq!(same, one == other, "{one:?} and {other:?}");
            }
        }
    }

    /// Returns the rule of a descriptor, found by comparing all of them at every entry.
    fn search(&self, domain: &str, entries: &[(&str, &str)]) -> Option<&RuleSpec> {
        let domains = || self.domains.iter().filter(|spec| spec.domain == domain);
        let tree = domains().next_back()?.tree;
        let mut left: Vec<&RuleSpec> = domains().flat_map(|spec| &spec.rules).collect();
        if !tree {
            left.retain(|rule| rule.entries.len() == entries.len());
            left.retain(|rule| {
                rule.entries.iter().zip(entries).all(|(spec, entry)| fits(spec, entry).is_some())
            });
        }
        for (place, entry) in entries.iter().enumerate() {
            let fit = |rule: &&RuleSpec| fits(rule.entries.get(place)?, entry);
            let best = left.iter().filter_map(fit).max()?;
            left.retain(|rule| fit(rule) == Some(best));
        }
        left.into_iter().find(|rule| rule.entries.len() == entries.len())
    }
}

/// Returns the specificity of a match: any value, a prefix of a length in bytes, exact.
fn fits(spec: &EntrySpec, (key, value): &(&str, &str)) -> Option<(u8, usize)> {
    if spec.key != *key {
        return None;
    }
    match spec.value.as_deref().map(|pattern| (pattern, pattern.strip_suffix('*'))) {
        None => Some((0, 0)),
        Some((_, Some(prefix))) => value.starts_with(prefix).then_some((1, prefix.len())),
        Some((exact, None)) => (exact == *value).then_some((2, exact.len())),
    }
}

/// Returns the values that a rule counts separately, for each of its keys.
fn counted<'v>(rule: &RuleSpec, entries: &[(&str, &'v str)]) -> Vec<Vec<&'v str>> {
    let mut keys = vec![Vec::new()];
    for (spec, (_, value)) in rule.entries.iter().zip(entries) {
        let apart = !spec.shared && spec.value.as_ref().is_none_or(|pattern| pattern.ends_with('*'));
        if apart {
            let by = usize::from(spec.by);
            keys.resize(keys.len().max(by + 1), Vec::new());
            keys[by].push(*value);
        }
    }
    keys
}
