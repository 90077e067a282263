//! Admitted work: a permit, which debits borrow and which is settled when the work ends.

use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use throttlekit::clock::{BootClock, Clock};
use throttlekit::guard::Ending;
use throttlekit::internals::Ends;
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{LeaseId, Owner, StoreError};
use throttlekit::{Axis, Guarantee, Retry, SharedPermit};

use super::lease_capacity::LeaseSlot;
use super::policy_call::Keys;
use super::reservations::Reserved;
use super::{Answered, Ended};
use crate::principal::Principal;

/// Admitted work.
pub(super) struct AdmittedWork {
    pub(super) policy: Arc<str>,
    pub(super) keys: Keys,
    /// The principal that holds it.
    pub(super) principal: Principal,
    /// Its lease, once it has one.
    pub(super) lease: OnceLock<(Owner, LeaseId)>,
    /// Time of admission.
    pub(super) since: Timestamp,
    stage: Mutex<Stage>,
    /// Its learned reservation, if it has one.
    reserved: Option<Arc<Reserved>>,
    /// Freed when the last reference is dropped.
    _slot: LeaseSlot,
}

/// Admitted work as the lease registry holds it.
#[derive(Clone)]
pub(super) struct RegisteredWork(pub(super) Arc<AdmittedWork>);

/// State of admitted work.
enum Stage {
    // Held => Debiting | Over
    Held(SharedPermit),
    // Debiting => Held | Over
    Debiting,
    // Debiting => Ending => Over: the debit in progress ends it.
    Ending(How),
    Over,
}

/// Outcome of work that has ended.
#[derive(Clone, Copy)]
enum How {
    /// As its client reported.
    Told(Ended),
    /// Without a report from the client: all that was reserved may have been used.
    Unheard { dropped: bool },
    /// Not in this process: its client may continue until its lease expires, after this process has ended. Slots on the
    /// store expire then, and what was reserved stays charged.
    Outliving,
}

/// Reason why a debit of held work was not made.
pub(super) enum NotDebited {
    /// No such lease of this owner.
    Unknown,
    /// Another debit of the same lease is in progress.
    Busy,
    Store(StoreError),
}

impl AdmittedWork {
    pub(super) fn new(
        who: &Principal,
        policy: &Arc<str>,
        keys: Keys,
        permit: SharedPermit,
        reserved: Option<Reserved>,
        mut slot: LeaseSlot,
    ) -> Self {
        slot.held_for(policy);
        let (policy, principal, since) = (policy.clone(), who.clone(), BootClock.now());
        let lease = OnceLock::new();
        let (stage, reserved) = (Mutex::new(Stage::Held(permit)), reserved.map(Arc::new));
        Self { policy, keys, principal, lease, since, stage, reserved, _slot: slot }
    }

    pub(super) async fn debit(self: &Arc<Self>, tokens: u64) -> Result<Answered, NotDebited> {
        let Some(permit) = self.borrow()? else { return Err(NotDebited::Unknown) };
        let mut borrowed = Borrowed { work: self, permit: Some(permit) };
        let permit = borrowed.permit.as_mut().ok_or(NotDebited::Unknown)?;
        let mut decision = permit.debit(tokens).await.map_err(NotDebited::Store)?;
        if let Some(reserved) = &self.reserved {
            if decision.allowed {
                reserved.debited(permit.reserved());
            } else if permit.guarantee() != Guarantee::Closed && reserved.others_hold() {
                // Any token that other work returns lets the next debit pass.
                decision.retry_after = Retry::OnRelease;
            }
        }
        Ok(Answered::of(decision, permit.guarantee(), Axis::Cost).by_limit(permit.limit_name()))
    }

    pub(super) fn is_fenced(&self) -> bool {
        matches!(&*self.stage.lock(), Stage::Held(permit) if permit.is_fenced())
    }

