//! The deserialization error of a value, with its path.

use std::fmt;

use serde::de::{self, Unexpected};

use super::super::error::{Place, PolicyError, did_you_mean};
use super::super::tree::shown;

/// A deserialization error of a value. The path is collected on the way out, so its steps are in reverse.
#[derive(Debug)]
pub(in crate::policy) struct ReadError {
    steps: Vec<String>,
    place: Option<Place>,
    message: String,
    /// `true` if a mapping has no such key.
    is_missing: bool,
}

impl ReadError {
    pub(super) fn new(message: String) -> Self {
        Self { steps: Vec::new(), place: None, message, is_missing: false }
    }

    /// Sets the location, unless a more inner one is set.
    pub(super) fn at(self, place: Place) -> Self {
        Self { place: self.place.or(Some(place)), ..self }
    }

    pub(super) fn under(mut self, step: String) -> Self {
        self.steps.push(step);
        self
    }

    pub(super) fn is_missing(&self) -> bool {
        self.is_missing
    }

    pub(super) fn finish(self, source: &str) -> PolicyError {
        let path: String = self.steps.iter().rev().map(String::as_str).collect();
        let path = path.strip_prefix('.').unwrap_or(&path).to_owned();
        PolicyError::at(source, path, self.place, self.message)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = expected.to_string();
        let expected = if expected.starts_with("a nonzero") { "an integer of at least 1" } else { &expected };
        Self::new(format!("expected {expected}, found {}", words(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let hint = did_you_mean(field, known.iter().copied());
        Self::new(format!("unknown key `{}`{}", shown(field), listed(&hint, "Known keys", known)))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let hint = did_you_mean(variant, known.iter().copied());
        Self::new(format!("unknown value `{}`{}", shown(variant), listed(&hint, "Expected one of", known)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self { is_missing: true, ..Self::new(format!("missing key `{field}`: add it")) }
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
