//! The principals of a file, found by their credentials.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use throttlekit::clock::Clock;
use throttlekit::rate::Timestamp;

use super::caller::Allowed;
use super::certificate::Certificates;
use super::refusals::Refusals;
use super::secret::{Head, Source};
use super::secret_cache::SecretCache;
use super::{AuthError, Principal, Secret};
use crate::policy::{
    AccessSpec, ListedToken, NO_CREDENTIAL, PRINCIPALS_MAX, PrincipalSpec, TOKENS_MAX, TokenLocation,
    judge_certificate, judge_token, judge_weight, tokens,
};

/// The principals of a file. One lookup finds each, however many there are.
#[derive(Debug, Default)]
pub(super) struct Principals {
    known: Vec<Arc<Allowed>>,
    by_token: HashMap<Head, Token>,
    by_certificate: Certificates,
}

#[derive(Debug)]
struct Token {
    secret: Secret,
    expires: Option<Timestamp>,
    /// `None` if several principals have it, so that it identifies nobody.
    whose: Option<Arc<Allowed>>,
}

/// Returns the sources outside the file that hold tokens of its principals.
pub(crate) fn sources(spec: &AccessSpec) -> impl Iterator<Item = Source> {
    spec.principals.values().flat_map(tokens).filter_map(|token| Source::of(&token))
}

impl Principals {
    /// Builds the tables of a list. A list that is invalid whatever its secrets are is an error; a token that cannot be
    /// used now is left out, and added to `failing` with the reason.
    pub(super) fn build(
        spec: &AccessSpec,
        held: &SecretCache,
        refusals: &Arc<Refusals>,
        failing: &mut Vec<String>,
    ) -> Result<Self, String> {
        if spec.principals.len() > PRINCIPALS_MAX {
            return Err(format!("access: more than {PRINCIPALS_MAX} principals"));
        }
        let mut all = Self::default();
        for (name, spec) in &spec.principals {
            let at = |why: String| format!("access.principals.{}: {why}", name.escape_debug());
            judge(name, spec).map_err(at)?;
            let allowed = Allowed::of(Principal::named(name), &spec.allow, refusals).map_err(at)?;
            let allowed = Arc::new(allowed.weighing(judge_weight(spec.weight).map_err(at)?));
            if let Some(name) = spec.certificate.as_deref().map(judge_certificate).transpose().map_err(at)? {
                all.add_certificate(name).map_err(at)?;
            }
            for token in tokens(spec) {
                let expires = token.judge().map_err(at)?;
                let added = secret(&token, held).and_then(|secret| all.add_token(secret, expires, &allowed));
                failing.extend(added.err().map(|why| at(format!("{}: {why}", token.field))));
            }
            all.known.push(allowed);
        }
        Ok(all)
    }

    /// Adds a certificate name of the principal that is added next.
    fn add_certificate(&mut self, name: String) -> Result<(), String> {
        let other =
            self.by_certificate.insert(name, self.known.len()).and_then(|other| self.known.get(other));
        match other {
            Some(other) => Err(format!("duplicate certificate, also of `{}`", other.name().escape_debug())),
            None => Ok(()),
        }
    }

    /// Adds a token of a principal. A token of two principals identifies nobody: its caller could be either.
    fn add_token(
        &mut self,
        secret: Secret,
        expires: Option<Timestamp>,
        whose: &Arc<Allowed>,
    ) -> Result<(), String> {
        let token = match self.by_token.entry(secret.head()) {
            Entry::Vacant(place) => {
                place.insert(Token { secret, expires, whose: Some(whose.clone()) });
                return Ok(());
            }
            Entry::Occupied(place) => place.into_mut(),
        };
        if token.whose.as_ref().is_some_and(|other| Arc::ptr_eq(other, whose)) {
            // Listed twice: the later expiry applies.
            token.expires = token.expires.zip(expires).map(|(a, b)| a.max(b));
            return Ok(());
        }
        let other = token.whose.take();
        let of = other.map_or_else(String::new, |other| format!(": `{}`", other.name().escape_debug()));
        Err(format!("duplicate token, also of another principal{of}: the token is rejected"))
    }

    /// Returns the principal with this token. The time of the lookup depends on half of a digest, which nobody can
    /// steer toward that of a token they do not have; the final comparison takes constant time.
    pub(super) fn by_token(&self, shown: &Secret, clock: &impl Clock) -> Result<&Arc<Allowed>, AuthError> {
        let found = self.by_token.get(&shown.head()).filter(|token| token.secret.is(shown).into());
        let token = found.ok_or(AuthError::WrongToken)?;
        let whose = token.whose.as_ref().ok_or(AuthError::WrongToken)?;
        match token.expires {
            Some(expires) if clock.now() >= expires => Err(AuthError::ExpiredToken),
            _ => Ok(whose),
        }
    }

    /// Returns the principal of a certificate with these names.
    pub(super) fn by_certificate(&self, names: &[String]) -> Option<&Arc<Allowed>> {
        self.known.get(self.by_certificate.find(names)?)
    }

    /// Returns the tokens of each principal, by the part of the digest that tables are indexed by.
    pub(super) fn holders(&self) -> BTreeMap<&str, BTreeSet<Head>> {
        let mut holders: BTreeMap<_, _> =
            self.known.iter().map(|known| (known.name(), BTreeSet::new())).collect();
        for (head, token) in &self.by_token {
            if let Some(heads) = token.whose.as_ref().and_then(|whose| holders.get_mut(whose.name())) {
                heads.insert(*head);
            }
        }
        holders
    }
}

/// Checks a principal without its secrets.
fn judge(name: &str, spec: &PrincipalSpec) -> Result<(), String> {
    if name.is_empty() {
        return Err("a principal needs a name".into());
    }
    if spec.tokens.len() > TOKENS_MAX {
        return Err(format!("tokens: at most {TOKENS_MAX}"));
    }
    spec.tokens.iter().try_for_each(judge_token)?;
    if tokens(spec).next().is_none() && spec.certificate.is_none() {
        return Err(NO_CREDENTIAL.into());
    }
    Ok(())
}

/// Returns the secret of a token, or the reason why there is none now.
fn secret(token: &ListedToken<'_>, held: &SecretCache) -> Result<Secret, String> {
    match (token.location(), Source::of(token)) {
        (_, Some(source)) => held.get(&source).cloned().map_err(ToOwned::to_owned),
        (TokenLocation::Digest(digits), None) => {
            Secret::of_digest(digits).ok_or_else(|| "invalid digest".into())
        }
        (_, None) => Err("not read yet".into()),
    }
}
