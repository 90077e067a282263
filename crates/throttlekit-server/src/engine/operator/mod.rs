//! Actions of operators while the server runs: overrides, plans and leases.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;

use super::overrides::{Limits, Live, Loaded, Override, OverridesView, Plan, Terms};
use super::policy_set::close_when_unused;
use super::running_policy::RunningPolicy;
use super::variant::Variant;
use super::{Engine, KEY_BYTES_MAX, Overrides, Refusal};
use crate::audit::Actions;
use crate::background;
use crate::policy::NAME_CHARS_MAX;

/// Interval at which servers look for changed overrides.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum time of one look. The store's own deadlines are shorter.
const LOOK_MAX: Duration = Duration::from_secs(30);
/// Maximum time until the expiry of an override: ten years.
const EXPIRES_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Maximum number of characters of a principal's name that are stored.
const SET_BY_CHARS_MAX: usize = 128;

/// Expiry of an override that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It does not expire.
    Never,
    /// After this time, by the clock of the store.
    After(Duration),
    /// At this time in milliseconds since the Unix epoch, by the clock of the store.
    At(u64),
}

/// An override, and the reason why it does not apply, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideView {
    /// The override.
    pub one: Arc<Override>,
    /// The reason why it does not apply now.
    pub problem: Option<String>,
}

impl Engine {
    /// Sets an override, on all servers of the store: here before it returns, on others at their next look.
    pub async fn set_override(
        &self,
        (policy, key): (&str, &str),
        terms: Terms,
        expiry: Expiry,
        set_by: &str,
    ) -> Result<Override, Refusal> {
        let invalid = |why: String| Refusal::Invalid(why);
        let pattern = key.strip_suffix('*').unwrap_or(key);
        if key.is_empty() || pattern.len() > KEY_BYTES_MAX {
            return Err(invalid(format!("invalid key: expected 1 to {KEY_BYTES_MAX} bytes")));
        }
        let limits = match &terms {
            Terms::Limits(limits) => limits.clone(),
            Terms::Plan(plan) => {
                let none = || invalid(format!("unknown plan `{}`: set it first", plan.escape_debug()));
                self.shared.overrides.plan(policy, plan).ok_or_else(none)?
            }
        };
        self.judge_limits(policy, &limits)?;
        let set_by = set_by.chars().take(SET_BY_CHARS_MAX).collect::<String>().into();
        let new =
            Override { policy: policy.into(), key: key.into(), terms, expires_ms: None, set_ms: 0, set_by };
        let set = Box::pin(self.shared.overrides.set(new, |now| expiry.at(now))).await?;
        self.look_now().await;
        Ok(set)
    }

    /// Removes an override. Returns whether there was one.
    pub async fn remove_override(&self, policy: &str, key: &str) -> Result<bool, Refusal> {
        let removed = Box::pin(self.shared.overrides.remove(policy, key)).await?;
        self.look_now().await;
        Ok(removed)
    }

    /// Returns a page of the overrides of a policy whose keys begin with `prefix`, after the key `after`.
    pub fn overrides(
        &self,
        policy: &str,
        prefix: &str,
        after: &str,
        max: usize,
    ) -> Result<Vec<OverrideView>, Refusal> {
        let served = self.policy(policy)?;
        let page = self.shared.overrides.page(policy, prefix, after, max);
        let view = |one: Arc<Override>| {
            let limits = match &one.terms {
                Terms::Limits(limits) => Ok(limits.clone()),
                Terms::Plan(plan) => {
                    self.shared.overrides.plan(policy, plan).ok_or("unknown plan".to_owned())
                }
            };
            let problem = limits.and_then(|limits| limits.over(&served.spec)).err();
            OverrideView { one, problem }
        };
        Ok(page.into_iter().map(view).collect())
    }

    /// Sets the limits of a plan, for all keys that are assigned to it.
    pub async fn set_plan(&self, policy: &str, plan: &str, limits: &Limits) -> Result<(), Refusal> {
        let valid = |c: char| !c.is_whitespace() && !c.is_control();
        if plan.is_empty() || plan.chars().count() > NAME_CHARS_MAX || !plan.chars().all(valid) {
            let why = format!("invalid plan name: expected 1 to {NAME_CHARS_MAX} characters without spaces");
            return Err(Refusal::Invalid(why));
        }
        self.judge_limits(policy, limits)?;
        Box::pin(self.shared.overrides.change_plan(policy, plan, Some(limits))).await?;
        self.look_now().await;
        Ok(())
    }

