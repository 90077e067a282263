//! The principals of a file, found by what they show.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use throttlekit::{Clock, Timestamp};

use super::caller::Allowed;
use super::certificate::{Certificates, judge_certificate};
use super::held::Held;
use super::refusals::Refusals;
use super::secret::{Head, Source};
use super::token::{TOKENS_MAX, judge_token, tokens};
use super::{AccessSpec, Principal, PrincipalSpec, Secret, Unknown};

/// Principals of one file. At some 300 bytes each, their tables take 3 MB.
pub const PRINCIPALS_MAX: usize = 10_000;

/// The principals of a file: one lookup finds each, however many there are.
#[derive(Debug, Default)]
pub(super) struct Principals {
    known: Vec<Known>,
    by_token: HashMap<Head, Token>,
    by_certificate: Certificates,
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) principal: Principal,
    pub(super) allowed: Arc<Allowed>,
}

#[derive(Debug)]
struct Token {
    secret: Secret,
    expires: Option<Timestamp>,
    /// An index of `known`; none if several principals show it, and it stands for nobody.
    whose: Option<usize>,
}

/// The places outside the file that hold tokens of its principals.
pub(crate) fn sources(spec: &AccessSpec) -> impl Iterator<Item = Source> {
    spec.principals.values().flat_map(tokens).filter_map(|token| token.source())
}

impl Principals {
    /// Builds the tables of a list. A list that is wrong whatever its secrets are is an error; a token that cannot be
    /// used now is left out, and named in `failing` with the reason.
    pub(super) fn build(
        spec: &AccessSpec,
        held: &Held,
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
            let allowed = Allowed::of(&spec.allow, refusals).map_err(at)?;
            all.known.push(Known { principal: Principal::named(name), allowed: allowed.into() });
            if let Some(name) = spec.certificate.as_deref().map(judge_certificate).transpose().map_err(at)? {
                all.add_certificate(name).map_err(at)?;
            }
            for token in tokens(spec) {
                let expires = token.judge().map_err(at)?;
                let added = token.secret(held).and_then(|secret| all.add_token(secret, expires));
                failing.extend(added.err().map(|why| at(format!("{}: {why}", token.field))));
            }
        }
        Ok(all)
    }

    /// Adds a name of the principal that was added last.
    fn add_certificate(&mut self, name: String) -> Result<(), String> {
        match self.by_certificate.insert(name, self.known.len() - 1) {
            Some(other) => Err(format!("it has the certificate of another: `{}`", self.name(other))),
            None => Ok(()),
        }
    }

    /// Adds a token of the principal that was added last. A token of two principals is nobody's: to whom a caller
    /// belongs that shows it cannot be told.
    fn add_token(&mut self, secret: Secret, expires: Option<Timestamp>) -> Result<(), String> {
        let whose = self.known.len() - 1;
        let other = match self.by_token.entry(secret.head()) {
            Entry::Vacant(place) => {
                place.insert(Token { secret, expires, whose: Some(whose) });
                return Ok(());
            }
            Entry::Occupied(place) => {
                let token = place.into_mut();
                if token.whose == Some(whose) {
                    // Listed twice: the longer life holds.
                    token.expires = token.expires.zip(expires).map(|(a, b)| a.max(b));
                    return Ok(());
                }
                token.whose.take()
            }
        };
        let of = other.map_or_else(String::new, |other| format!(": `{}`", self.name(other)));
        Err(format!("it has the token of another{of}, so the token is refused"))
    }

    fn name(&self, index: usize) -> String {
        self.known
            .get(index)
            .map(|known| known.principal.name().escape_debug().to_string())
            .unwrap_or_default()
    }

    /// The principal that shows this token. How long the lookup takes depends on half of a digest, which nobody can
    /// steer towards that of a token they do not have; the comparison that decides takes the same time for all.
    pub(super) fn by_token(&self, shown: &Secret, clock: &impl Clock) -> Result<&Known, Unknown> {
        let found = self.by_token.get(&shown.head()).filter(|token| token.secret.is(shown).into());
        let token = found.ok_or(Unknown::WrongToken)?;
        let known = token.whose.and_then(|whose| self.known.get(whose)).ok_or(Unknown::WrongToken)?;
        match token.expires {
            Some(expires) if clock.now() >= expires => Err(Unknown::ExpiredToken),
            _ => Ok(known),
        }
    }

    /// The principal of a certificate with these names.
    pub(super) fn by_certificate(&self, names: &[String]) -> Option<&Known> {
        self.known.get(self.by_certificate.find(names)?)
    }

    /// The tokens of each principal, by what tables find them by.
    pub(super) fn holders(&self) -> BTreeMap<&str, BTreeSet<Head>> {
        let names = self.known.iter().map(|known| (known.principal.name(), BTreeSet::new()));
        let mut holders: BTreeMap<_, _> = names.collect();
        for (head, token) in &self.by_token {
            let name =
                token.whose.and_then(|whose| self.known.get(whose)).map(|known| known.principal.name());
            if let Some(heads) = name.and_then(|name| holders.get_mut(name)) {
                heads.insert(*head);
            }
        }
        holders
    }
}

/// What is wrong with a principal whatever its secrets are.
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

pub(crate) const NO_CREDENTIAL: &str =
    "nobody can be known as it: give token_sha256, token_file, token_env, tokens or certificate";
