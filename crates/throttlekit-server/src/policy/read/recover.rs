//! Reading on after an error, so that one run reports all of them.

use serde::de;

use super::super::error::{Place, PolicyError, step};
use super::super::tree::{Node, Value};

/// Maximum number of errors of form that are searched for: each reads the whole tree once more.
const ROUNDS_MAX: usize = 20;

/// The errors of a file, and what could be read of the rest.
pub(in crate::policy) struct Unread<T> {
    pub(in crate::policy) errors: Vec<PolicyError>,
    /// `None` if something that the whole file needs is missing.
    pub(in crate::policy) rest: Option<T>,
}

/// Deserializes a `T` from a tree that was parsed from `source`, or returns all errors, in their order in the file.
///
/// After an error, the value that has it counts as removed, and the rest is read. What is only missing because it was
/// removed is no further error.
pub(in crate::policy) fn read_all<T: de::DeserializeOwned>(
    source: &str,
    mut root: Node,
) -> Result<(Node, T), (Node, Unread<T>)> {
    let mut errors: Vec<PolicyError> = Vec::new();
    let rest = loop {
        let wrong = match T::deserialize(&root) {
            Ok(value) if errors.is_empty() => return Ok((root, value)),
            Ok(value) => break Some(value),
            Err(wrong) => wrong.at(root.at),
        };
        let is_missing = wrong.is_missing();
        let error = wrong.finish(source);
        let (path, place) = (error.path.clone(), error.place.unwrap_or(root.at));
        let is_consequence = errors.iter().any(|earlier| is_within(&earlier.path, &path))
            && root.at_path(&path).is_some_and(|node| node.at == place);
        if !is_consequence {
            errors.push(error);
        }
        if errors.len() >= ROUNDS_MAX || !root.remove(&path, (!is_missing).then_some(place)) {
            break None;
        }
    };
    errors.sort_by_key(|error| error.place);
    Err((root, Unread { errors, rest }))
}

/// Checks whether a path is `outer` or leads further.
pub(in crate::policy) fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

impl Node {
    /// Returns the value at a path.
    fn at_path(&self, path: &str) -> Option<&Self> {
        if path.is_empty() {
            return Some(self);
        }
        let (inner, rest) = match &self.value {
            Value::List(items) => {
                let (index, rest) = indexed(path)?;
                (items.get(index)?, rest)
            }
            Value::Mapping(pairs) => {
                pairs.iter().find_map(|(key, value)| Some((value, below(path, &key.text)?)))?
            }
            Value::Scalar { .. } | Value::Removed => return None,
        };
        inner.at_path(rest)
    }

    /// Removes the value of the key at `key` in the mapping at a path; if there is none, what is at the path. Returns
    /// `false` if that is the whole tree, or not there.
    fn remove(&mut self, path: &str, key: Option<Place>) -> bool {
        if path.is_empty() {
            return key.is_some_and(|key| self.remove_key(key));
        }
        let found = match &mut self.value {
            Value::List(items) => indexed(path).and_then(|(index, rest)| Some((items.get_mut(index)?, rest))),
            Value::Mapping(pairs) => {
                pairs.iter_mut().find_map(|(key, value)| Some((value, below(path, &key.text)?)))
            }
            Value::Scalar { .. } | Value::Removed => None,
        };
        let Some((inner, rest)) = found else { return false };
        if inner.is_removed() {
            return false;
        }
        if !inner.remove(rest, key) {
            inner.value = Value::Removed;
        }
        true
    }

    fn remove_key(&mut self, place: Place) -> bool {
        let Value::Mapping(pairs) = &mut self.value else { return false };
        let Some((_, value)) = pairs.iter_mut().find(|(key, value)| key.at == place && !value.is_removed())
        else {
            return false;
        };
        value.value = Value::Removed;
        true
    }
}

/// Splits the first step off a path into a list.
fn indexed(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest.strip_prefix('.').unwrap_or(rest)))
}

/// Returns the path below a key, if it leads there.
fn below<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(&step(key))?;
    let leads = rest.is_empty() || rest.starts_with(['.', '[']);
    leads.then(|| rest.strip_prefix('.').unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyFile;
    use crate::policy::tree;

    fn errors(text: &str) -> Vec<String> {
        let root = tree::parse(text).expect("valid YAML");
        let (_, unread) = read_all::<PolicyFile>(text, root).expect_err("it has errors");
        let short = |error: PolicyError| {
            let (place, message) = (error.place.expect("a place"), error.message);
            let head: String = message.split([',', '.', ';']).next().unwrap_or_default().to_owned();
            format!("{}:{} {}: {head}", place.line, place.column, error.path)
        };
        unread.errors.into_iter().map(short).collect()
    }

    #[test]
    fn all_errors_are_found_in_their_order_and_none_twice() {
        let text = "version: 1\npolicies:\n  a:\n    rate: {limit: x, per: 1s, brust: 2}\n    colour: red\n  b:\n    \
                    rate:\n      - {limit: 5}\n      - {limit: 5, per: 1w}\n  c: {rate: {limit: 5, per: 1s}}\nenvoy: no\n";
        let found = [
            "4:19 policies.a.rate.limit: expected an integer",
            "4:31 policies.a.rate: unknown key `brust`",
            "5:5 policies.a: unknown key `colour`",
            "8:9 policies.b.rate[0]: missing key `per`: add it",
            "9:25 policies.b.rate[1].per: invalid duration `1w`: expected an integer and a unit (ms",
            "11:8 envoy: expected a list",
        ];
        assert_eq!(errors(text), found);
    }

    #[test]
    fn a_choice_and_the_whole_file_have_errors_too() {
        let text = "version: x\npolicies:\n  a: {on_outage: {locl: {nodes: 3}}, concurrency: {limit: 1, scope: world}}\n";
        let found = [
            "1:10 version: expected an integer",
            "3:19 policies.a.on_outage: unknown value `locl`",
            "3:69 policies.a.concurrency.scope: unknown value `world`",
        ];
        assert_eq!(errors(text), found);
    }

    #[test]
    fn the_search_ends() {
        let policies: String = (0..50).map(|n| format!("  p{n}: {{rate: {n}}}\n")).collect();
        assert_eq!(errors(&format!("version: 1\npolicies:\n{policies}")).len(), ROUNDS_MAX);
    }
}