    /// Removes a plan that no override names. Returns whether there was one.
    pub async fn remove_plan(&self, policy: &str, plan: &str) -> Result<bool, Refusal> {
        let assigned = self.shared.overrides.assigned(policy, plan);
        if assigned > 0 {
            let why = format!("{assigned} overrides name this plan: remove them first");
            return Err(Refusal::Invalid(why));
        }
        let removed = Box::pin(self.shared.overrides.change_plan(policy, plan, None)).await?;
        self.look_now().await;
        Ok(removed)
    }

    /// Returns the plans of a policy, each with the number of overrides that name it.
    pub fn plans(&self, policy: &str) -> Result<Vec<(Plan, usize)>, Refusal> {
        self.policy(policy)?;
        Ok(self.shared.overrides.plans(policy))
    }

    /// Returns the state of overrides at this server.
    pub fn overrides_view(&self) -> OverridesView {
        self.shared.overrides.view()
    }

    /// Returns the counts of actions of operators.
    pub(crate) fn actions(&self) -> &Actions {
        &self.shared.actions
    }

    fn judge_limits(&self, policy: &str, limits: &Limits) -> Result<(), Refusal> {
        let served = self.policy(policy)?;
        limits.judge(&served.spec, &self.file().defaults).map_err(Refusal::Invalid)
    }

    /// Looks for changed overrides at an interval, until the engine is gone. A store that does not respond leaves those
    /// in effect that are known.
    pub(crate) async fn follow_overrides(self) {
        let mut failing = false;
        let mut due = BootClock.now();
        loop {
            let now = BootClock.now();
            if now < due {
                let next_expiry = self.shared.overrides.next_expiry_in();
                let wait = due.since(now).min(next_expiry.unwrap_or(LOOK_EVERY));
                tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
                if self.shared.overrides.is_due() {
                    self.apply_overrides(Vec::new()).await;
                }
                continue;
            }
            due = now + LOOK_EVERY;
            match tokio::time::timeout(LOOK_MAX, self.look_for_overrides()).await {
                Ok(Ok(())) if failing => tracing::info!("overrides are read from the store again"),
                Ok(Err(error)) if !failing => {
                    tracing::warn!(%error, "overrides cannot be read from the store: known ones stay in effect");
                }
                _ => {}
            }
            failing = self.shared.overrides.is_failing();
        }
    }

    /// Applies overrides that changed on the store.
    pub async fn look_for_overrides(&self) -> Result<(), Refusal> {
        let _alone = self.shared.overrides.reading.lock().await;
        let loaded = self.shared.overrides.load().await?;
        if !loaded.is_empty() || self.shared.overrides.is_due() {
            self.apply_overrides(loaded).await;
        }
        Ok(())
    }

    /// Looks once after a change that was made here. If it fails, the next look finds the change.
    async fn look_now(&self) {
        if let Err(error) = Box::pin(self.look_for_overrides()).await {
            tracing::debug!(%error, "overrides not read after a change");
        }
    }

    async fn apply_overrides(&self, loaded: Loaded) {
        // A reload replaces policies, and fills in their overrides itself.
        let _alone = self.shared.reloading.lock().await;
        let engine = self.clone();
        // Off the threads that serve: a policy may have many overrides.
        let applied = background::run(move || {
            let running = engine.shared.running.load_full();
            let touched = engine.shared.overrides.take(&loaded);
            let served = touched.iter().filter_map(|policy| running.policies.get(policy));
            served.flat_map(|served| engine.shared.overrides.fill(served)).collect::<Vec<_>>()
        });
        let gone = applied.await.unwrap_or_default();
        if !gone.is_empty() {
            tokio::spawn(close_when_unused(gone));
        }
    }
}

impl Overrides {
    /// Gives a policy its overrides. Returns the variants that are not used any more.
    pub(super) fn fill(&self, served: &RunningPolicy) -> Vec<Arc<Variant>> {
        let live: &Live = &served.live;
        self.of_policy(&served.name, |all| live.replace(all))
    }
}

impl Expiry {
    fn at(self, now: Timestamp) -> Result<Option<u64>, Refusal> {
        let at = match self {
            Self::Never => return Ok(None),
            Self::After(time) if time > EXPIRES_MAX => None,
            Self::After(time) => Some((now + time).as_millis_ceil()),
            Self::At(ms) => Some(ms),
        };
        let latest = (now + EXPIRES_MAX).as_millis_ceil();
        let valid = at.filter(|at| *at > now.as_millis_ceil() && *at <= latest);
        let wrong = || Refusal::Invalid("invalid expiry: expected a time within the next ten years".into());
        valid.map(Some).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests;
