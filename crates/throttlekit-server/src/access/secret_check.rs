//! Checks of the secrets that a policy file refers to.

use super::Access;
use super::access_list::unusable;
use crate::policy::{self, At, PolicyError, PolicyFile, Report};

/// Reads the secrets that a valid file refers to, as a server would here and now, and returns the errors.
pub fn judge_secrets(text: &str) -> Result<(), Vec<PolicyError>> {
    policy::judge(text, check)
}

fn check(file: &PolicyFile, report: &mut Report) {
    let principals = At::key("access").then("principals");
    for (name, principal) in file.access.iter().flat_map(|access| &access.principals) {
        for (field, why) in unusable(principal) {
            report.error(&principals.named(name).then(&field), why);
        }
    }
    if report.findings.is_empty()
        && let Some(Err(why)) = file.access.as_ref().map(Access::of)
    {
        report.error(&At::key("access"), why.to_string());
    }
}
