//! Principals by the names in their client certificates.

use std::collections::HashMap;

/// Principals by the names in their certificates.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    exact: HashMap<String, usize>,
    /// By the part before the `*`.
    patterns: HashMap<String, usize>,
    /// The lengths of the patterns, longest first: each is one lookup.
    lengths: Vec<usize>,
}

impl Certificates {
    /// Adds a name in the form that [`judge_certificate`](crate::policy::judge_certificate) returns. Returns the
    /// principal that has it already, if any.
    pub(super) fn insert(&mut self, name: String, whose: usize) -> Option<usize> {
        let Some(beginning) = name.strip_suffix('*') else { return self.exact.insert(name, whose) };
        if let Err(place) = self.lengths.binary_search_by(|length| beginning.len().cmp(length)) {
            self.lengths.insert(place, beginning.len());
        }
        self.patterns.insert(beginning.to_owned(), whose)
    }

    /// Returns the principal of a certificate with these names: by a full name, else by the longest pattern. If names
    /// match several principals, returns the one that the file lists first by name.
    pub(super) fn find(&self, names: &[String]) -> Option<usize> {
        let exact = names.iter().filter_map(|name| self.exact.get(name)).min();
        exact.copied().or_else(|| {
            self.lengths.iter().find_map(|&length| {
                names.iter().filter_map(|name| self.patterns.get(beginning(name, length)?)).min().copied()
            })
        })
    }
}

/// Returns the part of a name that a pattern of this length must equal, if the rest is a path of proper segments.
fn beginning(name: &str, length: usize) -> Option<&str> {
    let (beginning, rest) = name.split_at_checked(length)?;
    // A pattern matches names below it: `a/../b` is not below `a`.
    let proper = |segment: &str| !matches!(segment, "" | "." | "..");
    rest.split('/').all(proper).then_some(beginning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::judge_certificate;

    #[test]
    fn the_longest_pattern_wins_and_a_name_in_full_wins_over_all() {
        let names = ["spiffe://mesh/*", "spiffe://mesh/ns/a/*", "spiffe://mesh/ns/a/sa/x", "dns:a.example"];
        let mut all = Certificates::default();
        for (index, name) in names.into_iter().enumerate() {
            assert_eq!(all.insert(judge_certificate(name).unwrap(), index), None);
        }
        assert_eq!(all.lengths, [19, 14]);
        let find = |names: &[&str]| all.find(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        let table = [
            ("spiffe://mesh/ns/a/sa/x", Some(2)),
            ("spiffe://mesh/ns/a/sa/y", Some(1)),
            ("spiffe://mesh/ns/b/sa/x", Some(0)),
            ("spiffe://mesh/ns/a", Some(0)),
            ("spiffe://mesh/", None),
            ("spiffe://mesh", None),
            ("spiffe://mesh.evil/ns/a/sa/x", None),
            ("spiffe://mesh/ns/a/../b", None),
            ("spiffe://mesh/ns//a", None),
            ("dns:a.example", Some(3)),
            ("dns:b.example", None),
        ];
        for (name, whose) in table {
            assert_eq!(find(&[name]), whose, "{name}");
        }
        assert_eq!(find(&["spiffe://mesh/ns/a/sa/y", "dns:a.example"]), Some(3));
        assert_eq!(find(&[]), None);
        assert_eq!(all.insert("spiffe://mesh/*".into(), 7), Some(0));
    }
}
