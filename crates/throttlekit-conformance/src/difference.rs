//! The error of a check that found a difference.

use std::fmt;

/// The first difference between a subject and what is expected, or the reason why they could not be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference(String);

impl From<String> for Difference {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Difference {}
