//! Who is known, and how.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::caller::Rights;
use super::grant::Grant;
use super::{AccessSpec, Caller, GrantSpec, Principal, PrincipalSpec, Secret};
use crate::listen::Peer;

/// What can be guessed is no token.
const TOKEN_BYTES_MIN: usize = 16;
/// Principals of one file at the most: each costs a comparison for each request with a token.
pub const PRINCIPALS_MAX: usize = 1_000;

/// The secrets of a server whose file names no principals.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Demanded from everybody who looks at the monitor. Without it only this machine may.
    pub monitor: Option<Secret>,
    /// Demanded from everybody who reserves. Without it only this machine may.
    pub fleet: Option<Secret>,
}

/// Who is known and what they may. Immutable; swapped whole when the file changes.
#[derive(Debug)]
pub struct Access {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Open(Secrets),
    Listed { known: Vec<Known>, anonymous: Arc<[Grant]> },
}

#[derive(Debug)]
struct Known {
    principal: Principal,
    tokens: Vec<Secret>,
    certificate: Option<String>,
    grants: Arc<[Grant]>,
}

/// Why a caller is not let in at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It showed a token that is nobody's.
    WrongToken,
    /// It showed nothing, and who shows nothing may do nothing.
    NoToken,
}

impl Access {
    /// Without a list: whoever reaches a door may use it, but for the monitor and for reserving.
    pub fn open(secrets: Secrets) -> Self {
        Self { kind: Kind::Open(secrets) }
    }

    /// As a file has it, or what is wrong with it. Reads the tokens it refers to.
    pub fn of(spec: &AccessSpec) -> Result<Self, String> {
        if spec.principals.len() > PRINCIPALS_MAX {
            return Err(format!("access: more than {PRINCIPALS_MAX} principals"));
        }
        let anonymous = grants(&spec.anonymous).map_err(|why| format!("access.anonymous: {why}"))?;
        let each = spec.principals.iter().map(|(name, spec)| {
            Known::of(name, spec).map_err(|why| format!("access.principals.{}: {why}", name.escape_debug()))
        });
        let known = each.collect::<Result<Vec<_>, _>>()?;
        unambiguous(&known)?;
        Ok(Self { kind: Kind::Listed { known, anonymous } })
    }

    /// Who sent these headers over this connection.
    pub fn identify(&self, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Caller, Unknown> {
        match &self.kind {
            Kind::Open(secrets) => Ok(secrets.identify(headers, peer)),
            Kind::Listed { known, anonymous } => {
                let token = shown(headers, &["x-monitor-secret", "x-fleet-secret"]);
                listed(known, anonymous, token, peer)
            }
        }
    }

    /// Which proxy sent these headers over this connection. They are its client's, but for the one that is named: what
    /// the client shows to the service behind is not looked at.
    pub fn identify_proxy(
        &self,
        headers: &HeaderMap,
        token: &HeaderName,
        peer: Option<&Peer>,
    ) -> Result<Caller, Unknown> {
        match &self.kind {
            Kind::Open(secrets) => Ok(secrets.identify(&HeaderMap::new(), peer)),
            Kind::Listed { known, anonymous } => listed(known, anonymous, shown_in(headers, token), peer),
        }
    }
}

fn listed(
    known: &[Known],
    anonymous: &Arc<[Grant]>,
    token: Option<Option<Secret>>,
    peer: Option<&Peer>,
) -> Result<Caller, Unknown> {
    let found = if let Some(token) = token {
        Some(token.and_then(|token| by_token(known, &token)).ok_or(Unknown::WrongToken)?)
    } else {
        let names = peer.map(|peer| &*peer.names).unwrap_or_default();
        known.iter().find(|known| known.certificate.as_ref().is_some_and(|mine| names.contains(mine)))
    };
    match found {
        Some(known) => Ok(Caller::new(known.principal.clone(), Rights::Listed(known.grants.clone()))),
        None if anonymous.is_empty() => Err(Unknown::NoToken),
        None => Ok(Caller::new(Principal::anyone(), Rights::Listed(anonymous.clone()))),
    }
}

/// Whose token this is. Every token is looked at, so that the time tells nothing.
fn by_token<'a>(known: &'a [Known], token: &Secret) -> Option<&'a Known> {
    let mut found = u64::MAX;
    for (index, known) in (0_u64..).zip(known) {
        for mine in &known.tokens {
            found.conditional_assign(&index, mine.is(token));
        }
    }
    if found.ct_eq(&u64::MAX).into() { None } else { known.get(usize::try_from(found).ok()?) }
}

