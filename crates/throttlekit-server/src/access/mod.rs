//! Who may ask what: how callers are known, and what each may use.

mod audit;
mod caller;
mod certificate;
mod grant;
mod held;
mod identify;
mod known;
mod principal;
mod principals;
mod refusals;
mod secret;
mod spec;
mod token;

pub(crate) use audit::{AUDIT, MonitorLog};
pub use caller::{Caller, Door};
pub(crate) use certificate::judge_certificate;
pub(crate) use grant::judge as judge_grant;
pub(crate) use held::{GRACE, Held, read as read_secrets};
pub(crate) use identify::is_open;
pub use identify::{Identified, Identify, PROXY_TOKEN};
pub use known::{Access, Secrets, Unknown};
pub(crate) use known::{Built, Changes, unusable};
pub use principal::Principal;
pub use principals::PRINCIPALS_MAX;
pub(crate) use principals::{NO_CREDENTIAL, judge_weight, sources};
pub(crate) use refusals::Refusals;
pub use secret::Secret;
pub use spec::{AccessSpec, GrantSpec, PrincipalSpec, TokenSpec};
pub(crate) use token::{Kept, TOKENS_MAX, judge_token, tokens};

#[cfg(test)]
mod tests;
