//! The matcher that finds the rule of a descriptor.
//!
//! Rules are stored as a tree with a level for each entry: a lookup costs a few hashes per entry, however many rules
//! there are. Untrusted clients choose the values, so they are hashed with a secret.

use std::collections::HashMap;

use super::key::joined;
use crate::policy::{DomainSpec, EntrySpec, RuleSpec};

/// The compiled rules of all domains.
#[derive(Default)]
pub struct Matcher {
    domains: HashMap<Box<str>, Domain>,
}

/// The policy and the keys of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The policy; `None` if the rule says that the descriptor is always allowed.
    pub policy: Option<&'a str>,
    /// Keys that it is counted under: the policy's key, and its further keys if the rule names some.
    pub keys: Vec<Vec<u8>>,
    /// The way in which it is counted.
    pub counting: Counting,
    /// Policies that are not checked for the other descriptors of the request.
    pub replaces: &'a [Box<str>],
    /// Index of the rule among those of all domains.
    pub rule: usize,
}

/// The way in which the hits of a descriptor are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counting {
    /// In full, even beyond the limit.
    pub debit: bool,
    /// By the limit of the descriptor, if it has one.
    pub limit_override: bool,
    /// Negative hits are returned.
    pub refunds: bool,
}

#[derive(Default)]
struct Domain {
    root: Node,
    tree: bool,
}

/// A node of the tree, reached by the entries so far.
#[derive(Default)]
struct Node {
    rule: Option<Rule>,
    next: HashMap<Box<str>, Values>,
}

/// Children of a node for the values of one key.
#[derive(Default)]
struct Values {
    exact: HashMap<Box<[u8]>, Node>,
    prefixes: HashMap<Box<[u8]>, Node>,
    /// The lengths of prefixes, longest first.
    lengths: Vec<usize>,
    any: Option<Box<Node>>,
}

struct Rule {
    policy: Option<Box<str>>,
    /// The entries whose values are counted separately, and the key that each is a part of.
    counted: Vec<(usize, u8)>,
    counting: Counting,
    replaces: Box<[Box<str>]>,
    index: usize,
}

impl Matcher {
    /// Compiles the rules. If two match the same descriptors, the first applies.
    pub fn of(domains: &[DomainSpec]) -> Self {
        let (mut matcher, mut index) = (Self::default(), 0);
        for spec in domains {
            let domain = matcher.domains.entry(spec.domain.as_str().into()).or_default();
            domain.tree = spec.tree;
            for rule in &spec.rules {
                let node = rule.entries.iter().fold(&mut domain.root, Node::then);
                node.rule.get_or_insert_with(|| Rule::of(rule, index));
                index += 1;
            }
        }
        matcher
    }

    /// Returns the most specific rule that matches the whole descriptor, and the keys that it is counted under.
    pub fn find<V: AsRef<[u8]>>(&self, domain: &str, entries: &[(&str, V)]) -> Option<Found<'_>> {
        let domain = self.domains.get(domain)?;
        let rule = domain.root.find(entries, domain.tree)?;
        let (policy, keys, rule_index) = (rule.policy.as_deref(), rule.keys(entries), rule.index);
        let (counting, replaces) = (rule.counting, &rule.replaces);
        Some(Found { policy, keys, counting, replaces, rule: rule_index })
    }
}

impl Node {
    /// Adds a node for one more entry.
    fn then(&mut self, entry: &EntrySpec) -> &mut Self {
        let values = self.next.entry(entry.key.as_str().into()).or_default();
        match entry.value.as_deref().map(|value| value.strip_suffix('*').ok_or(value)) {
            None => values.any.get_or_insert_default(),
            Some(Err(exact)) => values.exact.entry(exact.as_bytes().into()).or_default(),
            Some(Ok(prefix)) => {
                let before = values.lengths.partition_point(|length| *length > prefix.len());
                if values.lengths.get(before) != Some(&prefix.len()) {
                    values.lengths.insert(before, prefix.len());
                }
                values.prefixes.entry(prefix.as_bytes().into()).or_default()
            }
        }
    }

    /// Visits each node at most once, the most specific first. In tree mode the first match of each level is final.
    fn find<V: AsRef<[u8]>>(&self, entries: &[(&str, V)], tree: bool) -> Option<&Rule> {
        let Some(((key, value), rest)) = entries.split_first() else { return self.rule.as_ref() };
        let mut fits = self.next.get(*key)?.fits(value.as_ref());
        if tree { fits.next()?.find(rest, tree) } else { fits.find_map(|node| node.find(rest, tree)) }
    }
}

impl Values {
    fn fits<'a, 'v>(&'a self, value: &'v [u8]) -> impl Iterator<Item = &'a Node> + use<'a, 'v> {
        let prefixes = self.lengths.iter().filter_map(|length| self.prefixes.get(value.get(..*length)?));
        self.exact.get(value).into_iter().chain(prefixes).chain(self.any.as_deref())
    }
}

impl Rule {
    fn of(spec: &RuleSpec, index: usize) -> Self {
        let apart = |entry: &EntrySpec| {
            !entry.shared && entry.value.as_ref().is_none_or(|value| value.ends_with('*'))
        };
        let entries = spec.entries.iter().enumerate();
        let counted = entries.filter(|(_, entry)| apart(entry)).map(|(place, entry)| (place, entry.by));
        let policy = spec.policy.as_deref().filter(|_| !spec.unlimited).map(Into::into);
        let counting = Counting {
            debit: spec.debit,
            limit_override: spec.allow_limit_override,
            refunds: spec.allow_refunds,
        };
        let replaces = spec.replaces.iter().map(|name| name.as_str().into()).collect();
        Self { policy, counted: counted.collect(), counting, replaces, index }
    }

    fn keys<V: AsRef<[u8]>>(&self, entries: &[(&str, V)]) -> Vec<Vec<u8>> {
        let last = self.counted.iter().map(|(_, by)| *by).max().unwrap_or(0);
        let values_of = |key: u8| {
            let counted = self.counted.iter().filter(move |(_, by)| *by == key);
            counted.filter_map(|(place, _)| entries.get(*place).map(|(_, value)| value))
        };
        (0..=last).map(|key| joined(values_of(key))).collect()
    }
}