/// The secret that headers show: nothing if there is none, `Some(None)` if it makes no sense.
fn shown(headers: &HeaderMap, others: &[&str]) -> Option<Option<Secret>> {
    let names = others.iter().copied().chain([http::header::AUTHORIZATION.as_str()]);
    let mut values = names.flat_map(|name| headers.get_all(name).iter().map(move |value| (name, value)));
    let (name, value) = values.next()?;
    if values.next().is_some() {
        // Two would let one hide behind the other.
        return Some(None);
    }
    let bytes = value.as_bytes();
    if name != "authorization" {
        return Some(Secret::of(bytes));
    }
    let (scheme, token) = bytes.split_at_checked(7).unwrap_or_default();
    Some(scheme.eq_ignore_ascii_case(b"bearer ").then(|| Secret::of(token.trim_ascii())).flatten())
}

/// The same for a header that holds the token alone.
fn shown_in(headers: &HeaderMap, name: &HeaderName) -> Option<Option<Secret>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    // Two would let one hide behind the other.
    Some(if values.next().is_none() { Secret::of(value.as_bytes().trim_ascii()) } else { None })
}

impl Secrets {
    fn identify(&self, headers: &HeaderMap, peer: Option<&Peer>) -> Caller {
        let is_local = peer.is_some_and(Peer::is_loopback);
        let shows = |secret: &Option<Secret>, header: &str| match secret {
            None => is_local,
            Some(secret) => shown(headers, &[header]).flatten().is_some_and(|token| secret.is(&token).into()),
        };
        let monitor = shows(&self.monitor, "x-monitor-secret");
        let reserve = shows(&self.fleet, "x-fleet-secret");
        let name = peer.and_then(|peer| peer.names.first());
        let principal = name.map_or_else(Principal::anyone, |name| Principal::named(name));
        Caller::new(principal, Rights::Open { monitor, reserve })
    }
}

impl Known {
    fn of(name: &str, spec: &PrincipalSpec) -> Result<Self, String> {
        if name.is_empty() {
            return Err("a principal needs a name".into());
        }
        let mut tokens = Vec::new();
        if let Some(digits) = &spec.token_sha256 {
            tokens.push(judge_digest(digits)?);
        }
        for (_, token) in referred(spec) {
            tokens.push(token?);
        }
        let certificate = spec.certificate.as_deref().map(judge_certificate).transpose()?;
        if tokens.is_empty() && certificate.is_none() {
            return Err(
                "nobody can be known as it: give token_sha256, token_file, token_env or certificate".into()
            );
        }
        Ok(Self { principal: Principal::named(name), tokens, certificate, grants: grants(&spec.allow)? })
    }
}

/// The tokens that stand elsewhere, by the field that says where.
fn referred(spec: &PrincipalSpec) -> impl Iterator<Item = (&'static str, Result<Secret, String>)> {
    let file = spec.token_file.as_ref();
    let file = file.map(|path| ("token_file", Secret::read_file(Path::new(path), TOKEN_BYTES_MIN)));
    let env = spec.token_env.as_ref();
    let env = env.map(|variable| ("token_env", Secret::read_env(variable, TOKEN_BYTES_MIN)));
    file.into_iter().chain(env)
}

/// Which secrets of a principal cannot be read here and now, and why.
pub(crate) fn unreadable(spec: &PrincipalSpec) -> impl Iterator<Item = (&'static str, String)> {
    referred(spec).filter_map(|(way, token)| Some((way, token.err()?)))
}

/// The token of this digest.
pub(crate) fn judge_digest(digits: &str) -> Result<Secret, String> {
    Secret::of_digest(digits).ok_or_else(|| "token_sha256 is not 64 hexadecimal digits".into())
}

/// The name of a certificate as it is compared.
pub(crate) fn judge_certificate(name: &str) -> Result<String, String> {
    if let Some(host) = name.strip_prefix("dns:") {
        return Ok(format!("dns:{}", host.to_ascii_lowercase()));
    }
    if name.contains("://") {
        return Ok(name.into());
    }
    Err(format!(
        "certificate `{}` is neither `dns:host` nor a URI such as `spiffe://mesh/name`",
        name.escape_debug()
    ))
}

fn grants(specs: &[GrantSpec]) -> Result<Arc<[Grant]>, String> {
    specs.iter().map(Grant::of).collect()
}

/// Refuses lists in which one caller would be two.
fn unambiguous(known: &[Known]) -> Result<(), String> {
    let mut certificates = HashSet::new();
    let mut tokens: Vec<(&Secret, &Principal)> = Vec::new();
    for one in known {
        if one.certificate.as_ref().is_some_and(|name| !certificates.insert(name)) {
            return Err(format!("access: `{}` has the certificate of another", one.principal.name()));
        }
        for token in &one.tokens {
            if tokens.iter().any(|(other, whose)| **whose != one.principal && bool::from(other.is(token))) {
                return Err(format!("access: `{}` has the token of another", one.principal.name()));
            }
            tokens.push((token, &one.principal));
        }
    }
    Ok(())
}
