//! A file as a tree in which every node has its location.
//!
//! YAML is more than a policy file needs. Tags and further documents are rejected, and so is everything that is longer or
//! deeper than any real file, [aliases](anchors) included.

mod anchors;

use std::collections::HashSet;

use serde_saphyr::granit_parser::{self, Event, Marker, Parser, ScalarStyle, StrInput};

use super::error::{Place, PolicyError};
use anchors::{Anchors, Size, merged};

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
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Text as it was written. Without quotes it may be a number.
    Scalar {
        text: Box<str>,
        plain: bool,
    },
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
    /// A value with an error, which was reported.
    Removed,
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) at: Place,
    pub(super) text: Box<str>,
    /// `true` for a merge key, which no mapping has once it is read.
    merges: bool,
}

impl Node {
    pub(super) fn is_scalar(&self) -> bool {
        matches!(self.value, Value::Scalar { .. })
    }

    pub(super) fn is_removed(&self) -> bool {
        matches!(self.value, Value::Removed)
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

/// The number of an anchor.
type AnchorId = Option<usize>;

struct TreeBuilder<'s> {
    events: Parser<'s, StrInput<'s>>,
    open: Vec<(Open, AnchorId)>,
    root: Option<Node>,
    anchors: Anchors,
    nodes: usize,
    /// Bytes of text, counted again for each copy.
    bytes: usize,
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
        Self { events, open: Vec::new(), root: None, anchors: Anchors::default(), nodes: 0, bytes: 0 }
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
                Event::Alias(id) => self.alias(at, id)?,
                Event::UnresolvedAlias(name) => return Err(no_anchor(at, &name)),
                Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) => {
                    self.value(at, event)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.end()?,
                _ => {}
            }
        }
        self.root.ok_or_else(|| (None, "the file is empty: start with `version: 1`".into()))
    }

    fn value(&mut self, at: Place, event: Event<'_>) -> Result<(), Wrong> {
        let anchor = event.anchor_id();
        match event {
            Event::Scalar(text, style, ..) => self.scalar(at, text.into(), style, anchor),
            Event::SequenceStart(..) => self.begin(at, Open::List(at, Vec::new()), anchor),
            _ => self.begin(at, Open::Mapping(at, Vec::new(), None), anchor),
        }
    }

    /// Puts a copy of a value where an alias stands for it.
    fn alias(&mut self, at: Place, id: usize) -> Result<(), Wrong> {
        let (node, size) = self.anchors.copy(at, id, self.open.len())?;
        self.count(at, Size { nodes: size.nodes - 1, ..size })?;
        if !self.expects_key() {
            self.put(node);
            return Ok(());
        }
        match node.value {
            Value::Scalar { text, .. } => self.put_key(Key { at, text, merges: false }),
            _ => return Err(no_text_key(at)),
        }
        Ok(())
    }

    /// Counts one node, and `more` below or beside it.
    fn count(&mut self, at: Place, more: Size) -> Result<(), Wrong> {
        self.nodes += 1 + more.nodes;
        self.bytes += more.bytes;
        if self.nodes > NODES_MAX {
            return Err((Some(at), format!("the file has more than {NODES_MAX} keys and values")));
        }
        if self.bytes > BYTES_MAX {
            let message = format!("the aliases stand for more than {BYTES_MAX} bytes of text: use fewer");
            return Err((Some(at), message));
        }
        let beside = match self.open.last() {
            Some((Open::List(_, items), _)) => items.len(),
            Some((Open::Mapping(_, pairs, _), _)) => pairs.len(),
            None => 0,
        };
        if beside >= ITEMS_MAX {
            return Err((Some(at), format!("more than {ITEMS_MAX} entries in one list or mapping")));
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        at: Place,
        text: Box<str>,
        style: ScalarStyle,
        anchor: AnchorId,
    ) -> Result<(), Wrong> {
        self.count(at, Size::default())?;
        if text.len() > SCALAR_BYTES_MAX {
            let message = format!("text has {} bytes, at most {SCALAR_BYTES_MAX} are allowed", text.len());
            return Err((Some(at), message));
        }
        if let Some(odd) = text.chars().find(|letter| is_unwritable(*letter)) {
            let message = format!("text contains U+{:04X}, which is invisible: remove it", u32::from(odd));
            return Err((Some(at), message));
        }
        let plain = style == ScalarStyle::Plain;
        let merges = plain && &*text == "<<";
        let node = Node { at, value: Value::Scalar { text, plain } };
        self.remember(at, anchor, &node)?;
        match node.value {
            Value::Scalar { text, .. } if self.expects_key() => self.put_key(Key { at, text, merges }),
            _ => self.put(node),
        }
        Ok(())
    }

    fn remember(&mut self, at: Place, anchor: AnchorId, node: &Node) -> Result<(), Wrong> {
        let Some(id) = anchor else { return Ok(()) };
        let size = self.anchors.remember(id, node);
        // The copy takes memory, also if no alias uses it.
        self.count(at, Size { nodes: size.nodes - 1, ..size })
    }

    /// Checks whether the next value is a key.
    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some((Open::Mapping(_, _, None), _)))
    }

    fn put_key(&mut self, read: Key) {
        if let Some((Open::Mapping(_, _, key), _)) = self.open.last_mut() {
            *key = Some(read);
        }
    }

    fn begin(&mut self, at: Place, open: Open, anchor: AnchorId) -> Result<(), Wrong> {
        self.count(at, Size::default())?;
        if self.expects_key() {
            return Err(no_text_key(at));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err((Some(at), format!("nested too deeply: at most {DEPTH_MAX} levels")));
        }
        self.open.push((open, anchor));
        Ok(())
    }

    fn end(&mut self) -> Result<(), Wrong> {
        let Some((open, anchor)) = self.open.pop() else { return Ok(()) };
        let node = match open {
            Open::List(at, items) => Node { at, value: Value::List(items) },
            Open::Mapping(at, pairs, _) => {
                let mut seen = HashSet::with_capacity(pairs.len());
                if let Some((twice, _)) = pairs.iter().find(|(key, _)| !seen.insert(&*key.text)) {
                    let message = format!("duplicate key `{}`: keep one of them", shown(&twice.text));
                    return Err((Some(twice.at), message));
                }
                Node { at, value: Value::Mapping(merged(pairs)?) }
            }
        };
        self.remember(node.at, anchor, &node)?;
        self.put(node);
        Ok(())
    }

    fn put(&mut self, node: Node) {
        match self.open.last_mut() {
            Some((Open::List(_, items), _)) => items.push(node),
            Some((Open::Mapping(_, pairs, key), _)) => pairs.extend(key.take().map(|key| (key, node))),
            None => self.root = Some(node),
        }
    }
}

/// Checks for characters that YAML reads only from an escape, while JSON writes them as they are: a file with one would
/// not load again.
fn is_unwritable(letter: char) -> bool {
    matches!(letter, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
}

fn no_text_key(at: Place) -> Wrong {
    (Some(at), "a key must be text, not a mapping or a list".into())
}

fn no_anchor(at: Place, name: &str) -> Wrong {
    let message = format!(
        "no anchor `&{0}` is above the alias `*{0}`: define it first, or quote it if it is text",
        shown(name)
    );
    (Some(at), message)
}

/// Escapes text for a message.
pub(super) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let head: String = text.chars().take(SHOWN_MAX).collect();
    let more = if head.len() < text.len() { "…" } else { "" };
    format!("{}{more}", head.escape_debug())
}
