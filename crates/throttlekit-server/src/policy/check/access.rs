//! Checks of the access list: credentials that can work, and policies that exist.

use std::collections::HashMap;

use super::super::access::{
    Grant, GrantSpec, NO_CREDENTIAL, PRINCIPALS_MAX, PrincipalSpec, TOKENS_MAX, TokenLocation,
    judge_certificate, judge_token, judge_weight, tokens,
};
use super::super::error::did_you_mean;
use super::super::model::PolicyFile;
use super::super::tree::shown;
use super::{At, Report};

/// Maximum number of findings with a search for what was meant.
const HINTS_MAX: usize = 5;

/// Checks everything that can be checked without reading a secret.
pub(super) fn check(file: &PolicyFile, report: &mut Report) {
    let Some(access) = &file.access else { return };
    let at = At::key("access");
    let principals = at.then("principals");
    if access.principals.len() > PRINCIPALS_MAX {
        let has = access.principals.len();
        return report.error(&principals, format!("{has} principals: at most {PRINCIPALS_MAX} are allowed"));
    }
    if access.principals.is_empty() && access.anonymous.is_empty() {
        report.warning(
            &at,
            "`access` is empty, so every request is rejected: list principals, or remove `access`",
        );
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
    for token in tokens(principal) {
        if let Err(why) = token.judge() {
            report.error(&at.then(&token.field), why);
        }
    }
    let listed = at.then("tokens");
    if principal.tokens.len() > TOKENS_MAX {
        let has = principal.tokens.len();
        report.error(
            &listed,
            format!("{has} tokens: at most {TOKENS_MAX} are allowed, the old and the new one"),
        );
    }
    for (index, token) in principal.tokens.iter().enumerate() {
        if let Err(why) = judge_token(token) {
            report.error(&listed.index(index), why);
        }
    }
    if let Some(Err(why)) = principal.certificate.as_deref().map(judge_certificate) {
        report.error(&at.then("certificate"), why);
    }
    if let Err(why) = judge_weight(principal.weight) {
        report.error(&at.then("weight"), why);
    }
    if tokens(principal).next().is_none() && principal.tokens.is_empty() && principal.certificate.is_none() {
        report.error(at, NO_CREDENTIAL);
    }
    if principal.allow.is_empty() {
        report.warning(at, "the principal has no rights: add grants to `allow`");
    }
}

/// Credential of a caller, which may belong to one name only.
#[derive(PartialEq, Eq, Hash)]
enum Shows<'f> {
    Digest(String),
    Kept(TokenLocation<'f>),
    Certificate(String),
}

/// Checks that each credential belongs to one principal only.
fn known_once<'f>(
    at: &At,
    name: &'f str,
    principal: &'f PrincipalSpec,
    seen: &mut HashMap<Shows<'f>, &'f str>,
    report: &mut Report,
) {
    let shown_tokens = tokens(principal).map(|token| match token.location() {
        // The same digits in upper case are the same digest.
        TokenLocation::Digest(digits) => (token.field, Shows::Digest(digits.to_ascii_lowercase())),
        location => (token.field, Shows::Kept(location)),
    });
    let certificate = principal.certificate.as_deref().and_then(|name| judge_certificate(name).ok());
    let certificate = certificate.map(|name| ("certificate".to_owned(), Shows::Certificate(name)));
    for (field, shows) in shown_tokens.chain(certificate) {
        if let Some(other) = seen.insert(shows, name).filter(|other| *other != name) {
            let message =
                format!("`{}` has the same credential: a caller is exactly one principal", shown(other));
            report.error(&at.then(&field), message);
        }
    }
}

fn grants(at: &At, grants: &[GrantSpec], file: &PolicyFile, report: &mut Report) {
    for (index, grant) in grants.iter().enumerate() {
        let at = at.index(index);
        if let Err(why) = Grant::of(grant) {
            report.error(&at, why);
            continue;
        }
        for (index, name) in grant.policies.iter().flatten().enumerate() {
            fits_some(&at.then("policies").index(index), name, file, report);
        }
    }
}

/// Warns about a name without a policy. Not an error, since a list may be written before its policies: it allows less
/// than it seems to.
fn fits_some(at: &At, name: &str, file: &PolicyFile, report: &mut Report) {
    if let Some(beginning) = name.strip_suffix('*') {
        let next = file.policies.range(beginning.to_owned()..).next();
        if !next.is_some_and(|(policy, _)| policy.starts_with(beginning)) {
            report.warning(at, format!("no policy starts with `{}`", shown(beginning)));
        }
    } else if !file.policies.contains_key(name) {
        let names = file.policies.keys().map(String::as_str);
        let hint = if report.findings.len() < HINTS_MAX { did_you_mean(name, names) } else { String::new() };
        report.warning(at, format!("unknown policy `{}`{hint}", shown(name)));
    }
}
