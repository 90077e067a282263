//! Actions of operators: rights, engine, audit log. All APIs pass their requests here as messages of `throttlekit.v1`.

mod attempt;
mod control;
mod overrides;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use throttlekit_proto::v1;

pub(crate) use control::Control;

use attempt::{Attempt, Subject};

use crate::access::Caller;
use crate::audit::{AUDIT, Action};
use crate::engine::{Engine, LeaseFilter, PolicyCall, Refusal};
use crate::policy::Endpoint;
use crate::wire_format::{millis_down, signed, slices};

/// Maximum number of entries of a page, and of leases that one request ends.
const PAGE_MAX: usize = 500;
/// Default number of entries of a page.
const PAGE_DEFAULT: usize = 100;

/// The actions of operators on an engine, and on its server if there is one.
#[derive(Clone)]
pub(crate) struct Operator {
    engine: Engine,
    control: Option<Arc<Control>>,
}

impl Operator {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, control: None }
    }

    /// Adds actions on the whole server.
    pub(crate) fn of_server(self, control: Arc<Control>) -> Self {
        Self { control: Some(control), ..self }
    }

    fn done(&self, action: Action) {
        self.engine.actions().count(action);
    }

    /// Forgets what the keys of one call have used.
    pub(super) async fn reset(
        &self,
        caller: &Caller,
        request: v1::ResetRequest,
    ) -> Result<v1::ResetResponse, Refusal> {
        let v1::ResetRequest { policy, key, keys } = &request;
        let subject = Subject { keys: keys.clone(), ..Subject::key(policy, key) };
        Attempt::of(caller, Action::Reset, subject).perform(self.try_reset(caller, request)).await
    }

    async fn try_reset(
        &self,
        caller: &Caller,
        request: v1::ResetRequest,
    ) -> Result<v1::ResetResponse, Refusal> {
        let v1::ResetRequest { policy, key, keys } = request;
        let others = may_for(caller, &policy, &key, &keys)?;
        let call = PolicyCall { policy: &policy, key: key.as_bytes(), others: &others, cost: 1 };
        self.engine.reset(call).await?;
        self.done(Action::Reset);
        let (principal, peer) = who(caller);
        // Other logs leave out keys. An audit log has to name the one that was changed.
        tracing::info!(target: AUDIT, principal, peer, policy, key, ?keys, "key reset");
        Ok(v1::ResetResponse {})
    }

    /// Grants units once.
    pub(super) async fn grant(
        &self,
        caller: &Caller,
        request: v1::GrantRequest,
    ) -> Result<v1::GrantResponse, Refusal> {
        let v1::GrantRequest { policy, key, keys, .. } = &request;
        let subject = Subject { keys: keys.clone(), ..Subject::key(policy, key) };
        Attempt::of(caller, Action::Grant, subject).perform(self.try_grant(caller, request)).await
    }

    async fn try_grant(
        &self,
        caller: &Caller,
        request: v1::GrantRequest,
    ) -> Result<v1::GrantResponse, Refusal> {
        let v1::GrantRequest { policy, key, keys, units, id } = request;
        let others = may_for(caller, &policy, &key, &keys)?;
        let cost = count(units, "units")?;
        if cost == 0 {
            return Err(Refusal::Invalid("invalid units: expected at least 1".into()));
        }
        let call = PolicyCall { policy: &policy, key: key.as_bytes(), others: &others, cost };
        let (left, repeated) = self.engine.grant(call, &id).await?;
        self.done(Action::Grant);
        let (principal, peer) = who(caller);
        tracing::info!(
            target: AUDIT, principal, peer, policy, key, ?keys, units, id, repeated, "credit granted"
        );
        let (remaining, limit) = (signed(left.decision.remaining), signed(left.decision.limit));
        Ok(v1::GrantResponse { repeated, remaining, limit })
    }

    /// Lists leases of clients at this server.
    pub(super) async fn list_leases(
        &self,
        caller: &Caller,
        request: v1::ListLeasesRequest,
    ) -> Result<v1::ListLeasesResponse, Refusal> {
        let subject = subject_of(request.filter.as_ref());
        Attempt::of(caller, Action::ListLeases, subject).perform(self.try_list_leases(caller, request)).await
    }

    async fn try_list_leases(
        &self,
        caller: &Caller,
        request: v1::ListLeasesRequest,
    ) -> Result<v1::ListLeasesResponse, Refusal> {
        let v1::ListLeasesRequest { filter, page_size, page_token } = request;
        let filter = lease_filter(caller, filter)?;
        let max = page_max(page_size)?;
        let mut found = self.engine.held_leases(filter.clone(), page_token, max + 1).await;
        self.done(Action::ListLeases);
        let more = found.len() > max;
        found.truncate(max);
        let (principal, peer) = who(caller);
        let (LeaseFilter { policy, key, principal: holder, handle }, leases) = (filter, found.len());
        tracing::info!(
            target: AUDIT, principal, peer, policy, key, holder, handle, leases, more, "leases listed"
        );
        let next = found.last().filter(|_| more).map(|last| last.handle.clone());
        let leases = found.into_iter().map(|held| v1::HeldLease {
            handle: held.handle,
            policy: held.policy,
            keys: held.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect(),
            principal: held.principal,
            held_for_ms: millis_down(held.held_for),
        });
        Ok(v1::ListLeasesResponse { leases: leases.collect(), next_page_token: next.unwrap_or_default() })
    }

    /// Ends leases of clients at this server.
    pub(super) async fn release_leases(
        &self,
        caller: &Caller,
        request: v1::ReleaseLeasesRequest,
    ) -> Result<v1::ReleaseLeasesResponse, Refusal> {
        let subject = subject_of(request.filter.as_ref());
        let attempt = Attempt::of(caller, Action::ReleaseLeases, subject);
        attempt.perform(self.try_release_leases(caller, request)).await
    }

    async fn try_release_leases(
        &self,
        caller: &Caller,
        request: v1::ReleaseLeasesRequest,
    ) -> Result<v1::ReleaseLeasesResponse, Refusal> {
        let filter = lease_filter(caller, request.filter)?;
        let (released, more) = self.engine.release_held(filter.clone(), PAGE_MAX).await;
        self.done(Action::ReleaseLeases);
        let (principal, peer) = who(caller);
        let LeaseFilter { policy, key, principal: holder, handle } = filter;
        tracing::info!(
            target: AUDIT, principal, peer, policy, key, holder, handle, released, more, "leases released"
        );
        Ok(v1::ReleaseLeasesResponse { released: signed(released as u64), more })
    }
}

