//! Import of files of other services.

mod envoy;
mod limiters;

pub use envoy::{EnvoyImport, import_envoy};
pub use limiters::{LimitersImport, import_limiters};

use super::check::{Severity, check};
use super::error::PolicyError;
use super::load::first_of;
use super::model::PolicyFile;

/// Result of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The same limits as policies.
    pub file: PolicyFile,
    /// Differences, and points to check.
    pub notes: Vec<String>,
}

/// A path into the imported file, and the error there.
type Wrong = (String, String);

/// Checks what was imported. Returns all errors in its meaning.
fn finished(file: PolicyFile, notes: Vec<String>) -> Result<Imported, Vec<PolicyError>> {
    let errors = check(&file).into_iter().filter(|finding| finding.severity == Severity::Error);
    let errors: Vec<_> = errors.map(|found| PolicyError::at("", found.path, None, found.message)).collect();
    if errors.is_empty() { Ok(Imported { file, notes }) } else { Err(first_of(errors)) }
}
