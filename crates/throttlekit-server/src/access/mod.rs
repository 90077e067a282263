//! Who may ask what: how callers are known, and what each may use.

mod caller;
mod grant;
mod identify;
mod known;
mod principal;
mod secret;
mod spec;

pub use caller::{Caller, Door};
pub(crate) use grant::judge as judge_grant;
pub(crate) use identify::is_open;
pub use identify::{Identified, Identify, PROXY_TOKEN};
pub use known::{Access, PRINCIPALS_MAX, Secrets, Unknown};
pub(crate) use known::{judge_certificate, judge_digest, unreadable};
pub use principal::Principal;
pub use secret::Secret;
pub use spec::{AccessSpec, GrantSpec, PrincipalSpec};

#[cfg(test)]
mod tests;