/// Checks whether a caller may act on the keys of a call. Returns its further keys.
fn may_for<'k>(
    caller: &Caller,
    policy: &str,
    key: &str,
    keys: &'k [String],
) -> Result<Vec<&'k [u8]>, Refusal> {
    let others = slices(keys);
    caller.may(Endpoint::Admin, policy, key.as_bytes())?;
    caller.may_each(Endpoint::Admin, policy, &others)?;
    Ok(others)
}

/// Converts a filter, and checks whether the caller may act on all that it fits.
fn lease_filter(caller: &Caller, filter: Option<v1::LeaseFilter>) -> Result<LeaseFilter, Refusal> {
    let v1::LeaseFilter { policy, key, principal, handle } = filter.unwrap_or_default();
    caller.may_use(Endpoint::Admin)?;
    if policy.is_empty() {
        return Err(Refusal::Invalid("invalid filter: expected a policy".into()));
    }
    caller.may(Endpoint::Admin, &policy, key.as_bytes())?;
    Ok(LeaseFilter { policy, key, principal, handle })
}

fn subject_of(filter: Option<&v1::LeaseFilter>) -> Subject {
    filter.map_or_else(Subject::default, |filter| Subject::key(&filter.policy, &filter.key))
}

/// Returns the principal and the address of a caller, for the audit log.
fn who(caller: &Caller) -> (&str, Option<tracing::field::DisplayValue<std::net::SocketAddr>>) {
    (caller.principal().name(), caller.address().map(tracing::field::display))
}

/// Converts a number of the wire.
fn count(number: i64, name: &str) -> Result<u64, Refusal> {
    u64::try_from(number)
        .map_err(|_| Refusal::Invalid(format!("invalid {name}: expected no negative number")))
}

fn page_max(size: i32) -> Result<usize, Refusal> {
    match usize::try_from(size) {
        Ok(0) => Ok(PAGE_DEFAULT),
        Ok(size) if size <= PAGE_MAX => Ok(size),
        _ => Err(Refusal::Invalid(format!("invalid page_size: expected 0 to {PAGE_MAX}"))),
    }
}