    /// Takes the permit for a debit. Returns `None` if the work is over.
    fn borrow(&self) -> Result<Option<SharedPermit>, NotDebited> {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Debiting) {
            Stage::Held(permit) => Ok(Some(permit)),
            before @ (Stage::Debiting | Stage::Ending(_)) => {
                *stage = before;
                Err(NotDebited::Busy)
            }
            Stage::Over => {
                *stage = Stage::Over;
                Ok(None)
            }
        }
    }

    pub(super) fn end_unheard(&self, dropped: bool) {
        self.end(How::Unheard { dropped });
    }

    /// Leaves the work to its client, whose lease outlives this process.
    pub(super) fn leave(&self) {
        self.end(How::Outliving);
    }

    pub(super) fn end_as(&self, how: Ended) {
        self.end(How::Told(how));
    }

    fn end(&self, how: How) {
        let mut stage = self.stage.lock();
        let before = std::mem::replace(&mut *stage, Stage::Over);
        if let Stage::Debiting = before {
            *stage = Stage::Ending(how);
            return;
        }
        drop(stage);
        if let Stage::Held(permit) = before {
            self.settle(permit, how);
        }
    }

    fn settle(&self, permit: SharedPermit, how: How) {
        let How::Told(ended) = how else { return settle(permit, how) };
        let Some(reserved) = self.reserved.clone() else { return settle(permit, how) };
        if let Some(used) = lesson(&permit, ended) {
            reserved.learn(used);
        }
        if ended.latency.is_some() {
            return settle(permit, how);
        }
        give_back(permit, ended, reserved);
    }
}

/// The permit while a debit is in progress. When that ends, it is put back, or ended if the work is over.
struct Borrowed<'a> {
    work: &'a AdmittedWork,
    permit: Option<SharedPermit>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let mut stage = self.work.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Ending(how) => {
                drop(stage);
                self.work.settle(permit, how);
            }
            _ => *stage = Stage::Held(permit),
        }
    }
}

/// A client whose heartbeats stopped may have done all of its work: what was reserved for it stays charged.
impl Ends for RegisteredWork {
    fn end(self, _how: Ending) {
        self.0.end_unheard(true);
    }
}

/// Returns the tokens that work used in all, if that is known, and if the work is representative.
fn lesson(permit: &SharedPermit, how: Ended) -> Option<u64> {
    if how.dropped || how.ignored {
        return None;
    }
    how.actual_cost.or_else(|| Some(permit.used()).filter(|used| *used > 0))
}

/// Ends work with a learned reservation, which counts as held until its rest has reached the store: a call that is denied
/// meanwhile does not wait for the next window.
fn give_back(mut permit: SharedPermit, how: Ended, reserved: Arc<Reserved>) {
    if let Some(actual) = how.actual_cost {
        permit.settle(actual);
    }
    let ending = match how {
        Ended { dropped: true, .. } => Ending::Dropped,
        Ended { ignored: true, .. } => Ending::Ignored,
        Ended { .. } => Ending::Success,
    };
    let mut closing = Box::pin(permit.close(ending));
    // The slot is free before the response.
    if closing.as_mut().now_or_never().is_none() {
        tokio::spawn(async move {
            // What could not be returned stays charged until its window ends.
            let _ = closing.await;
            drop(reserved);
        });
    }
}

fn settle(mut permit: SharedPermit, how: How) {
    let how = match how {
        How::Told(how) => how,
        How::Outliving => return std::mem::forget(permit),
        How::Unheard { dropped } => {
            let set_aside = permit.used().saturating_add(permit.reserved());
            Ended { dropped, ignored: !dropped, actual_cost: Some(set_aside), latency: None }
        }
    };
    if let Some(actual) = how.actual_cost {
        permit.settle(actual);
    }
    match how {
        Ended { dropped: true, .. } => permit.dropped(),
        Ended { ignored: true, .. } => permit.ignored(),
        Ended { latency: Some(latency), .. } => permit.success_after(latency),
        Ended { .. } => permit.success(),
    }
}
