//! Who may ask: ways to be known that can work, and policies that exist.

use std::collections::HashMap;

use super::super::error::did_you_mean;
use super::super::model::PolicyFile;
use super::super::tree::shown;
use super::{At, Report};
use crate::access::{GrantSpec, PRINCIPALS_MAX, PrincipalSpec, judge_certificate, judge_digest, judge_grant};

/// So many findings are worth the search for what was meant.
const HINTS_MAX: usize = 5;

/// All that can be said without looking at a secret.
pub(super) fn check(file: &PolicyFile, report: &mut Report) {
    let Some(access) = &file.access else { return };
    let at = At::key("access");
    let principals = at.then("principals");
    if access.principals.len() > PRINCIPALS_MAX {
        let has = access.principals.len();
        return report
            .error(&principals, format!("{has} principals, and at most {PRINCIPALS_MAX} are known"));
    }
    if access.principals.is_empty() && access.anonymous.is_empty() {
        report.warning(&at, "nobody is listed, so nobody may ask anything: name principals, or leave it out");
    }
    grants(&at.then("anonymous"), &access.anonymous, file, report);
    let mut seen = HashMap::new();
    for (name, principal) in &access.principals {
        let at = principals.named(name);
        one_principal(&at, name, principal, report);
        known_once(&at, name, principal, &mut seen, report);
        grants(&at.then("allow"), &principal.allow, file, report);
    }
}

fn one_principal(at: &At, name: &str, principal: &PrincipalSpec, report: &mut Report) {
    if name.is_empty() {
        report.error(at, "a principal needs a name");
    }
    let PrincipalSpec { token_sha256, token_file, token_env, certificate, allow } = principal;
    if let Some(Err(why)) = token_sha256.as_deref().map(judge_digest) {
        report.error(&at.then("token_sha256"), why);
    }
    if let Some(Err(why)) = certificate.as_deref().map(judge_certificate) {
        report.error(&at.then("certificate"), why);
    }
    if [token_sha256, token_file, token_env, certificate].into_iter().all(Option::is_none) {
        let message = "nobody can be known as it: give token_sha256, token_file, token_env or certificate";
        report.error(at, message);
    }
    if allow.is_empty() {
        report.warning(at, "it may do nothing: say what in `allow`");
    }
}

/// One caller is one principal: what it shows may stand below one name only.
fn known_once<'f>(
    at: &At,
    name: &'f str,
    principal: &'f PrincipalSpec,
    seen: &mut HashMap<(&'static str, String), &'f str>,
    report: &mut Report,
) {
    let ways = [
        ("token_sha256", principal.token_sha256.as_deref().map(str::to_ascii_lowercase)),
        ("token_file", principal.token_file.clone()),
        ("token_env", principal.token_env.clone()),
        ("certificate", principal.certificate.as_deref().and_then(|name| judge_certificate(name).ok())),
    ];
    for (way, shows) in ways {
        let Some(shows) = shows else { continue };
        if let Some(other) = seen.insert((way, shows), name) {
            let message = format!("it is that of `{}` too: a caller is one principal", shown(other));
            report.error(&at.then(way), message);
        }
    }
}

fn grants(at: &At, grants: &[GrantSpec], file: &PolicyFile, report: &mut Report) {
    for (index, grant) in grants.iter().enumerate() {
        let at = at.index(index);
        if let Err(why) = judge_grant(grant) {
            report.error(&at, why);
            continue;
        }
        for (index, name) in grant.policies.iter().flatten().enumerate() {
            fits_some(&at.then("policies").index(index), name, file, report);
        }
    }
}

/// A list may be written before its policies are, so this is no error: it only allows less than it seems to.
fn fits_some(at: &At, name: &str, file: &PolicyFile, report: &mut Report) {
    if let Some(beginning) = name.strip_suffix('*') {
        let next = file.policies.range(beginning.to_owned()..).next();
        if !next.is_some_and(|(policy, _)| policy.starts_with(beginning)) {
            report.warning(at, format!("no policy begins with `{}`", shown(beginning)));
        }
    } else if !file.policies.contains_key(name) {
        let names = file.policies.keys().map(String::as_str);
        let hint = if report.findings.len() < HINTS_MAX { did_you_mean(name, names) } else { String::new() };
        report.warning(at, format!("no policy is named `{}`{hint}", shown(name)));
    }
}

/// What is wrong with secrets that a file refers to: each is read.
pub(super) fn check_secrets(file: &PolicyFile, report: &mut Report) {
    let principals = At::key("access").then("principals");
    for (name, principal) in file.access.iter().flat_map(|access| &access.principals) {
        for (way, why) in crate::access::unreadable(principal) {
            report.error(&principals.named(name).then(way), why);
        }
    }
    if report.findings.is_empty()
        && let Some(Err(why)) = file.access.as_ref().map(crate::access::Access::of)
    {
        report.error(&At::key("access"), why);
    }
}
