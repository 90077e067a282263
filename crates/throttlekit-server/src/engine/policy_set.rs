//! The policies of one file, and how those of the next file replace them: built as a whole, then applied as a whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::failures::Failures;
use super::running_policy::{PolicyContext, RunningPolicy};
use super::variant::Variant;
use super::{Engine, EngineOptions, Reloaded, SWEEP_EVERY};
use crate::policy::PolicyFile;

/// How often it is looked whether anyone still asks a policy that is gone.
const UNUSED_TRIES_MAX: u32 = 40;

/// The running policies of one file.
pub(super) struct PolicySet {
    pub(super) file: Arc<PolicyFile>,
    pub(super) policies: HashMap<Box<str>, Arc<RunningPolicy>>,
}

impl Engine {
    /// Puts a new file in force, or says why not and changes nothing. What stays the same keeps running.
    pub async fn reload(&self, file: PolicyFile) -> Result<Reloaded, String> {
        let _alone = self.shared.reloading.lock().await;
        let before = self.shared.running.load_full();
        let (running, reloaded) =
            PolicySet::of(file, &self.shared.options, &self.shared.failures, Some(&before))?;
        // Overrides share variants: each is known once, and one of our own would look as if someone still asked it.
        let mut known: HashSet<_> = running.variants().map(Arc::as_ptr).collect();
        let gone: Vec<_> =
            before.variants().filter(|variant| known.insert(Arc::as_ptr(variant))).cloned().collect();
        // All of it was built: from here on nothing fails.
        running.policies.values().for_each(|served| served.put_in_force());
        self.shared.running.store(Arc::new(running));
        drop(before);
        tokio::spawn(close_when_unused(gone));
        Ok(reloaded)
    }
}

impl PolicySet {
    /// What a file says, with whatever is the same as before. Changes nothing that runs.
    pub(super) fn of(
        file: PolicyFile,
        options: &EngineOptions,
        failures: &Arc<Failures>,
        before: Option<&Self>,
    ) -> Result<(Self, Reloaded), String> {
        let same_defaults = before.filter(|before| before.file.defaults == file.defaults);
        let context = PolicyContext {
            backend: &options.backend,
            region: &options.region,
            defaults: &file.defaults,
            failures,
        };
        let (mut policies, mut reloaded) = (HashMap::new(), Reloaded::default());
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

    fn variants(&self) -> impl Iterator<Item = &Arc<Variant>> {
        self.policies.values().flat_map(|served| served.variants())
    }
}

/// Hands back what policies that are gone had fetched, when those who still asked them are answered. What is fetched after
/// that lapses with its window.
async fn close_when_unused(gone: Vec<Arc<Variant>>) {
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
