//! Secrets, kept as digests only.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::files::read_regular;
use crate::policy::{ListedToken, TokenLocation};
use crate::server_error::ServerError;

/// Minimum length: shorter secrets can be guessed.
const BYTES_MIN: usize = 16;
/// Maximum size of a token file.
const FILE_BYTES_MAX: u64 = 4096;

/// A secret that callers send. Only its SHA-256 is kept; it is compared in constant time and never shown.
#[derive(Clone)]
pub struct Secret {
    digest: [u8; 32],
    /// The file that it was read from, which a server reloads.
    file: Option<Arc<Path>>,
}

impl Secret {
    /// Creates a secret from its text. Returns `None` if it is empty.
    pub fn of(text: &[u8]) -> Option<Self> {
        (!text.is_empty()).then(|| Self { digest: Sha256::digest(text).into(), file: None })
    }

    /// Reads a secret from the value of an `authorization` header: `Bearer …`.
    pub(crate) fn bearer(header: &[u8]) -> Option<Self> {
        let (scheme, token) = header.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| Self::of(token.trim_ascii())).flatten()
    }

    /// Creates a secret from its digest, in 64 hexadecimal digits.
    pub fn of_digest(digits: &str) -> Option<Self> {
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self { digest, file: None })
    }

    /// Reads a secret from a file, without surrounding white space. It must have at least 16 bytes.
    pub fn in_file(path: &Path) -> Result<Self, ServerError> {
        let text = read_regular(path, FILE_BYTES_MAX).map_err(|error| ServerError::file(path, error))?;
        let short = |why: String| ServerError::secret(path.display(), why);
        let secret = Self::long(text.trim_ascii()).map_err(short)?;
        Ok(Self { file: Some(path.into()), ..secret })
    }

    /// Reads a secret from an environment variable, without surrounding white space. It must have at least 16 bytes.
    pub fn in_env(name: &str) -> Result<Self, ServerError> {
        let wrong = |why: String| ServerError::secret(format_args!("`{name}`"), why);
        let text = std::env::var(name).map_err(|_| wrong("environment variable not set".into()))?;
        Self::long(text.trim_ascii().as_bytes()).map_err(wrong)
    }

    fn long(text: &[u8]) -> Result<Self, String> {
        let long = (text.len() >= BYTES_MIN).then(|| Self::of(text)).flatten();
        long.ok_or_else(|| {
            format!("secret too short: {} bytes, at least {BYTES_MIN} are required", text.len())
        })
    }

    /// Compares in constant time.
    pub(super) fn is(&self, other: &Self) -> Choice {
        self.digest.ct_eq(&other.digest)
    }

    /// Returns the half of its digest that tables are indexed by. What the timing of a lookup reveals of it does not
    /// help to guess the secret.
    pub(super) fn head(&self) -> Head {
        let mut head = [0; 16];
        head.copy_from_slice(&self.digest[..16]);
        head
    }

    pub(super) fn source(&self) -> Option<Source> {
        self.file.as_deref().map(|path| Source::File(path.into()))
    }
}

pub(super) type Head = [u8; 16];

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A source outside the policy file that holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    File(PathBuf),
    Env(String),
}

impl Source {
    /// Returns the source of a token, unless the file holds its digest.
    pub(crate) fn of(token: &ListedToken<'_>) -> Option<Self> {
        match token.location() {
            TokenLocation::Digest(_) => None,
            TokenLocation::File(path) => Some(Self::File(path.into())),
            TokenLocation::Env(name) => Some(Self::Env(name.into())),
        }
    }

    pub(crate) fn read(&self) -> Result<Secret, String> {
        let secret = match self {
            Self::File(path) => Secret::in_file(path),
            Self::Env(name) => Secret::in_env(name),
        };
        secret.map_err(|error| error.to_string())
    }
}
