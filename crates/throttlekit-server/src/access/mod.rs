//! Who may ask what: how callers are known, and what each may use.

mod caller;
mod grant;
mod identify;
mod known;
mod principal;
mod secret;
mod spec;

pub use caller::{Caller, Door};
pub use identify::{Identified, Identify};
pub use known::{Access, Secrets, Unknown};
pub use principal::Principal;
pub use secret::Secret;
pub use spec::{AccessSpec, GrantSpec, PrincipalSpec};

#[cfg(test)]
mod tests;
