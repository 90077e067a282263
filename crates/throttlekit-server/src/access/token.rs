//! The tokens of a principal, as the file lists them.

use throttlekit::Timestamp;

use super::held::Held;
use super::secret::Source;
use super::{PrincipalSpec, Secret, TokenSpec};
use crate::date_time;

/// Entries of `tokens` of one principal: the old and the new one.
pub(crate) const TOKENS_MAX: usize = 2;

/// A token that the file lists.
#[derive(Debug)]
pub(crate) struct Listed<'f> {
    /// The field that says where it is kept: `token_file`, `tokens[1].env`.
    pub(crate) field: String,
    kept: Kept<'f>,
    expires: Option<&'f str>,
}

/// Where a token is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kept<'f> {
    Digest(&'f str),
    File(&'f str),
    Env(&'f str),
}

/// All tokens of a principal. Of an entry of `tokens` that names several places, the first; [`judge_token`] refuses it.
pub(crate) fn tokens(spec: &PrincipalSpec) -> impl Iterator<Item = Listed<'_>> {
    let PrincipalSpec { token_sha256, token_file, token_env, tokens, .. } = spec;
    let single = [
        ("token_sha256", token_sha256.as_deref().map(Kept::Digest)),
        ("token_file", token_file.as_deref().map(Kept::File)),
        ("token_env", token_env.as_deref().map(Kept::Env)),
    ];
    let single = single
        .into_iter()
        .filter_map(|(field, kept)| Some(Listed { field: field.to_owned(), kept: kept?, expires: None }));
    let listed = tokens.iter().enumerate().filter_map(|(index, token)| {
        let (name, kept) = token.places().next()?;
        Some(Listed { field: format!("tokens[{index}].{name}"), kept, expires: token.expires.as_deref() })
    });
    single.chain(listed)
}

/// Checks the form of one entry of `tokens`.
pub(crate) fn judge_token(token: &TokenSpec) -> Result<(), String> {
    match token.places().count() {
        1 => Ok(()),
        0 => Err("says nowhere where the token is kept: give sha256, file or env".into()),
        _ => Err("a token is kept in one place: keep one of sha256, file and env".into()),
    }
}

impl TokenSpec {
    fn places(&self) -> impl Iterator<Item = (&'static str, Kept<'_>)> {
        let places = [
            ("sha256", self.sha256.as_deref().map(Kept::Digest)),
            ("file", self.file.as_deref().map(Kept::File)),
            ("env", self.env.as_deref().map(Kept::Env)),
        ];
        places.into_iter().filter_map(|(name, kept)| Some((name, kept?)))
    }
}

impl<'f> Listed<'f> {
    pub(crate) fn kept(&self) -> Kept<'f> {
        self.kept
    }

    /// The place to read it from, if it is not in the file as a digest.
    pub(crate) fn source(&self) -> Option<Source> {
        match self.kept {
            Kept::Digest(_) => None,
            Kept::File(path) => Some(Source::File(path.into())),
            Kept::Env(name) => Some(Source::Env(name.into())),
        }
    }

    /// The secret, or the reason why there is none now.
    pub(super) fn secret(&self, held: &Held) -> Result<Secret, String> {
        match (self.kept, self.source()) {
            (Kept::Digest(digits), _) => judge_digest(digits),
            (_, Some(source)) => held.get(&source).cloned().map_err(ToOwned::to_owned),
            (_, None) => Err("was not read".into()),
        }
    }

    /// Checks the digest and the expiry, without reading a secret.
    pub(crate) fn judge(&self) -> Result<Option<Timestamp>, String> {
        if let Kept::Digest(digits) = self.kept {
            judge_digest(digits)?;
        }
        self.expires.map(date_time::parse).transpose()
    }
}

fn judge_digest(digits: &str) -> Result<Secret, String> {
    Secret::of_digest(digits).ok_or_else(|| "a SHA-256 digest has 64 hexadecimal digits".into())
}
