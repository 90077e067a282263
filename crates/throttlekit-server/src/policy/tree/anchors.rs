//! Anchors, aliases and merge keys: values that a file repeats.
//!
//! An alias is a copy. Its keys, values and text count toward the limits of the file as if they were written out, so a
//! small file cannot become a large one.

use std::collections::{HashMap, HashSet};

use super::{DEPTH_MAX, ITEMS_MAX, Key, Node, Value, Wrong};
use crate::policy::error::Place;

/// The values with an anchor that were read so far.
#[derive(Default)]
pub(super) struct Anchors {
    known: HashMap<usize, Anchored>,
}

struct Anchored {
    node: Node,
    size: Size,
}

/// The size of a value, written out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Keys, values, mappings and lists.
    pub(super) nodes: usize,
    /// Bytes of text.
    pub(super) bytes: usize,
    /// Levels of mappings and lists.
    pub(super) depth: usize,
}

impl Anchors {
    /// Remembers a value, and returns the size of the copy.
    pub(super) fn remember(&mut self, id: usize, node: &Node) -> Size {
        let size = Size::of(node);
        self.known.insert(id, Anchored { node: node.clone(), size });
        size
    }

    /// Returns a copy of a value, and its size. `levels` are open around the alias.
    pub(super) fn copy(&self, at: Place, id: usize, levels: usize) -> Result<(Node, Size), Wrong> {
        let Some(Anchored { node, size }) = self.known.get(&id) else {
            return Err((Some(at), "the alias is part of the value that it stands for: write it out".into()));
        };
        if levels + size.depth > DEPTH_MAX {
            return Err((
                Some(at),
                format!("nested too deeply with its aliases: at most {DEPTH_MAX} levels"),
            ));
        }
        Ok((node.clone(), *size))
    }
}

impl Size {
    /// Measures a value. It is at most [`DEPTH_MAX`] levels deep.
    fn of(node: &Node) -> Self {
        match &node.value {
            Value::Scalar { text, .. } => Self { nodes: 1, bytes: text.len(), depth: 0 },
            Value::Removed => Self { nodes: 1, ..Self::default() },
            Value::List(items) => items.iter().map(Self::of).fold(Self::LEVEL, Self::and).deeper(),
            Value::Mapping(pairs) => {
                let pair = |(key, value): &(Key, Node)| {
                    Self { nodes: 1, bytes: key.text.len(), depth: 0 }.and(Self::of(value))
                };
                pairs.iter().map(pair).fold(Self::LEVEL, Self::and).deeper()
            }
        }
    }

    const LEVEL: Self = Self { nodes: 1, bytes: 0, depth: 0 };

    fn and(self, other: Self) -> Self {
        let depth = self.depth.max(other.depth);
        Self { nodes: self.nodes + other.nodes, bytes: self.bytes + other.bytes, depth }
    }

    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

/// Replaces the merge key `<<` of a mapping by the pairs of its value: a mapping, or a list of mappings of which the
/// first goes first. Keys that are written beside it go before all of them.
pub(super) fn merged(pairs: Vec<(Key, Node)>) -> Result<Vec<(Key, Node)>, Wrong> {
    if !pairs.iter().any(|(key, _)| key.merges) {
        return Ok(pairs);
    }
    let (merges, mut all): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(key, _)| key.merges);
    let mut known: HashSet<Box<str>> = all.iter().map(|(key, _)| key.text.clone()).collect();
    for (key, node) in merges {
        for one in mappings(node).ok_or_else(|| not_mappings(key.at))? {
            all.extend(one.into_iter().filter(|(key, _)| known.insert(key.text.clone())));
        }
        if all.len() > ITEMS_MAX {
            return Err((Some(key.at), format!("more than {ITEMS_MAX} entries in one list or mapping")));
        }
    }
    Ok(all)
}

fn mappings(node: Node) -> Option<Vec<Vec<(Key, Node)>>> {
    match node.value {
        Value::Mapping(pairs) => Some(vec![pairs]),
        Value::List(items) => {
            let each = items.into_iter().map(|item| match item.value {
                Value::Mapping(pairs) => Some(pairs),
                _ => None,
            });
            each.collect()
        }
        Value::Scalar { .. } | Value::Removed => None,
    }
}

fn not_mappings(at: Place) -> Wrong {
    (Some(at), "`<<` merges a mapping, or a list of mappings: write an alias such as `<<: *name`".into())
}
