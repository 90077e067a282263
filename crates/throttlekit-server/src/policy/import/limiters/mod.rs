//! Import of files of the TypeScript server: `limiters`, each with a strategy and a block.
//!
//! Each limiter becomes a policy of the same name, so clients need no change.

mod one_limiter;
mod strategy;
mod wire;

use std::collections::BTreeMap;

use super::super::check::{At, Report, VERSION};
use super::super::error::{PolicyError, step};
use super::super::load::{first_of, located};
use super::super::model::{PolicyFile, PolicySpec};
use super::super::read::{is_within, read_all};
use super::super::tree::{self, shown};
use super::{Imported, finished};
use one_limiter::OneLimiter;
use wire::File;

/// Imports a file of the TypeScript server, or returns all errors.
///
/// Nothing is dropped silently: what cannot be kept is an error, what matters less is a note.
pub fn import_limiters(text: &str) -> Result<Imported, Vec<PolicyError>> {
    let mut import = LimitersImport::default();
    import.add(text)?;
    import.finish()
}

/// Imports several files of the TypeScript server as one policy file.
#[derive(Clone, Debug, Default)]
pub struct LimitersImport {
    policies: BTreeMap<String, PolicySpec>,
    notes: Vec<String>,
}

impl LimitersImport {
    /// Adds a file. Returns all of its errors.
    pub fn add(&mut self, text: &str) -> Result<(), Vec<PolicyError>> {
        let root = tree::parse(text).map_err(|error| vec![error])?;
        let (root, mut errors, file) = match read_all::<File>(text, root) {
            Ok((root, file)) => (root, Vec::new(), Some(file)),
            Err((root, unread)) => (root, unread.errors, unread.rest),
        };
        let mut report = Report::default();
        if let Some(mut file) = file {
            // Limiters that were read in part would only repeat their errors.
            file.limiters.retain(|name, _| {
                let path = format!("limiters.{}", step(name));
                !errors.iter().any(|error| is_within(&error.path, &path))
            });
            self.add_file(&file, &mut report);
        }
        errors.extend(report.findings.into_iter().map(|found| located(text, &root, found)));
        if errors.is_empty() { Ok(()) } else { Err(first_of(errors)) }
    }

    fn add_file(&mut self, file: &File, report: &mut Report) {
        if file.defaults.as_ref().is_some_and(|defaults| defaults.prefix.is_some()) {
            self.notes.push("defaults.prefix is ignored: keys in the store are named by the policy".into());
        }
        for (block, name) in [(&file.capture, "capture"), (&file.replay, "replay")] {
            if block.is_some() {
                self.notes.push(format!("{name} is ignored: decisions are not recorded"));
            }
        }
        for (name, limiter) in &file.limiters {
            let at = At::key("limiters").named(name);
            if self.policies.contains_key(name) {
                report.error(&at, format!("`{}` is a limiter of an earlier file: rename one", shown(name)));
                continue;
            }
            let policy =
                OneLimiter { name, limiter, at, report: &mut *report, notes: &mut self.notes }.policy();
            self.policies.insert(name.clone(), policy);
        }
    }

    /// Returns the policy file, or all errors in its meaning.
    pub fn finish(self) -> Result<Imported, Vec<PolicyError>> {
        let policies = self.policies;
        finished(PolicyFile { version: VERSION, policies, ..PolicyFile::default() }, self.notes)
    }
}
