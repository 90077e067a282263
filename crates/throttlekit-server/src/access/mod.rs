//! Authentication and authorization of callers.

mod access_list;
mod audit;
mod caller;
mod certificate;
mod identify;
mod principals;
mod refusals;
mod secret;
mod secret_cache;
mod secret_check;

pub use crate::principal::Principal;
pub use access_list::{Access, AuthError, Secrets};
pub(crate) use access_list::{Built, Changes, credentials};
pub(crate) use audit::MonitorLog;
pub use caller::Caller;
pub(crate) use identify::is_open;
pub use identify::{Identified, Identify, PROXY_TOKEN};
pub(crate) use principals::sources;
pub(crate) use refusals::Refusals;
pub use secret::Secret;
pub(crate) use secret_cache::{GRACE, SecretCache, read as read_secrets};
pub use secret_check::judge_secrets;

#[cfg(test)]
mod tests;
