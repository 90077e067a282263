//! The access list: known callers and how they are identified.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use throttlekit::clock::{Clock, WallClock};

use super::caller::{Allowed, Rights};
use super::principals::{self, Principals};
use super::refusals::{Reason, Refusals};
use super::secret::{Head, Source};
use super::secret_cache::{self, SecretCache};
use super::{Caller, Principal, Secret};
use crate::listen::Peer;
use crate::policy::{AccessSpec, PrincipalSpec, tokens};
use crate::server_error::ServerError;

/// Secrets of a server whose file names no principals. Those that were read from files are reloaded while the server
/// runs.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Secret that the monitor requires. Without it nobody may use the monitor, or only this machine.
    pub monitor: Option<Secret>,
    /// Secret that reservations require. Without it nobody may reserve, or only this machine.
    pub fleet: Option<Secret>,
    /// Exempts callers on this machine from a secret that is not configured. Behind a proxy on the same machine, such
    /// as that of a service mesh, every caller is on this machine. Default: false.
    pub trust_loopback: bool,
}

/// Known callers and their rights. Immutable; replaced as a whole when the file or a secret changes.
#[derive(Debug)]
pub struct Access {
    kind: Kind,
    refusals: Arc<Refusals>,
}

#[derive(Debug)]
enum Kind {
    Open { monitor: Demand, reserve: Demand },
    Listed { principals: Principals, anonymous: Arc<Allowed> },
}

/// Requirement for a caller if the file lists nobody.
#[derive(Debug)]
enum Demand {
    Secret(Secret),
    Loopback,
    /// No credential suffices.
    Never,
}

/// The reason why a caller is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthError {
    /// The token belongs to nobody.
    WrongToken,
    /// The token has expired.
    ExpiredToken,
    /// There is no token, and anonymous callers have no rights.
    NoToken,
}

impl AuthError {
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::WrongToken => Reason::WrongToken,
            Self::ExpiredToken => Reason::ExpiredToken,
            Self::NoToken => Reason::NoToken,
        }
    }
}

impl Access {
    /// Creates an open list: every caller may use every API, except for the monitor and reservations.
    pub fn open(secrets: Secrets) -> Self {
        let Secrets { monitor, fleet, trust_loopback } = secrets;
        let demand = |secret: Option<Secret>| match secret {
            Some(secret) => Demand::Secret(secret),
            None if trust_loopback => Demand::Loopback,
            None => Demand::Never,
        };
        let kind = Kind::Open { monitor: demand(monitor), reserve: demand(fleet) };
        Self { kind, refusals: Arc::default() }
    }

    /// Builds the list of a file. Reads the tokens that it refers to; a token that cannot be read is an error.
    pub fn of(spec: &AccessSpec) -> Result<Self, ServerError> {
        let held = SecretCache::of(secret_cache::read(principals::sources(spec)));
        let built = Self::build(Some(spec), &Secrets::default(), &held, &Arc::default())?;
        built.whole()
    }

    /// Builds the list of a file, or an open list with the secrets if the file lists nobody. Takes secrets from `held`.
    pub(crate) fn build(
        spec: Option<&AccessSpec>,
        secrets: &Secrets,
        held: &SecretCache,
        refusals: &Arc<Refusals>,
    ) -> Result<Built, ServerError> {
        let (refusals, mut failing) = (refusals.clone(), Vec::new());
        let kind = match spec {
            Some(spec) => {
                let anonymous = Allowed::of(Principal::anyone(), &spec.anonymous, &refusals)
                    .map_err(|why| ServerError::access(format!("access.anonymous: {why}")))?;
                let principals =
                    Principals::build(spec, held, &refusals, &mut failing).map_err(ServerError::access)?;
                Kind::Listed { principals, anonymous: anonymous.into() }
            }
            None => Self::open(secrets.clone()).kind.held_by(held, &mut failing),
        };
        Ok(Built { access: Self { kind, refusals }, failing })
    }

