//! Values that people may write in more than one way.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::error::did_you_mean;
use super::model::{CalendarPart, Period, TotalPart};
use super::span::Span;

/// One item, or a list of them.
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) enum OneOrMany<T> {
    /// One.
    One(T),
    /// A list.
    Many(Vec<T>),
}

/// Reads a mapping as a list of one.
pub(super) fn one_or_many<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    struct Either<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a mapping, or a list of mappings")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = list.next_element()? {
                all.push(item);
            }
            Ok(all)
        }
    }

    input.deserialize_any(Either(PhantomData))
}

/// Reads a number as a list of one.
pub(super) fn one_or_many_indexes<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<u8>, D::Error> {
    struct Indexes;

    impl<'de> Visitor<'de> for Indexes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the index of a key, or a list of them")
        }

        fn visit_u64<E: de::Error>(self, index: u64) -> Result<Vec<u8>, E> {
            let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(index), &self);
            u8::try_from(index).map(|index| vec![index]).map_err(wrong)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u8>, A::Error> {
            let mut all = Vec::new();
            while let Some(index) = list.next_element()? {
                all.push(index);
            }
            Ok(all)
        }
    }

    input.deserialize_any(Indexes)
}

const PARTS: [(&str, CalendarPart); 3] =
    [("day", CalendarPart::Day), ("week", CalendarPart::Week), ("month", CalendarPart::Month)];
const TOTAL: &str = "total";
/// Terms of other tools, and their meaning here.
const WORDS: [(&str, &str); 5] =
    [("second", "1s"), ("minute", "1m"), ("hour", "1h"), ("year", "365d"), ("daily", "day")];

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, part)) = PARTS.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Calendar(*part));
        }
        if text == TOTAL {
            return Ok(Self::Total(TotalPart::Total));
        }
        if let Some((_, meant)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Err(format!("invalid period `{text}`: write `{meant}`"));
        }
        let parts = PARTS.iter().map(|(name, _)| *name).chain([TOTAL]);
        text.parse().map(Self::Span).map_err(|wrong: String| wrong + &did_you_mean(text, parts))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Span(span) => span.fmt(f),
            Self::Total(_) => f.write_str(TOTAL),
            Self::Calendar(CalendarPart::Day) => f.write_str("day"),
            Self::Calendar(CalendarPart::Week) => f.write_str("week"),
            Self::Calendar(CalendarPart::Month) => f.write_str("month"),
        }
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        text(input)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        text(input)
    }
}

/// Parses text. For a bare number, the error names the missing unit.
fn text<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
    struct Text<T>(PhantomData<T>);

    impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration, such as `1m`")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }
    }

    input.deserialize_str(Text(PhantomData))
}
