//! Policies as people write them: YAML in, a checked description out.
//!
//! [`load`](load()) does all of it: it [parses](parse) a file, checks its meaning, and tries each limit.
//! [`explain`](explain()) describes what a file allows, and [`schema`](schema()) describes the format to editors.

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

use shape::{OneOrMany, one_or_many, one_or_many_indexes};

pub use access::{AccessSpec, Endpoint, GrantSpec, PrincipalSpec, TokenSpec};
pub use check::{Finding, Severity};
pub use envoy::{DomainSpec, EntrySpec, HeadersSpec, RuleSpec};
pub use error::{Place, PolicyError};
pub use explain::explain;
pub use load::{load, parse};
pub use model::*;
pub use schema::schema;
pub use span::Span;

// For the command and for fuzzing.
#[doc(hidden)]
pub use access::PRINCIPALS_MAX;
#[doc(hidden)]
pub use check::{
    BY_MAX, COST_NAME, ENTRIES_MAX, LEASE_FOR_ON_STORE_MAX, LEASE_LIVES_MAX, NAME_CHARS_MAX, ON_STORE_MAX,
    OVERRIDES_MAX, POLICIES_MAX, RATES_MAX, RULES_MAX, VERSION, WEIGHTS_MAX, check,
};
#[doc(hidden)]
pub use defaults::{HELD_FOR, KEYS_MAX, LEASE_FOR, LENT_FOR, LENT_MAX};
#[doc(hidden)]
pub use import::{EnvoyImport, Imported, LimitersImport, import_envoy, import_limiters};
#[doc(hidden)]
pub use limits::BUCKETS_DEFAULT;
#[doc(hidden)]
pub use load::{ERRORS_MAX, text};
#[doc(hidden)]
pub use tree::{BYTES_MAX, DEPTH_MAX, ITEMS_MAX, NODES_MAX, SCALAR_BYTES_MAX};

pub(crate) use access::{
    Grant, ListedToken, NO_CREDENTIAL, TOKENS_MAX, TokenLocation, judge_certificate, judge_token,
    judge_weight, tokens,
};
pub(crate) use check::{At, Report};
pub(crate) use load::judge;
