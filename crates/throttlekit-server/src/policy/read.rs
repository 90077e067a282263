//! Values out of a tree, with the path and the place of whatever does not fit.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess};
use serde::de::{Unexpected, VariantAccess, Visitor};

use super::error::{Place, PolicyError, did_you_mean, step};
use super::tree::{Key, Node, Value, shown};

/// A `T` from a tree that was grown from `source`.
pub(super) fn read<T: de::DeserializeOwned>(source: &str, root: &Node) -> Result<T, PolicyError> {
    T::deserialize(root).map_err(|wrong| wrong.at(root.at).finish(source))
}

/// What does not fit. The path is gathered on the way out, so its steps are in reverse.
#[derive(Debug)]
pub(super) struct Misfit {
    steps: Vec<String>,
    place: Option<Place>,
    message: String,
}

impl Misfit {
    fn new(message: String) -> Self {
        Self { steps: Vec::new(), place: None, message }
    }

    /// The innermost place is the one that counts.
    fn at(self, place: Place) -> Self {
        Self { place: self.place.or(Some(place)), ..self }
    }

    fn under(mut self, step: String) -> Self {
        self.steps.push(step);
        self
    }

    fn finish(self, source: &str) -> PolicyError {
        let path: String = self.steps.iter().rev().map(String::as_str).collect();
        let path = path.strip_prefix('.').unwrap_or(&path).to_owned();
        PolicyError::at(source, path, self.place, self.message)
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = expected.to_string();
        let expected =
            if expected.starts_with("a nonzero") { "a whole number of at least 1" } else { &expected };
        Self::new(format!("expected {expected}, found {}", words(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let hint = did_you_mean(field, known.iter().copied());
        Self::new(format!("unknown key `{}`{}", shown(field), listed(&hint, "Keys here", known)))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let hint = did_you_mean(variant, known.iter().copied());
        Self::new(format!("unknown choice `{}`{}", shown(variant), listed(&hint, "Choose one of", known)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is missing: add it"))
    }
}

fn listed(hint: &str, intro: &str, known: &[&str]) -> String {
    let end = if hint.is_empty() { "." } else { hint };
    if known.is_empty() { hint.to_owned() } else { format!("{end} {intro}: {}", known.join(", ")) }
}

fn words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => format!("`{}`", shown(text)),
        Unexpected::Unsigned(number) => format!("`{number}`"),
        Unexpected::Unit | Unexpected::Option => "nothing".into(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a mapping".into(),
        other => other.to_string(),
    }
}

impl Node {
    fn found(&self) -> String {
        match &self.value {
            _ if self.is_null() => "nothing".into(),
            Value::Scalar { text, plain: true } => format!("`{}`", shown(text)),
            Value::Scalar { text, plain: false } => format!("the text \"{}\", in quotes", shown(text)),
            Value::List(_) => "a list".into(),
            Value::Mapping(_) => "a mapping".into(),
        }
    }

    fn expected<T>(&self, what: impl fmt::Display) -> Result<T, Misfit> {
        Err(Misfit::new(format!("expected {what}, found {}", self.found())).at(self.at))
    }

    /// Its text, if it is one that could be a number.
    fn plain(&self) -> Option<&str> {
        if let Value::Scalar { text, plain: true } = &self.value { Some(text) } else { None }
    }

    fn signed(&self, min: i64, max: i64) -> Result<i64, Misfit> {
        let number = self.plain().and_then(|text| text.parse::<i64>().ok());
        number
            .filter(|number| (min..=max).contains(number))
            .map_or_else(|| self.expected(format_args!("a whole number from {min} to {max}")), Ok)
    }

    fn unsigned(&self, max: u64) -> Result<u64, Misfit> {
        let number = self.plain().filter(|text| !text.starts_with('+')).and_then(|text| text.parse().ok());
        number.filter(|number| *number <= max).map_or_else(|| self.expected(whole_number_up_to(max)), Ok)
    }

    fn float(&self) -> Result<f64, Misfit> {
        let number = self.plain().filter(|text| text.bytes().any(|b| b.is_ascii_digit()));
        let number = number.and_then(|text| text.parse::<f64>().ok()).filter(|number| number.is_finite());
        number.map_or_else(|| self.expected("a number"), Ok)
    }

    fn boolean(&self) -> Option<bool> {
        match self.plain() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        }
    }
}

fn whole_number_up_to(max: u64) -> String {
    if max <= u64::from(u16::MAX) {
        format!("a whole number from 0 to {max}")
    } else {
        "a whole number".into()
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $read:ident($($bound:expr),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            visitor.$visit(self.$read($($bound),*)?.try_into().expect("within its bounds")).map_err(|wrong: Misfit| wrong.at(self.at))
        }
    )*};
}

impl<'de> Deserializer<'de> for &Node {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.value {
            _ if self.is_null() => visitor.visit_unit(),
            Value::Mapping(pairs) => return walk_mapping(self.at, pairs, visitor),
            Value::List(items) => return walk_list(self.at, items, visitor),
            Value::Scalar { text, .. } => match (self.boolean(), self.unsigned(u64::MAX), self.float()) {
                (Some(value), _, _) => visitor.visit_bool(value),
                (_, Ok(value), _) => visitor.visit_u64(value),
                (_, _, Ok(value)) => visitor.visit_f64(value),
                _ => visitor.visit_str(text),
            },
        }
        .map_err(|wrong: Misfit| wrong.at(self.at))
    }

    whole_numbers! {
        deserialize_u8 visit_u8 unsigned(u8::MAX.into());
        deserialize_u16 visit_u16 unsigned(u16::MAX.into());
        deserialize_u32 visit_u32 unsigned(u32::MAX.into());
        deserialize_u64 visit_u64 unsigned(u64::MAX);
        deserialize_i8 visit_i8 signed(i8::MIN.into(), i8::MAX.into());
        deserialize_i16 visit_i16 signed(i16::MIN.into(), i16::MAX.into());
        deserialize_i32 visit_i32 signed(i32::MIN.into(), i32::MAX.into());
        deserialize_i64 visit_i64 signed(i64::MIN, i64::MAX);
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.boolean() {
            Some(value) => visitor.visit_bool(value),
            None => self.expected("`true` or `false`"),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => {
                visitor.visit_str(text).map_err(|wrong: Misfit| wrong.at(self.at))
            }
            _ => self.expected("text"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.value {
            Value::List(items) => walk_list(self.at, items, visitor),
            _ => self.expected("a list"),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.value {
            Value::Mapping(pairs) => walk_mapping(self.at, pairs, visitor),
            _ => self.expected("a mapping"),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match &self.value {
            Value::Mapping(pairs) => walk_mapping(self.at, pairs, visitor),
            _ => self.expected(format_args!("a mapping with {}", fields.join(", "))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let choice = match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => {
                Choice { name: text, at: self.at, content: None }
            }
            Value::Mapping(pairs) if pairs.len() == 1 => {
                Choice { name: &pairs[0].0.text, at: pairs[0].0.at, content: Some(&pairs[0].1) }
            }
            _ => return self.expected(format_args!("one of {}", variants.join(", "))),
        };
        visitor.visit_enum(choice).map_err(|wrong| wrong.at(self.at))
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

fn walk_mapping<'de, V: Visitor<'de>>(
    at: Place,
    pairs: &[(Key, Node)],
    visitor: V,
) -> Result<V::Value, Misfit> {
    visitor.visit_map(Pairs { pairs: pairs.iter(), value: None }).map_err(|wrong| wrong.at(at))
}

fn walk_list<'de, V: Visitor<'de>>(at: Place, items: &[Node], visitor: V) -> Result<V::Value, Misfit> {
    visitor.visit_seq(Items { items: items.iter().enumerate() }).map_err(|wrong| wrong.at(at))
}

struct Pairs<'t> {
    pairs: std::slice::Iter<'t, (Key, Node)>,
    value: Option<&'t (Key, Node)>,
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        self.value = self.pairs.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        let name: de::value::StrDeserializer<'_, Misfit> = key.text.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|wrong| wrong.at(key.at))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Misfit> {
        let (key, value) = self.value.ok_or_else(|| Misfit::new("a value without a key".into()))?;
        seed.deserialize(value).map_err(|wrong| wrong.at(value.at).under(format!(".{}", step(&key.text))))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.pairs.len())
    }
}

struct Items<'t> {
    items: std::iter::Enumerate<std::slice::Iter<'t, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Misfit;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|wrong| wrong.at(item.at).under(format!("[{index}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// One of several: a word, or a mapping of one key.
struct Choice<'t> {
    name: &'t str,
    at: Place,
    content: Option<&'t Node>,
}

impl<'de> EnumAccess<'de> for Choice<'_> {
    type Error = Misfit;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Misfit> {
        let name: de::value::StrDeserializer<'_, Misfit> = self.name.into_deserializer();
        let value = seed.deserialize(name).map_err(|wrong| wrong.at(self.at))?;
        Ok((value, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'_> {
    type Error = Misfit;

    fn unit_variant(self) -> Result<(), Misfit> {
        match self.content {
            None => Ok(()),
            Some(_) => {
                Err(Misfit::new(format!("`{0}` stands alone: write `{0}`, nothing below", self.name))
                    .at(self.at))
            }
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Misfit> {
        match self.content {
            Some(content) => {
                seed.deserialize(content).map_err(|wrong| wrong.under(format!(".{}", self.name)))
            }
            None => Err(Misfit::new(format!("`{}` needs a value", self.name)).at(self.at)),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        let Some(content) = self.content else {
            return Err(Misfit::new("expected a list".into()).at(self.at));
        };
        content.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let (name, needs) = (self.name, fields.join(", "));
        match self.content {
            Some(content) => content
                .deserialize_struct("", fields, visitor)
                .map_err(|wrong| wrong.under(format!(".{name}"))),
            None => Err(Misfit::new(format!("`{name}` needs {needs}: write `{{{name}: {{{needs}: …}}}}`"))
                .at(self.at)),
        }
    }
}
