//! Admission of work under a lease: debited while it runs, ended by its client or when its heartbeats stop.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::store::{LeaseId, StoreError};
use throttlekit::{Admission, Admit as _, Call, Retry};

use super::admitted_work::NotDebited;
use super::call_queue::CallQueue;
use super::lease_capacity::{Full, LeaseUsage};
use super::policy_call::Keys;
use super::recovery;
use super::running_policy::RunningPolicy;
use super::variant::Variant;
use super::{Admitted, Answered, Ended, Engine, HeartbeatResult, Later, PolicyCall, Refusal, WorkTerms};
use crate::principal::Principal;
use crate::share::Turn;

/// Maximum time that a stopping server waits for returns to reach the stores.
const SETTLE_MAX: Duration = Duration::from_secs(2);

impl Engine {
    /// Admits work that holds a lease while it runs.
    pub async fn admit(
        &self,
        who: &Principal,
        ask: PolicyCall<'_>,
        terms: WorkTerms<'_>,
    ) -> Result<Admitted, Refusal> {
        self.admit_in_turn(who, ask, terms, None).await
    }

    /// Like [`admit`](Self::admit). The turn of the request ends when it begins to wait.
    pub(crate) async fn admit_in_turn(
        &self,
        who: &Principal,
        mut ask: PolicyCall<'_>,
        terms: WorkTerms<'_>,
        turn: Option<&Turn>,
    ) -> Result<Admitted, Refusal> {
        ask.judge()?;
        terms.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let variant = served.variant(ask.key).clone();
        variant.admits()?;
        if variant.is_unlimited() {
            let answer = self.told(&served, &ask, Answered::free(), since);
            return Ok(Admitted::at_once(answer));
        }
        if let Some(denied) = variant.denies() {
            return Ok(Admitted::at_once(self.told(&served, &ask, denied, since)));
        }
        variant.has_keys(1 + ask.others.len())?;
        if let Some((limit, left)) = self.recovering(&served) {
            let answer = self.told(&served, &ask, recovery::denial(limit, left), since);
            return Ok(Admitted::at_once(answer));
        }
        // Frees expired slots first.
        self.shared.leases.expire();
        let place = self.shared.leases.reserve(who.owner(), served.lease_for())?;
        let learns = served.learns(&variant, &ask, &terms);
        ask.cost = learns.as_ref().map_or(ask.cost, |(_, wanted)| wanted.tokens);
        let may_wait = !served.spec.shadow && !self.is_draining();
        let wait = if may_wait { terms.wait } else { Duration::ZERO };
        let (admission, waited) = self.decide_work(&variant, ask.work(&terms), wait, turn).await;
        let mut admission = admission?;
        if let Some(less) = learns.as_ref().and_then(|(_, wanted)| wanted.smaller(&admission)) {
            ask.cost = less;
            admission = self.decide_work(&variant, ask.work(&terms), Duration::ZERO, turn).await.0?;
        }
        let mut answer = Answered::admitted(&admission);
        if let Some((reservations, wanted)) = &learns
            && reservations.may_be_returned(wanted, &admission)
        {
            answer.decision.retry_after = Retry::OnRelease;
        }
        let mut reserved = 0;
        let lease = match admission.permit {
            Some(permit) if variant.holds() => {
                let tokens = learns.map(|(reservations, wanted)| reservations.hold(wanted, ask.cost));
                reserved = tokens.as_ref().map_or(0, |_| ask.cost);
                Some(place.hold(who, &served.name, ask.owned_keys(), permit, tokens)?)
            }
            // Nobody settles it later: the estimated cost is the cost.
            Some(permit) => {
                permit.success();
                None
            }
            None => None,
        };
        // A wait is not time that the decision took.
        Ok(Admitted { answer: self.told(&served, &ask, answer, since + waited), lease, waited, reserved })
    }

    /// Decides a call, at once or when its turn has come. Returns the time that it waited as well.
    async fn decide_work(
        &self,
        variant: &Variant,
        call: Call<'_>,
        wait: Duration,
        turn: Option<&Turn>,
    ) -> (Result<Admission, StoreError>, Duration) {
        match &variant.queue {
            None => (variant.limits.admit(call).await, Duration::ZERO),
            Some(queue) => self.admit_queued(queue, call, queue.allows(wait), turn).await,
        }
    }

    /// Decides a call that may wait. Returns the time that it waited as well.
    async fn admit_queued(
        &self,
        queue: &CallQueue,
        call: Call<'_>,
        wait: Duration,
        turn: Option<&Turn>,
    ) -> (Result<Admission, StoreError>, Duration) {
        // A caller that has too many requests waiting gets its decision at once.
        let waits = turn.filter(|_| !wait.is_zero()).map(Turn::waits);
        let wait = if matches!(waits, Some(None)) { Duration::ZERO } else { wait };
        let mut decision: Later<'_, _> = Box::pin(queue.admit(call, wait, self.drains()));
        if let Poll::Ready(decided) = futures_util::poll!(decision.as_mut()) {
            return (decided, Duration::ZERO);
        }
        let since = self.shared.clock.now();
        if let Some(turn) = turn.filter(|_| !wait.is_zero()) {
            turn.pause();
        }
        let decided = decision.await;
        (decided, if wait.is_zero() { Duration::ZERO } else { self.shared.clock.now().since(since) })
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
            Ok(answer) => {
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
        while self.is_settling() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Checks whether what work returned has yet to reach the stores.
    pub fn is_settling(&self) -> bool {
        self.shared.running.load().policies.values().any(|served| served.is_settling())
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
