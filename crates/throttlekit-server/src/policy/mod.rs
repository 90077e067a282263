//! Policies as people write them: YAML in, a checked description out.
//!
//! [`load`](load()) does all of it: it [parses](parse) a file, [checks](check()) its meaning, and tries each limit.
//! [`explain`](explain()) describes what a file allows, [`schema`](schema()) describes the format to editors, and
//! [`import_envoy`] reads the files of another service.

mod access;
mod check;
mod defaults;
mod envoy;
mod error;
mod explain;
mod import;
mod limits;
mod load;
mod model;
mod read;
mod schema;
mod shape;
mod span;
#[cfg(test)]
mod tests;
mod tree;

use shape::{OneOrMany, one_or_many};

pub use access::{AccessSpec, Endpoint, GrantSpec, PRINCIPALS_MAX, PrincipalSpec, TokenSpec};
pub(crate) use access::{
    Grant, ListedToken, NO_CREDENTIAL, TOKENS_MAX, TokenLocation, judge_certificate, judge_token,
    judge_weight, tokens,
};
pub(crate) use check::{At, Report};
pub use check::{
    BY_MAX, COST_NAME, ENTRIES_MAX, Finding, LEASE_FOR_ON_STORE_MAX, LEASE_LIVES_MAX, Level, NAME_CHARS_MAX,
    ON_STORE_MAX, OVERRIDES_MAX, POLICIES_MAX, RATES_MAX, RULES_MAX, VERSION, WEIGHTS_MAX, check,
};
pub use defaults::{HELD_FOR, KEYS_MAX, LEASE_FOR, LENT_FOR, LENT_MAX};
pub use envoy::{DomainSpec, EntrySpec, HeadersSpec, RuleSpec};
pub use error::{Place, PolicyError};
pub use explain::explain;
pub use import::{Imported, import_envoy};
pub use limits::BUCKETS_DEFAULT;
pub(crate) use load::judge;
pub use load::{ERRORS_MAX, load, parse, text};
pub use model::*;
pub use schema::schema;
pub use span::Span;
pub use tree::{BYTES_MAX, DEPTH_MAX, ITEMS_MAX, NODES_MAX, SCALAR_BYTES_MAX};