    /// Identifies the caller that sent these headers over this connection.
    pub fn identify(&self, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Caller, AuthError> {
        self.identify_at(headers, peer, &WallClock)
    }

    /// Identifies a caller by this clock, which is read only if the token expires.
    pub(super) fn identify_at(
        &self,
        headers: &HeaderMap,
        peer: Option<&Peer>,
        clock: &impl Clock,
    ) -> Result<Caller, AuthError> {
        match &self.kind {
            Kind::Open { monitor, reserve } => Ok(self.unlisted(monitor, reserve, headers, peer)),
            Kind::Listed { principals, anonymous } => {
                let token = shown(headers, &["x-monitor-secret", "x-fleet-secret"]);
                listed(principals, anonymous, token, peer, clock)
            }
        }
    }

    /// Identifies the proxy that sent these headers over this connection. All headers but the named one are those of
    /// its client: the client's credentials for the upstream service are ignored.
    pub fn identify_proxy(
        &self,
        headers: &HeaderMap,
        token: &HeaderName,
        peer: Option<&Peer>,
    ) -> Result<Caller, AuthError> {
        match &self.kind {
            Kind::Open { monitor, reserve } => Ok(self.unlisted(monitor, reserve, &HeaderMap::new(), peer)),
            Kind::Listed { principals, anonymous } => {
                listed(principals, anonymous, shown_in(headers, token), peer, &WallClock)
            }
        }
    }

    /// Identifies the caller of a connection by the token that it sent, if any, and by its certificate otherwise. For
    /// APIs without headers.
    pub(crate) fn identify_connection(
        &self,
        token: Option<&Secret>,
        peer: &Peer,
    ) -> Result<Caller, AuthError> {
        match &self.kind {
            Kind::Open { monitor, reserve } => {
                Ok(self.unlisted(monitor, reserve, &HeaderMap::new(), Some(peer)))
            }
            Kind::Listed { principals, anonymous } => {
                listed(principals, anonymous, token.map(|token| Some(token.clone())), Some(peer), &WallClock)
            }
        }
    }

    /// Checks whether it lists principals. If not, tokens are ignored.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(self.kind, Kind::Listed { .. })
    }

    /// Counts a caller that was not authenticated.
    pub(crate) fn note_unknown(&self, error: AuthError, peer: &Peer, what: &str) {
        self.refusals.note(error.reason(), Some(peer.address), "", what);
    }

    fn unlisted(
        &self,
        monitor: &Demand,
        reserve: &Demand,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Caller {
        let monitor = monitor.is_met(headers, "x-monitor-secret", peer);
        let reserve = reserve.is_met(headers, "x-fleet-secret", peer);
        let name = peer.and_then(|peer| peer.names.first());
        let principal = name.map_or_else(Principal::anyone, |name| Principal::named(name));
        let refusals = self.refusals.clone();
        Caller::new(Rights::Open { principal, monitor, reserve, refusals }, peer)
    }

    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Returns the difference from an earlier list, by names of principals.
    pub(crate) fn changes_since(&self, before: &Self) -> Changes {
        let (then, now) = (before.kind.holders(), self.kind.holders());
        let mut changes = Changes::default();
        for (name, heads) in &now {
            match then.get(name) {
                None => changes.added.note(name),
                Some(had) if heads.is_subset(had) => {}
                Some(_) => changes.issued.note(name),
            }
        }
        for (name, had) in &then {
            match now.get(name) {
                None => changes.removed.note(name),
                Some(heads) if had.is_subset(heads) => {}
                Some(_) => changes.revoked.note(name),
            }
        }
        changes
    }
}

/// A list that can be applied, and what it lacks.
pub(crate) struct Built {
    pub(crate) access: Access,
    /// Tokens and secrets that cannot be used now, each with its location and the reason.
    pub(crate) failing: Vec<String>,
}

impl Built {
    /// Returns the list if it lacks nothing.
    pub(crate) fn whole(self) -> Result<Access, ServerError> {
        self.failing.into_iter().next().map_or(Ok(self.access), |why| Err(ServerError::access(why)))
    }
}

/// The difference between two lists.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Principals that are new.
    pub(crate) added: Names,
    /// Principals that were removed.
    pub(crate) removed: Names,
    /// Principals with a new token.
    pub(crate) issued: Names,
    /// Principals that lost a token.
    pub(crate) revoked: Names,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        [&self.added, &self.removed, &self.issued, &self.revoked].iter().all(|names| names.count == 0)
    }
}

/// Names for a log line: the first few, and the total number.
#[derive(Default)]
pub(crate) struct Names {
    first: Vec<String>,
    count: usize,
}

impl Names {
    const SHOWN_MAX: usize = 20;

