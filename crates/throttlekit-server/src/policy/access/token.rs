//! The tokens of a principal, as listed in the file.

use throttlekit::rate::Timestamp;

use super::{PrincipalSpec, TokenSpec};
use crate::date_time;

/// Maximum number of `tokens` of one principal: the old and the new one.
pub(crate) const TOKENS_MAX: usize = 2;

/// A token that the file lists.
#[derive(Debug)]
pub(crate) struct ListedToken<'f> {
    /// The field with its location: `token_file`, `tokens[1].env`.
    pub(crate) field: String,
    location: TokenLocation<'f>,
    expires: Option<&'f str>,
}

/// The location of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TokenLocation<'f> {
    Digest(&'f str),
    File(&'f str),
    Env(&'f str),
}

/// Returns all tokens of a principal. For an entry of `tokens` with several locations, the first; [`judge_token`]
/// rejects it.
pub(crate) fn tokens(spec: &PrincipalSpec) -> impl Iterator<Item = ListedToken<'_>> {
    let PrincipalSpec { token_sha256, token_file, token_env, tokens, .. } = spec;
    let single = [
        ("token_sha256", token_sha256.as_deref().map(TokenLocation::Digest)),
        ("token_file", token_file.as_deref().map(TokenLocation::File)),
        ("token_env", token_env.as_deref().map(TokenLocation::Env)),
    ];
    let single = single.into_iter().filter_map(|(field, location)| {
        Some(ListedToken { field: field.to_owned(), location: location?, expires: None })
    });
    let listed = tokens.iter().enumerate().filter_map(|(index, token)| {
        let (name, location) = token.locations().next()?;
        let field = format!("tokens[{index}].{name}");
        Some(ListedToken { field, location, expires: token.expires.as_deref() })
    });
    single.chain(listed)
}

/// Checks the form of one entry of `tokens`.
pub(crate) fn judge_token(token: &TokenSpec) -> Result<(), String> {
    match token.locations().count() {
        1 => Ok(()),
        0 => Err("the token has no source: set sha256, file or env".into()),
        _ => Err("the token has several sources: keep one of sha256, file and env".into()),
    }
}

impl TokenSpec {
    fn locations(&self) -> impl Iterator<Item = (&'static str, TokenLocation<'_>)> {
        let locations = [
            ("sha256", self.sha256.as_deref().map(TokenLocation::Digest)),
            ("file", self.file.as_deref().map(TokenLocation::File)),
            ("env", self.env.as_deref().map(TokenLocation::Env)),
        ];
        locations.into_iter().filter_map(|(name, location)| Some((name, location?)))
    }
}

impl<'f> ListedToken<'f> {
    pub(crate) fn location(&self) -> TokenLocation<'f> {
        self.location
    }

    /// Checks the digest and the expiry, without reading a secret.
    pub(crate) fn judge(&self) -> Result<Option<Timestamp>, String> {
        if let TokenLocation::Digest(digits) = self.location {
            judge_digest(digits)?;
        }
        self.expires.map(date_time::parse).transpose()
    }
}

fn judge_digest(digits: &str) -> Result<(), String> {
    let is_digest = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_digest { Ok(()) } else { Err("invalid SHA-256 digest: expected 64 hexadecimal digits".into()) }
}
