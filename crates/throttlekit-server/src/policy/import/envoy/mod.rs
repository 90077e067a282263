//! Import of files of the rate limit service that Envoy's documentation describes.
//!
//! There a file is one domain with a tree of descriptors. Here each limit of the tree becomes a policy, and the path to
//! it a rule of the domain. Limits are fixed windows aligned to the epoch, as they are there.

mod domain;
mod wire;

use std::collections::BTreeMap;

use super::super::check::{Finding, Severity, VERSION};
use super::super::envoy::DomainSpec;
use super::super::error::PolicyError;
use super::super::load::{first_of, located};
use super::super::model::{PolicyFile, PolicySpec};
use super::super::read::read_all;
use super::super::tree::{self, shown};
use super::{Imported, Wrong, finished};
use domain::OneDomain;
use wire::Domain;

/// Imports a file of `envoyproxy/ratelimit`, or returns all errors.
///
/// Nothing is dropped silently: what cannot be kept is an error, what matters less is a note.
pub fn import_envoy(text: &str) -> Result<Imported, Vec<PolicyError>> {
    let mut import = EnvoyImport::default();
    import.add(text)?;
    import.finish()
}

/// Imports several files of `envoyproxy/ratelimit` as one policy file.
#[derive(Clone, Debug, Default)]
pub struct EnvoyImport {
    policies: BTreeMap<String, PolicySpec>,
    domains: Vec<DomainSpec>,
    notes: Vec<String>,
}

impl EnvoyImport {
    /// Adds a file, which is one domain. Returns all of its errors.
    pub fn add(&mut self, text: &str) -> Result<(), Vec<PolicyError>> {
        let root = tree::parse(text).map_err(|error| vec![error])?;
        let (root, domain) = read_all::<Domain>(text, root).map_err(|(_, unread)| unread.errors)?;
        let errors = self.add_domain(domain);
        let located = |(path, message): Wrong| {
            let severity = Severity::Error;
            located(text, &root, Finding { path, severity, message, place: None })
        };
        if errors.is_empty() { Ok(()) } else { Err(first_of(errors.into_iter().map(located).collect())) }
    }

    fn add_domain(&mut self, read: Domain) -> Vec<Wrong> {
        let mut domain = OneDomain::new(&mut self.policies, &mut self.notes, &read.domain);
        if read.domain.is_empty() {
            domain
                .wrong("domain".into(), "missing domain name: use the one that Envoy's filter sends".into());
        } else if self.domains.iter().any(|other| other.domain == read.domain) {
            let message = format!("`{}` is the domain of an earlier file: merge them", shown(&read.domain));
            domain.wrong("domain".into(), message);
        }
        domain.walk("descriptors", &read.descriptors.unwrap_or_default(), &[]);
        let (spec, errors) = domain.end();
        self.domains.push(spec);
        errors
    }

    /// Returns the policy file, or all errors in its meaning.
    pub fn finish(self) -> Result<Imported, Vec<PolicyError>> {
        let Self { policies, domains: envoy, notes } = self;
        finished(PolicyFile { version: VERSION, policies, envoy, ..PolicyFile::default() }, notes)
    }
}
