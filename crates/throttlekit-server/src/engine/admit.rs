//! Admission of work under a lease: debited while it runs, ended by its client or when its heartbeats stop.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::store::LeaseId;
use throttlekit::{Admit as _, Axis};

use super::admitted_work::NotDebited;
use super::lease_capacity::{Full, LeaseUsage};
use super::policy_call::Keys;
use super::recovery;
use super::running_policy::RunningPolicy;
use super::{Admitted, Answered, Ended, Engine, HeartbeatResult, PolicyCall, Refusal};
use crate::principal::Principal;

/// Maximum time that a stopping server waits for returns to reach the stores.
const SETTLE_MAX: Duration = Duration::from_secs(2);

impl Engine {
    /// Admits work that holds a lease while it runs.
    pub async fn admit(
        &self,
        who: &Principal,
        ask: PolicyCall<'_>,
        value: f64,
        hold: Option<f64>,
    ) -> Result<Admitted, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let variant = served.variant(ask.key).clone();
        variant.admits()?;
        if variant.is_unlimited() {
            let answer = self.told(&served, &ask, Answered::free(), since);
            return Ok(Admitted { answer, lease: None });
        }
        variant.has_keys(1 + ask.others.len())?;
        if let Some((limit, left)) = self.recovering(&served) {
            let answer = self.told(&served, &ask, recovery::denial(limit, left), since);
            return Ok(Admitted { answer, lease: None });
        }
        // Frees expired slots first.
        self.shared.leases.expire();
        let place = self.shared.leases.reserve(who.owner(), served.lease_for())?;
        let call = ask.call().value(value);
        let call = if let Some(hold) = hold { call.hold(hold) } else { call };
        let admission = variant.limits.admit(call).await?;
        let answer = Answered::admitted(&admission);
        let held = admission.permit.map(|permit| place.hold(&served.name, ask.owned_keys(), permit));
        let lease = held.transpose()?;
        Ok(Admitted { answer: self.told(&served, &ask, answer, since), lease })
    }

    /// Returns the concurrency limit of a policy that grants no slots yet after a start, and the time until it does.
    pub(super) fn recovering(&self, served: &RunningPolicy) -> Option<(u32, Duration)> {
        let spec = served.spec.concurrency.as_ref().filter(|_| served.forgets_slots())?;
        let left = self.shared.recovery.left(served.lease_for(), BootClock.now())?;
        Some((spec.limit, left))
    }

    /// Debits work that was admitted: its estimate covers the debit first. Allows one concurrent debit per lease.
    pub async fn debit_held(
        &self,
        who: &Principal,
        lease: LeaseId,
        tokens: u64,
    ) -> Result<Answered, Refusal> {
        let since = self.shared.clock.now();
        let owner = who.owner();
        let (policy, keys) = self.lease_of(who, lease)?;
        match Box::pin(self.shared.leases.debit(owner, lease, tokens)).await {
            Ok((decision, guarantee)) => {
                let answer = Answered::of(decision, guarantee, Axis::Cost);
                let key = keys.first().map_or(&[][..], AsRef::as_ref);
                let ask = PolicyCall { policy: &policy, key, others: &[], cost: tokens };
                match self.policy(&policy) {
                    Ok(served) => Ok(self.told(&served, &ask, answer, since)),
                    // Its policy was removed; the work runs to its end.
                    Err(_) => Ok(answer),
                }
            }
            Err(NotDebited::Unknown) => Err(no_lease()),
            Err(NotDebited::Busy) => {
                Err(Refusal::TooMany("a debit of this lease is in progress: send one at a time".into()))
            }
            Err(NotDebited::Store(error)) => Err(error.into()),
        }
    }

    /// Returns the policy and the keys of the call that a lease of this principal belongs to.
    pub fn lease_of(&self, who: &Principal, lease: LeaseId) -> Result<(Arc<str>, Keys), Refusal> {
        self.shared.leases.of(who.owner(), lease).ok_or_else(no_lease)
    }

    /// Ends work. Returns whether the lease was held by this principal; APIs do not report it.
    pub fn release(&self, who: &Principal, lease: LeaseId, how: Ended) -> bool {
        self.shared.leases.release(who.owner(), lease, how)
    }

    /// Renews leases.
    pub fn heartbeat(&self, who: &Principal, leases: &[LeaseId]) -> HeartbeatResult {
        self.shared.leases.heartbeat(who.owner(), leases)
    }

    /// Returns the number of leases that clients hold here.
    pub fn leases_held(&self) -> u64 {
        self.shared.leases.all_held()
    }

    /// Returns the leases that clients hold here, and their limits.
    pub fn lease_usage(&self) -> LeaseUsage {
        self.shared.leases.usage()
    }

    /// Waits until every lease has ended, and returns units that were fetched and not spent. For a server that is about
    /// to stop and accepts no more requests: leases are no longer renewed.
    pub async fn drain(&self, within: Duration) {
        let outliving = self.shared.leases.drain(within).await;
        if outliving > 0 {
            tracing::warn!(
                leases = outliving,
                "leases still held at shutdown: their slots are freed when they expire"
            );
        }
        let running = self.shared.running.load_full();
        for served in running.policies.values() {
            served.close().await;
        }
        // Returns reach the stores in the background.
        let deadline = tokio::time::Instant::now() + SETTLE_MAX;
        while running.policies.values().any(|served| served.is_settling())
            && tokio::time::Instant::now() < deadline
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn no_lease() -> Refusal {
    Refusal::Invalid("unknown lease: it was released, or it expired without a heartbeat".into())
}

impl From<Full> for Refusal {
    fn from(full: Full) -> Self {
        Self::TooMany(match full {
            Full::Owner => "lease limit of this caller reached: release some".into(),
            Full::Server => "lease limit of this server reached: use another".into(),
        })
    }
}
