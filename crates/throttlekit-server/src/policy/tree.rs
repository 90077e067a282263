//! A file as a tree in which every node has its location.
//!
//! YAML is more than a policy file needs, and the rest of it is how small files expand to large ones. Anchors, aliases,
//! tags and further documents are rejected, and so is everything that is longer or deeper than any real file.

use std::collections::HashSet;

use serde_saphyr::granit_parser::{self, Event, Marker, Parser, ScalarStyle, StrInput};

use super::error::{Place, PolicyError};

/// Maximum size of a file, in bytes.
pub const BYTES_MAX: usize = 1 << 20;
/// Maximum depth of nested mappings and lists.
pub const DEPTH_MAX: usize = 32;
/// Maximum number of keys, values, mappings and lists in a file.
pub const NODES_MAX: usize = 250_000;
/// Maximum number of them in one mapping or list: it grows by copying, which takes as much again.
pub const ITEMS_MAX: usize = 1 << 17;
/// Maximum length of a key or value, in bytes.
pub const SCALAR_BYTES_MAX: usize = 16 << 10;

/// A value and its location.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Text as it was written. Without quotes it may be a number.
    Scalar {
        text: Box<str>,
        plain: bool,
    },
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) at: Place,
    pub(super) text: Box<str>,
}

impl Node {
    pub(super) fn is_scalar(&self) -> bool {
        matches!(self.value, Value::Scalar { .. })
    }

    /// Checks whether the value is missing or null.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(&**text, "" | "~" | "null"))
    }
}

/// Parses `source`. Returns the first error.
pub(super) fn parse(source: &str) -> Result<Node, PolicyError> {
    let wrong = |(place, message): Wrong| PolicyError::at(source, String::new(), place, message);
    if source.len() > BYTES_MAX {
        let message = format!(
            "the file has {} bytes, at most {BYTES_MAX} are allowed: split it, or remove unused parts",
            source.len()
        );
        return Err(wrong((None, message)));
    }
    TreeBuilder::new(source).build().map_err(wrong)
}

type Wrong = (Option<Place>, String);

/// A mapping or list that is not closed yet.
enum Open {
    List(Place, Vec<Node>),
    Mapping(Place, Vec<(Key, Node)>, Option<Key>),
}

struct TreeBuilder<'s> {
    events: Parser<'s, StrInput<'s>>,
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
}

fn place(mark: &Marker) -> Place {
    Place::at(mark.line(), mark.col() + 1)
}

impl<'s> TreeBuilder<'s> {
    fn new(source: &'s str) -> Self {
        let mut options = granit_parser::options! {
            disallow_directives: true,
            emit_unresolved_aliases: true,
            flow_nesting_limit: DEPTH_MAX + 1,
            block_nesting_limit: DEPTH_MAX + 1,
        };
        options.set_emit_comments(false);
        let events = Parser::new_from_str_with_options(source, options);
        Self { events, open: Vec::new(), root: None, nodes: 0 }
    }

    fn build(mut self) -> Result<Node, Wrong> {
        let mut documents = 0;
        while let Some(event) = self.events.next_event() {
            let (event, span) = event.map_err(|error| {
                let nested = error.info().contains("nest") || error.info().contains("recursion");
                let hint = if nested { format!("; at most {DEPTH_MAX} levels") } else { String::new() };
                (Some(place(error.marker())), format!("invalid YAML: {}{hint}", error.info()))
            })?;
            let at = place(&span.start);
            if event.is_alias() || event.anchor_id().is_some() || matches!(event, Event::UnresolvedAlias(_)) {
                return Err(no_anchors(at));
            }
            if event.tag().is_some() {
                return Err((Some(at), "tags (`!…`) are not supported: remove it".into()));
            }
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        return Err((Some(at), "more than one YAML document: keep one".into()));
                    }
                }
                Event::Scalar(text, style, ..) => self.scalar(at, text.into(), style)?,
                Event::SequenceStart(..) => self.begin(at, Open::List(at, Vec::new()))?,
                Event::MappingStart(..) => self.begin(at, Open::Mapping(at, Vec::new(), None))?,
                Event::SequenceEnd | Event::MappingEnd => self.end()?,
                _ => {}
            }
        }
        self.root.ok_or_else(|| (None, "the file is empty: start with `version: 1`".into()))
    }

    fn count(&mut self, at: Place) -> Result<(), Wrong> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err((Some(at), format!("the file has more than {NODES_MAX} keys and values")));
        }
        let beside = match self.open.last() {
            Some(Open::List(_, items)) => items.len(),
            Some(Open::Mapping(_, pairs, _)) => pairs.len(),
            None => 0,
        };
        if beside >= ITEMS_MAX {
            return Err((Some(at), format!("more than {ITEMS_MAX} entries in one list or mapping")));
        }
        Ok(())
    }

    fn scalar(&mut self, at: Place, text: Box<str>, style: ScalarStyle) -> Result<(), Wrong> {
        self.count(at)?;
        if text.len() > SCALAR_BYTES_MAX {
            let message = format!("text has {} bytes, at most {SCALAR_BYTES_MAX} are allowed", text.len());
            return Err((Some(at), message));
        }
        if let Some(odd) = text.chars().find(|letter| is_unwritable(*letter)) {
            let message = format!("text contains U+{:04X}, which is invisible: remove it", u32::from(odd));
            return Err((Some(at), message));
        }
        if let Some(Open::Mapping(_, _, key @ None)) = self.open.last_mut() {
            *key = Some(Key { at, text });
            return Ok(());
        }
        self.put(Node { at, value: Value::Scalar { text, plain: style == ScalarStyle::Plain } });
        Ok(())
    }

    fn begin(&mut self, at: Place, open: Open) -> Result<(), Wrong> {
        self.count(at)?;
        if let Some(Open::Mapping(_, _, None)) = self.open.last() {
            return Err((Some(at), "a key must be text, not a mapping or a list".into()));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err((Some(at), format!("nested too deeply: at most {DEPTH_MAX} levels")));
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Wrong> {
        let node = match self.open.pop() {
            Some(Open::List(at, items)) => Node { at, value: Value::List(items) },
            Some(Open::Mapping(at, pairs, _)) => {
                let mut seen = HashSet::with_capacity(pairs.len());
                if let Some((twice, _)) = pairs.iter().find(|(key, _)| !seen.insert(&*key.text)) {
                    let message = format!("duplicate key `{}`: keep one of them", shown(&twice.text));
                    return Err((Some(twice.at), message));
                }
                Node { at, value: Value::Mapping(pairs) }
            }
            None => return Ok(()),
        };
        self.put(node);
        Ok(())
    }

    fn put(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Mapping(_, pairs, key)) => pairs.extend(key.take().map(|key| (key, node))),
            None => self.root = Some(node),
        }
    }
}

/// Checks for characters that YAML reads only from an escape, while JSON writes them as they are: a file with one would
/// not load again.
fn is_unwritable(letter: char) -> bool {
    matches!(letter, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
}

fn no_anchors(at: Place) -> Wrong {
    let message = "anchors (`&…`) and aliases (`*…`) are not supported, because they make small files large: write the \
                   value out, or quote it if it is text";
    (Some(at), message.into())
}

/// Escapes text for a message.
pub(super) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let head: String = text.chars().take(SHOWN_MAX).collect();
    let more = if head.len() < text.len() { "…" } else { "" };
    format!("{}{more}", head.escape_debug())
}
