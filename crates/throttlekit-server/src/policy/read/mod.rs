//! Deserialization from a tree, with the path and the location of each error.

mod accessors;
mod read_error;
mod recover;

use std::fmt;

use serde::de::{Deserializer, Visitor};

use super::tree::{Node, Value, shown};
use accessors::{Choice, walk_list, walk_mapping};
use read_error::ReadError;
pub(super) use recover::{Unread, is_within, read_all};

impl Node {
    fn found(&self) -> String {
        match &self.value {
            _ if self.is_null() => "nothing".into(),
            Value::Scalar { text, plain: true } => format!("`{}`", shown(text)),
            Value::Scalar { text, plain: false } => format!("the quoted text \"{}\"", shown(text)),
            Value::List(_) => "a list".into(),
            Value::Mapping(_) => "a mapping".into(),
            Value::Removed => "nothing".into(),
        }
    }

    fn expected<T>(&self, what: impl fmt::Display) -> Result<T, ReadError> {
        Err(ReadError::new(format!("expected {what}, found {}", self.found())).at(self.at))
    }

    /// Returns its text, if it could be a number.
    fn plain(&self) -> Option<&str> {
        if let Value::Scalar { text, plain: true } = &self.value { Some(text) } else { None }
    }

    fn signed(&self, min: i64, max: i64) -> Result<i64, ReadError> {
        let number = self.plain().and_then(|text| text.parse::<i64>().ok());
        number
            .filter(|number| (min..=max).contains(number))
            .map_or_else(|| self.expected(format_args!("an integer from {min} to {max}")), Ok)
    }

    fn unsigned(&self, max: u64) -> Result<u64, ReadError> {
        // Some YAML parsers read 010 as eight.
        let clear = |text: &&str| !text.starts_with('+') && (!text.starts_with('0') || text.len() == 1);
        let number = self.plain().filter(clear).and_then(|text| text.parse().ok());
        number.filter(|number| *number <= max).map_or_else(|| self.expected(whole_number_up_to(max)), Ok)
    }

    fn float(&self) -> Result<f64, ReadError> {
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
    if max <= u64::from(u16::MAX) { format!("an integer from 0 to {max}") } else { "an integer".into() }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $read:ident($($bound:expr),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            visitor.$visit(self.$read($($bound),*)?.try_into().expect("within its bounds")).map_err(|wrong: ReadError| wrong.at(self.at))
        }
    )*};
}

impl<'de> Deserializer<'de> for &Node {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.value {
            _ if self.is_null() => visitor.visit_unit(),
            Value::Mapping(pairs) => return walk_mapping(self.at, pairs, visitor),
            Value::List(items) => return walk_list(self.at, items, visitor),
            Value::Removed => visitor.visit_unit(),
            Value::Scalar { text, .. } => match (self.boolean(), self.unsigned(u64::MAX), self.float()) {
                (Some(value), _, _) => visitor.visit_bool(value),
                (_, Ok(value), _) => visitor.visit_u64(value),
                (_, _, Ok(value)) => visitor.visit_f64(value),
                _ => visitor.visit_str(text),
            },
        }
        .map_err(|wrong: ReadError| wrong.at(self.at))
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

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.boolean() {
            Some(value) => visitor.visit_bool(value),
            None => self.expected("`true` or `false`"),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => {
                visitor.visit_str(text).map_err(|wrong: ReadError| wrong.at(self.at))
            }
            _ => self.expected("text"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.value {
            Value::List(items) => walk_list(self.at, items, visitor),
            _ => self.expected("a list"),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
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
    ) -> Result<V::Value, ReadError> {
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
    ) -> Result<V::Value, ReadError> {
        let choice = match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => {
                Choice { name: text, at: self.at, content: None }
            }
            Value::Mapping(pairs) if pairs.len() == 1 && !pairs[0].1.is_removed() => {
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
