//! Policies as people write them: YAML in, a checked description out.

mod limits;
mod model;
mod span;

pub use limits::BUCKETS_DEFAULT;
pub use model::*;
pub use span::Span;

use serde::{Deserialize, Deserializer};

/// One of it, or a list.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// A list.
    Many(Vec<T>),
}

fn one_or_many<'de, T: Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<Vec<T>, D::Error> {
    Ok(match OneOrMany::deserialize(input)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}
