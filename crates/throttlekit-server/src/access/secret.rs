//! Secrets, kept as digests only.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// A file longer than this holds no token.
const FILE_BYTES_MAX: u64 = 4096;

/// A secret that callers show. Only its SHA-256 is kept; it is compared in constant time and shown nowhere.
#[derive(Clone)]
pub struct Secret {
    digest: [u8; 32],
}

impl Secret {
    /// This one. Nothing if it is empty.
    pub fn of(text: &[u8]) -> Option<Self> {
        (!text.is_empty()).then(|| Self { digest: Sha256::digest(text).into() })
    }

    /// The one of this digest, in 64 hexadecimal digits.
    pub fn of_digest(digits: &str) -> Option<Self> {
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self { digest })
    }

    /// The one in a file, without the white space around it.
    pub fn in_file(path: &Path) -> Result<Self, String> {
        Self::read_file(path, 1)
    }

    /// The one in an environment variable, without the white space around it.
    pub fn in_env(name: &str) -> Result<Self, String> {
        Self::read_env(name, 1)
    }

    pub(super) fn read_file(path: &Path, bytes_min: usize) -> Result<Self, String> {
        let wrong = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
        // A pipe would be waited for, and a device never ends.
        if !std::fs::metadata(path).map_err(|error| wrong(&error))?.is_file() {
            return Err(wrong(&"no ordinary file: a token stands in one"));
        }
        let (file, mut text) = (File::open(path).map_err(|error| wrong(&error))?, Vec::new());
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| wrong(&error))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(&"longer than any token: 4096 bytes at most"));
        }
        Self::long(text.trim_ascii(), bytes_min).map_err(|why| wrong(&why))
    }

    pub(super) fn read_env(name: &str, bytes_min: usize) -> Result<Self, String> {
        let text = std::env::var(name).map_err(|_| format!("the environment has no `{name}`"))?;
        Self::long(text.trim_ascii().as_bytes(), bytes_min).map_err(|why| format!("`{name}`: {why}"))
    }

    fn long(text: &[u8], bytes_min: usize) -> Result<Self, String> {
        let long = text.len() >= bytes_min;
        long.then(|| Self::of(text))
            .flatten()
            .ok_or_else(|| format!("{} bytes are too few for a secret: {bytes_min} at least", text.len()))
    }

    /// Whether it is the same, found out in the same time for every other.
    pub(super) fn is(&self, other: &Self) -> Choice {
        self.digest.ct_eq(&other.digest)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
