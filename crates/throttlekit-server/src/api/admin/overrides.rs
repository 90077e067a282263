//! Overrides and plans, as messages of `throttlekit.v1`.

use std::time::Duration;

use throttlekit_proto::v1;

use super::attempt::{Attempt, Subject};
use super::{Operator, count, page_max, who};
use crate::access::Caller;
use crate::audit::{AUDIT, Action};
use crate::engine::{BudgetChange, Expiry, Limits, Override, RateChange, Refusal, Terms};
use crate::policy::{Endpoint, ON_STORE_MAX, RATES_MAX};
use crate::wire_format::signed;

impl Operator {
    /// Sets an override.
    pub(in crate::api) async fn set_override(
        &self,
        caller: &Caller,
        request: v1::SetOverrideRequest,
    ) -> Result<v1::SetOverrideResponse, Refusal> {
        let one = request.r#override.as_ref();
        let subject = one.map_or_else(Subject::default, |one| Subject {
            plan: one.plan.clone(),
            ..Subject::key(&one.policy, &one.key)
        });
        let attempt = Attempt::of(caller, Action::SetOverride, subject);
        attempt.perform(self.try_set_override(caller, request)).await
    }

    async fn try_set_override(
        &self,
        caller: &Caller,
        request: v1::SetOverrideRequest,
    ) -> Result<v1::SetOverrideResponse, Refusal> {
        let v1::SetOverrideRequest { r#override: one, for_ms } = request;
        let v1::Override { policy, key, limits, plan, expires_at, .. } = one.unwrap_or_default();
        caller.may(Endpoint::Admin, &policy, prefix(&key).as_bytes())?;
        let terms = match (limits, plan.as_str()) {
            (Some(limits), "") => Terms::Limits(changes(limits)?),
            (None, plan) if !plan.is_empty() => Terms::Plan(plan.into()),
            _ => return Err(Refusal::Invalid("invalid override: expected either limits or a plan".into())),
        };
        let expiry = match (count(for_ms, "for_ms")?, count(expires_at, "expires_at")?) {
            (0, 0) => Expiry::Never,
            (ms, 0) => Expiry::After(Duration::from_millis(ms)),
            (0, at) => Expiry::At(at),
            _ => return Err(Refusal::Invalid("invalid expiry: set either for_ms or expires_at".into())),
        };
        let set_by = caller.principal().name();
        let set = self.engine.set_override((&policy, &key), terms, expiry, set_by).await?;
        self.done(Action::SetOverride);
        let (principal, peer) = who(caller);
        let (expires_at, terms) = (set.expires_ms, &set.terms);
        tracing::info!(target: AUDIT, principal, peer, policy, key, ?terms, expires_at, "override set");
        Ok(v1::SetOverrideResponse { r#override: Some(written(&set, None)) })
    }

    /// Removes an override.
    pub(in crate::api) async fn remove_override(
        &self,
        caller: &Caller,
        request: v1::RemoveOverrideRequest,
    ) -> Result<v1::RemoveOverrideResponse, Refusal> {
        let subject = Subject::key(&request.policy, &request.key);
        let attempt = Attempt::of(caller, Action::RemoveOverride, subject);
        attempt.perform(self.try_remove_override(caller, request)).await
    }

    async fn try_remove_override(
        &self,
        caller: &Caller,
        request: v1::RemoveOverrideRequest,
    ) -> Result<v1::RemoveOverrideResponse, Refusal> {
        let v1::RemoveOverrideRequest { policy, key } = request;
        caller.may(Endpoint::Admin, &policy, prefix(&key).as_bytes())?;
        let removed = self.engine.remove_override(&policy, &key).await?;
        self.done(Action::RemoveOverride);
        let (principal, peer) = who(caller);
        tracing::info!(target: AUDIT, principal, peer, policy, key, removed, "override removed");
        Ok(v1::RemoveOverrideResponse { removed })
    }

    /// Lists overrides of a policy.
    pub(in crate::api) fn list_overrides(
        &self,
        caller: &Caller,
        request: &v1::ListOverridesRequest,
    ) -> Result<v1::ListOverridesResponse, Refusal> {
        let subject = Subject::key(&request.policy, &request.prefix);
        let attempt = Attempt::of(caller, Action::ListOverrides, subject);
        attempt.ended(self.try_list_overrides(caller, request))
    }

    fn try_list_overrides(
        &self,
        caller: &Caller,
        request: &v1::ListOverridesRequest,
    ) -> Result<v1::ListOverridesResponse, Refusal> {
        let v1::ListOverridesRequest { policy, prefix, page_size, page_token } = request;
        caller.may(Endpoint::Admin, policy, prefix.as_bytes())?;
        let max = page_max(*page_size)?;
        let mut found = self.engine.overrides(policy, prefix, page_token, max + 1)?;
        self.done(Action::ListOverrides);
        let more = found.len() > max;
        found.truncate(max);
        let ((principal, peer), overrides) = (who(caller), found.len());
        tracing::info!(target: AUDIT, principal, peer, policy, prefix, overrides, more, "overrides listed");
        let last = found.last().filter(|_| more).map(|view| view.one.key.to_string());
        let overrides = found.iter().map(|view| written(&view.one, view.problem.as_deref())).collect();
        Ok(v1::ListOverridesResponse { overrides, next_page_token: last.unwrap_or_default() })
    }

    /// Sets a plan.
    pub(in crate::api) async fn set_plan(
        &self,
        caller: &Caller,
        request: v1::SetPlanRequest,
    ) -> Result<v1::SetPlanResponse, Refusal> {
        let plan = request.plan.as_ref();
        let subject = plan.map_or_else(Subject::default, |plan| Subject::plan(&plan.policy, &plan.name));
        let attempt = Attempt::of(caller, Action::SetPlan, subject);
        attempt.perform(self.try_set_plan(caller, request)).await
    }

    async fn try_set_plan(
        &self,
        caller: &Caller,
        request: v1::SetPlanRequest,
    ) -> Result<v1::SetPlanResponse, Refusal> {
        let v1::Plan { policy, name, limits, .. } = request.plan.unwrap_or_default();
        caller.may(Endpoint::Admin, &policy, b"")?;
        let limits = changes(limits.unwrap_or_default())?;
        self.engine.set_plan(&policy, &name, &limits).await?;
        self.done(Action::SetPlan);
        let (principal, peer) = who(caller);
        tracing::info!(target: AUDIT, principal, peer, policy, plan = name, ?limits, "plan set");
        Ok(v1::SetPlanResponse {})
    }

    /// Removes a plan.
    pub(in crate::api) async fn remove_plan(
        &self,
        caller: &Caller,
        request: v1::RemovePlanRequest,
    ) -> Result<v1::RemovePlanResponse, Refusal> {
        let subject = Subject::plan(&request.policy, &request.name);
        let attempt = Attempt::of(caller, Action::RemovePlan, subject);
        attempt.perform(self.try_remove_plan(caller, request)).await
    }

    async fn try_remove_plan(
        &self,
        caller: &Caller,
        request: v1::RemovePlanRequest,
    ) -> Result<v1::RemovePlanResponse, Refusal> {
        let v1::RemovePlanRequest { policy, name } = request;
        caller.may(Endpoint::Admin, &policy, b"")?;
        let removed = self.engine.remove_plan(&policy, &name).await?;
        self.done(Action::RemovePlan);
        let (principal, peer) = who(caller);
        tracing::info!(target: AUDIT, principal, peer, policy, plan = name, removed, "plan removed");
        Ok(v1::RemovePlanResponse { removed })
    }

    /// Lists the plans of a policy.
    pub(in crate::api) fn list_plans(
        &self,
        caller: &Caller,
        request: &v1::ListPlansRequest,
    ) -> Result<v1::ListPlansResponse, Refusal> {
        let attempt = Attempt::of(caller, Action::ListPlans, Subject::plan(&request.policy, ""));
        attempt.ended(self.try_list_plans(caller, &request.policy))
    }

    fn try_list_plans(&self, caller: &Caller, policy: &str) -> Result<v1::ListPlansResponse, Refusal> {
        caller.may(Endpoint::Admin, policy, b"")?;
        let plans = self.engine.plans(policy)?;
        self.done(Action::ListPlans);
        let ((principal, peer), number) = (who(caller), plans.len());
        tracing::info!(target: AUDIT, principal, peer, policy, plans = number, "plans listed");
        let plans = plans.into_iter().map(|(plan, assigned)| v1::Plan {
            policy: plan.policy.into(),
            name: plan.name.into(),
            limits: Some(limits_written(&plan.limits)),
            assigned: signed(assigned as u64),
        });
        Ok(v1::ListPlansResponse { plans: plans.collect() })
    }
}

/// Returns what all keys of a pattern begin with. A caller that may act on it may act on each of them.
fn prefix(pattern: &str) -> &str {
    pattern.strip_suffix('*').unwrap_or(pattern)
}

fn changes(limits: v1::LimitChanges) -> Result<Limits, Refusal> {
    let v1::LimitChanges { rates, budgets, unlimited } = limits;
    for (changes, what, most) in [(rates.len(), "rates", RATES_MAX), (budgets.len(), "budgets", ON_STORE_MAX)]
    {
        if changes > most {
            return Err(Refusal::Invalid(format!("too many {what}: at most {most} are allowed")));
        }
    }
    let some = |number: i64, name| Ok::<_, Refusal>(Some(count(number, name)?).filter(|number| *number > 0));
    let rate = |rate: v1::RateChange| {
        Ok::<_, Refusal>(RateChange {
            name: rate.name.into(),
            limit: count(rate.limit, "limit")?,
            burst: some(rate.burst, "burst")?,
            per_ms: some(rate.per_ms, "per_ms")?,
        })
    };
    let budget = |v1::BudgetChange { name, budget }| {
        Ok::<_, Refusal>(BudgetChange { name: name.into(), budget: count(budget, "budget")? })
    };
    let rates = rates.into_iter().map(rate).collect::<Result<_, _>>()?;
    let budgets = budgets.into_iter().map(budget).collect::<Result<_, _>>()?;
    Ok(Limits { rates, budgets, unlimited })
}

fn written(one: &Override, problem: Option<&str>) -> v1::Override {
    let (limits, plan) = match &one.terms {
        Terms::Limits(limits) => (Some(limits_written(limits)), String::new()),
        Terms::Plan(plan) => (None, plan.to_string()),
    };
    v1::Override {
        policy: one.policy.to_string(),
        key: one.key.to_string(),
        limits,
        plan,
        expires_at: one.expires_ms.map_or(0, signed),
        set_at: signed(one.set_ms),
        set_by: one.set_by.to_string(),
        problem: problem.unwrap_or_default().to_owned(),
    }
}

fn limits_written(limits: &Limits) -> v1::LimitChanges {
    let rate = |rate: &RateChange| v1::RateChange {
        name: rate.name.to_string(),
        limit: signed(rate.limit),
        burst: rate.burst.map_or(0, signed),
        per_ms: rate.per_ms.map_or(0, signed),
    };
    let budget = |BudgetChange { name, budget }: &BudgetChange| v1::BudgetChange {
        name: name.to_string(),
        budget: signed(*budget),
    };
    v1::LimitChanges {
        rates: limits.rates.iter().map(rate).collect(),
        budgets: limits.budgets.iter().map(budget).collect(),
        unlimited: limits.unlimited,
    }
}