    fn note(&mut self, name: &str) {
        self.count += 1;
        if self.first.len() < Self::SHOWN_MAX {
            self.first.push(name.to_owned());
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl Kind {
    /// Replaces the secrets by those of the cache. If a secret is missing, nobody has access, not even this machine.
    fn held_by(self, held: &SecretCache, failing: &mut Vec<String>) -> Self {
        let Self::Open { monitor, reserve } = self else { return self };
        let mut again = |demand: Demand, what: &str| match &demand {
            Demand::Secret(secret) => match secret.source().map(|source| held.get(&source)) {
                None => demand,
                Some(Ok(secret)) => Demand::Secret(secret.clone()),
                Some(Err(why)) => {
                    failing.push(format!("the {what} secret: {why}"));
                    Demand::Never
                }
            },
            _ => demand,
        };
        Self::Open { monitor: again(monitor, "monitor"), reserve: again(reserve, "fleet") }
    }

    fn holders(&self) -> BTreeMap<&str, BTreeSet<Head>> {
        match self {
            Self::Listed { principals, .. } => principals.holders(),
            Self::Open { monitor, reserve } => {
                let heads = |demand: &Demand| match demand {
                    Demand::Secret(secret) => BTreeSet::from([secret.head()]),
                    _ => BTreeSet::new(),
                };
                BTreeMap::from([("monitor secret", heads(monitor)), ("fleet secret", heads(reserve))])
            }
        }
    }
}

impl Demand {
    fn is_met(&self, headers: &HeaderMap, header: &str, peer: Option<&Peer>) -> bool {
        match self {
            Self::Secret(secret) => {
                shown(headers, &[header]).flatten().is_some_and(|token| secret.is(&token).into())
            }
            Self::Loopback => peer.is_some_and(Peer::is_loopback),
            Self::Never => false,
        }
    }
}

impl Secrets {
    /// Returns the sources from which the secrets are reloaded.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Source> {
        [&self.monitor, &self.fleet].into_iter().flatten().filter_map(Secret::source)
    }
}

fn listed(
    principals: &Principals,
    anonymous: &Arc<Allowed>,
    token: Option<Option<Secret>>,
    peer: Option<&Peer>,
    clock: &impl Clock,
) -> Result<Caller, AuthError> {
    let found = match token {
        Some(token) => Some(principals.by_token(&token.ok_or(AuthError::WrongToken)?, clock)?),
        None => peer.and_then(|peer| principals.by_certificate(&peer.names)),
    };
    let allowed = match found {
        Some(allowed) => allowed,
        None if anonymous.is_empty() => return Err(AuthError::NoToken),
        None => anonymous,
    };
    Ok(Caller::new(Rights::Listed(allowed.clone()), peer))
}

/// Returns the secret in the headers: `None` if there is none, `Some(None)` if it is malformed.
fn shown(headers: &HeaderMap, others: &[&str]) -> Option<Option<Secret>> {
    let names = others.iter().copied().chain([http::header::AUTHORIZATION.as_str()]);
    let mut values = names.flat_map(|name| headers.get_all(name).iter().map(move |value| (name, value)));
    let (name, value) = values.next()?;
    if values.next().is_some() {
        // Two headers would let one hide the other.
        return Some(None);
    }
    let bytes = value.as_bytes();
    Some(if name == "authorization" { Secret::bearer(bytes) } else { Secret::of(bytes) })
}

/// Returns the headers by which [`Access::identify`] identifies a caller, for requests that outlast their headers.
pub(crate) fn credentials(headers: &HeaderMap) -> HeaderMap {
    let names = [http::header::AUTHORIZATION.as_str(), "x-monitor-secret", "x-fleet-secret"];
    let kept = headers.iter().filter(|(name, _)| names.contains(&name.as_str()));
    // Appended, as two headers of one name identify nobody.
    let mut credentials = HeaderMap::new();
    for (name, value) in kept {
        credentials.append(name, value.clone());
    }
    credentials
}

/// Returns the secret in a header that holds the token alone.
fn shown_in(headers: &HeaderMap, name: &HeaderName) -> Option<Option<Secret>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    // Two headers would let one hide the other.
    Some(if values.next().is_none() { Secret::of(value.as_bytes().trim_ascii()) } else { None })
}

/// Returns the secrets of a principal that cannot be used here and now, as the field that locates them and the reason.
pub(crate) fn unusable(spec: &PrincipalSpec) -> impl Iterator<Item = (String, String)> {
    tokens(spec).filter_map(|token| {
        let over = || token.judge().ok().flatten().is_some_and(|expires| WallClock.now() >= expires);
        match Source::of(&token).map(|source| source.read()) {
            Some(Err(why)) => Some((token.field, why)),
            _ if over() => Some((token.field, "this token has expired: replace it".into())),
            _ => None,
        }
    })
}
