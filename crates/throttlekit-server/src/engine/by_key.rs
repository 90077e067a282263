//! Values for some keys: by the whole key, or by a prefix.

use std::collections::HashMap;

/// Values by pattern: a whole key, or a prefix before a `*`. A whole key wins, then the longest prefix.
#[derive(Clone)]
pub(super) struct ByKey<T> {
    whole: HashMap<Box<[u8]>, T>,
    prefixes: HashMap<Box<[u8]>, T>,
    /// The lengths of prefixes, longest first.
    lengths: Vec<usize>,
}

impl<T> ByKey<T> {
    /// Returns the value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&T> {
        self.longest(key).map(|(_, value)| value)
    }

    /// Returns the value of a key, and the length of the prefix that matches it: `usize::MAX` for the whole key.
    pub(super) fn longest(&self, key: &[u8]) -> Option<(usize, &T)> {
        let by_prefix = || {
            let mut prefixes = self.lengths.iter().filter_map(|length| key.get(..*length));
            prefixes.find_map(|prefix| Some((prefix.len(), self.prefixes.get(prefix)?)))
        };
        self.whole.get(key).map(|value| (usize::MAX, value)).or_else(by_prefix)
    }

    /// Returns all values.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.whole.values().chain(self.prefixes.values())
    }
}

impl<T> Default for ByKey<T> {
    fn default() -> Self {
        Self { whole: HashMap::new(), prefixes: HashMap::new(), lengths: Vec::new() }
    }
}

impl<'a, T> FromIterator<(&'a str, T)> for ByKey<T> {
    fn from_iter<I: IntoIterator<Item = (&'a str, T)>>(patterns: I) -> Self {
        let mut all = Self::default();
        for (pattern, value) in patterns {
            match pattern.strip_suffix('*') {
                Some(prefix) => {
                    all.lengths.push(prefix.len());
                    all.prefixes.insert(prefix.as_bytes().into(), value);
                }
                None => drop(all.whole.insert(pattern.as_bytes().into(), value)),
            }
        }
        all.lengths.sort_unstable_by(|a, b| b.cmp(a));
        all.lengths.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_key_wins_then_the_longest_prefix() {
        let all: ByKey<u32> = [("a", 1), ("a*", 2), ("ab*", 3), ("abc", 4), ("b*", 5)].into_iter().collect();
        let get = |key: &str| all.get(key.as_bytes()).copied();
        assert_eq!([get("a"), get("ax"), get("abx"), get("abc")], [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!([get("b"), get("c"), get("")], [Some(5), None, None]);
        let any: ByKey<u32> = [("*", 7)].into_iter().collect();
        assert_eq!(any.get(b"").copied(), Some(7));
    }
}
