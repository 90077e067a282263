//! Authentication and authorization of callers.

mod audit;
mod caller;
mod certificate;
mod held;
mod identify;
mod known;
mod principals;
mod refusals;
mod secret;
mod secret_check;

pub(crate) use audit::MonitorLog;
pub use caller::Caller;
pub(crate) use held::{GRACE, Held, read as read_secrets};
pub(crate) use identify::is_open;
pub use identify::{Identified, Identify, PROXY_TOKEN};
pub use known::{Access, Secrets, Unknown};
pub(crate) use known::{Built, Changes};
pub use crate::principal::Principal;
pub(crate) use principals::sources;
pub(crate) use refusals::Refusals;
pub use secret::Secret;
pub use secret_check::judge_secrets;

#[cfg(test)]
mod tests;
