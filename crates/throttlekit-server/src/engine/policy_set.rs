//! The policies of one file, and their replacement by those of the next: built as a whole, then applied as a whole.

use std::collections::HashSet;
use std::sync::Arc;

use super::failures::Failures;
use super::running_policy::{PolicyContext, RunningPolicy};
use super::variant::Variant;
use super::{Engine, EngineOptions, Reloaded, SWEEP_EVERY};
use crate::policy::PolicyFile;
use crate::server_error::ServerError;

/// Maximum number of checks whether a removed policy is still in use.
const UNUSED_TRIES_MAX: u32 = 40;

/// Policies by name. Operators choose the names, and each decision looks one up: a fast hash.
type ByName = std::collections::HashMap<Box<str>, Arc<RunningPolicy>, foldhash::fast::RandomState>;

/// The running policies of one file.
pub(super) struct PolicySet {
    pub(super) file: Arc<PolicyFile>,
    pub(super) policies: ByName,
}

impl Engine {
    /// Applies a new file. On an error nothing changes. What stays the same keeps running.
    pub async fn reload(&self, file: PolicyFile) -> Result<Reloaded, ServerError> {
        let _alone = self.shared.reloading.lock().await;
        let before = self.shared.running.load_full();
        let warnings = self.shared.options.warnings(&file);
        let (running, mut reloaded) =
            PolicySet::of(file, &self.shared.options, &self.shared.failures, Some(&before))?;
        reloaded.warnings.extend(warnings);
        // Overrides share variants: each is listed once, since a second reference here would look like one in use.
        let mut known: HashSet<_> = running.variants().map(|variant| Arc::as_ptr(&variant)).collect();
        let gone: Vec<_> = before.variants().filter(|variant| known.insert(Arc::as_ptr(variant))).collect();
        let new = running.policies.values().filter(|served| {
            let known = before.policies.get(&*served.name);
            !known.is_some_and(|known| Arc::ptr_eq(known, served))
        });
        new.for_each(|served| drop(self.shared.overrides.fill(served)));
        // Everything is built: from here on nothing fails.
        running.policies.values().for_each(|served| served.put_in_force());
        self.shared.running.store(Arc::new(running));
        drop(before);
        tokio::spawn(close_when_unused(gone));
        Ok(reloaded)
    }
}

impl PolicySet {
    /// Builds the policies of a file, and keeps those that are unchanged. Changes nothing that runs.
    pub(super) fn of(
        file: PolicyFile,
        options: &EngineOptions,
        failures: &Arc<Failures>,
        before: Option<&Self>,
    ) -> Result<(Self, Reloaded), ServerError> {
        let same_defaults = before.filter(|before| before.file.defaults == file.defaults);
        let context = PolicyContext {
            backend: &options.backend,
            region: &options.pool_name(),
            defaults: &file.defaults,
            failures,
        };
        let (mut policies, mut reloaded) = (ByName::default(), Reloaded::default());
        for (name, spec) in &file.policies {
            let known = before.and_then(|before| before.policies.get(name.as_str()));
            let same = known.filter(|known| same_defaults.is_some() && known.spec == *spec);
            let served = match same {
                Some(same) => same.clone(),
                None => {
                    let list = if known.is_some() { &mut reloaded.changed } else { &mut reloaded.added };
                    list.push(name.clone());
                    let known = known.map(AsRef::as_ref);
                    Arc::new(RunningPolicy::new(name, spec, &context, known, &mut reloaded.warnings)?)
                }
            };
            policies.insert(name.as_str().into(), served);
        }
        let gone = before.iter().flat_map(|before| before.file.policies.keys());
        reloaded.removed = gone.filter(|name| !file.policies.contains_key(*name)).cloned().collect();
        Ok((Self { file: Arc::new(file), policies }, reloaded))
    }

    fn variants(&self) -> impl Iterator<Item = Arc<Variant>> {
        self.policies.values().flat_map(|served| served.variants())
    }
}

/// Returns the units that removed policies had fetched, once their pending requests are done. Units fetched after that
/// expire with their window.
pub(super) async fn close_when_unused(gone: Vec<Arc<Variant>>) {
    let used = |variant: &Arc<Variant>| Arc::strong_count(variant) > 1;
    for _ in 0..UNUSED_TRIES_MAX {
        if !gone.iter().any(used) {
            break;
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
    for variant in gone {
        variant.close().await;
    }
}
