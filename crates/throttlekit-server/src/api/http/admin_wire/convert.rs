//! Conversions between JSON documents and messages of `throttlekit.v1`.

use throttlekit_proto::v1;

use super::super::wire::unsigned;
use super::*;
use crate::wire_format::signed;

impl From<GrantRequest> for v1::GrantRequest {
    fn from(GrantRequest { policy, key, keys, units, id }: GrantRequest) -> Self {
        Self { policy, key, keys, units: signed(units), id }
    }
}

impl From<v1::GrantResponse> for Granted {
    fn from(v1::GrantResponse { repeated, remaining, limit }: v1::GrantResponse) -> Self {
        Self { repeated, remaining: unsigned(remaining), limit: unsigned(limit) }
    }
}

impl From<LimitChanges> for v1::LimitChanges {
    fn from(LimitChanges { rates, budgets, unlimited }: LimitChanges) -> Self {
        let rate = |RateChange { name, limit, burst, per_ms }| v1::RateChange {
            name,
            limit: signed(limit),
            burst: signed(burst),
            per_ms: signed(per_ms),
        };
        let budget = |BudgetChange { name, budget }| v1::BudgetChange { name, budget: signed(budget) };
        let (rates, budgets) = (rates.into_iter().map(rate), budgets.into_iter().map(budget));
        Self { rates: rates.collect(), budgets: budgets.collect(), unlimited }
    }
}

impl From<v1::LimitChanges> for LimitChanges {
    fn from(v1::LimitChanges { rates, budgets, unlimited }: v1::LimitChanges) -> Self {
        let rate = |v1::RateChange { name, limit, burst, per_ms }| RateChange {
            name,
            limit: unsigned(limit),
            burst: unsigned(burst),
            per_ms: unsigned(per_ms),
        };
        let budget = |v1::BudgetChange { name, budget }| BudgetChange { name, budget: unsigned(budget) };
        let (rates, budgets) = (rates.into_iter().map(rate), budgets.into_iter().map(budget));
        Self { rates: rates.collect(), budgets: budgets.collect(), unlimited }
    }
}

impl From<SetOverrideRequest> for v1::SetOverrideRequest {
    fn from(request: SetOverrideRequest) -> Self {
        let SetOverrideRequest { policy, key, limits, plan, for_ms, expires_at } = request;
        let (limits, expires_at) = (limits.map(Into::into), signed(expires_at));
        let one = v1::Override { policy, key, limits, plan, expires_at, ..v1::Override::default() };
        Self { r#override: Some(one), for_ms: signed(for_ms) }
    }
}

impl From<v1::Override> for Override {
    fn from(one: v1::Override) -> Self {
        let v1::Override { policy, key, limits, plan, expires_at, set_at, set_by, problem } = one;
        let (expires_at, set_at) = (unsigned(expires_at), unsigned(set_at));
        Self { policy, key, limits: limits.map(Into::into), plan, expires_at, set_at, set_by, problem }
    }
}

impl From<v1::SetOverrideResponse> for OverrideSet {
    fn from(response: v1::SetOverrideResponse) -> Self {
        Self { one: response.r#override.map(Into::into) }
    }
}

impl From<RemoveOverrideRequest> for v1::RemoveOverrideRequest {
    fn from(RemoveOverrideRequest { policy, key }: RemoveOverrideRequest) -> Self {
        Self { policy, key }
    }
}

impl From<v1::RemoveOverrideResponse> for Removed {
    fn from(v1::RemoveOverrideResponse { removed }: v1::RemoveOverrideResponse) -> Self {
        Self { removed }
    }
}

impl From<ListOverridesRequest> for v1::ListOverridesRequest {
    fn from(request: ListOverridesRequest) -> Self {
        let ListOverridesRequest { policy, prefix, page_size, page_token } = request;
        Self { policy, prefix, page_size: page_size.into(), page_token }
    }
}

impl From<v1::ListOverridesResponse> for Overrides {
    fn from(response: v1::ListOverridesResponse) -> Self {
        let v1::ListOverridesResponse { overrides, next_page_token } = response;
        Self { overrides: overrides.into_iter().map(Into::into).collect(), next_page_token }
    }
}

impl From<SetPlanRequest> for v1::SetPlanRequest {
    fn from(SetPlanRequest { policy, name, limits }: SetPlanRequest) -> Self {
        Self { plan: Some(v1::Plan { policy, name, limits: Some(limits.into()), assigned: 0 }) }
    }
}

impl From<RemovePlanRequest> for v1::RemovePlanRequest {
    fn from(RemovePlanRequest { policy, name }: RemovePlanRequest) -> Self {
        Self { policy, name }
    }
}

impl From<v1::RemovePlanResponse> for Removed {
    fn from(v1::RemovePlanResponse { removed }: v1::RemovePlanResponse) -> Self {
        Self { removed }
    }
}

impl From<ListPlansRequest> for v1::ListPlansRequest {
    fn from(ListPlansRequest { policy }: ListPlansRequest) -> Self {
        Self { policy }
    }
}

impl From<v1::ListPlansResponse> for Plans {
    fn from(response: v1::ListPlansResponse) -> Self {
        let plan = |v1::Plan { policy, name, limits, assigned }| {
            let (limits, assigned) = (limits.unwrap_or_default().into(), unsigned(assigned));
            Plan { policy, name, limits, assigned }
        };
        Self { plans: response.plans.into_iter().map(plan).collect() }
    }
}

impl From<LeaseFilter> for v1::LeaseFilter {
    fn from(LeaseFilter { policy, key, principal, handle }: LeaseFilter) -> Self {
        Self { policy, key, principal, handle }
    }
}

impl From<ListLeasesRequest> for v1::ListLeasesRequest {
    fn from(ListLeasesRequest { filter, page_size, page_token }: ListLeasesRequest) -> Self {
        Self { filter: Some(filter.into()), page_size: page_size.into(), page_token }
    }
}

impl From<v1::ListLeasesResponse> for HeldLeases {
    fn from(response: v1::ListLeasesResponse) -> Self {
        let v1::ListLeasesResponse { leases, next_page_token } = response;
        let lease = |v1::HeldLease { handle, policy, keys, principal, held_for_ms }| HeldLease {
            handle,
            policy,
            keys,
            principal,
            held_for_ms: unsigned(held_for_ms),
        };
        Self { leases: leases.into_iter().map(lease).collect(), next_page_token }
    }
}

impl From<ReleaseLeasesRequest> for v1::ReleaseLeasesRequest {
    fn from(ReleaseLeasesRequest { filter }: ReleaseLeasesRequest) -> Self {
        Self { filter: Some(filter.into()) }
    }
}

impl From<v1::ReleaseLeasesResponse> for LeasesReleased {
    fn from(v1::ReleaseLeasesResponse { released, more }: v1::ReleaseLeasesResponse) -> Self {
        Self { released: unsigned(released), more }
    }
}

impl From<v1::ReloadResponse> for FilesReloaded {
    fn from(v1::ReloadResponse { config_hash, error }: v1::ReloadResponse) -> Self {
        Self { config_hash, error }
    }
}

impl From<SetLogFilterRequest> for v1::SetLogFilterRequest {
    fn from(SetLogFilterRequest { filter }: SetLogFilterRequest) -> Self {
        Self { filter }
    }
}
