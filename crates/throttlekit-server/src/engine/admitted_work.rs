//! Admitted work: a permit, which debits borrow and which is settled when the work ends.

use std::sync::{Arc, OnceLock};

use throttlekit::clock::{BootClock, Clock};
use throttlekit::guard::Ending;
use throttlekit::internals::Ends;
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{LeaseId, Owner, StoreError};
use throttlekit::{Decision, Guarantee, SharedPermit};

use super::Ended;
use super::lease_capacity::LeaseSlot;
use super::policy_call::Keys;
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
        mut slot: LeaseSlot,
    ) -> Self {
        slot.held_for(policy);
        let (policy, principal, since) = (policy.clone(), who.clone(), BootClock.now());
        let lease = OnceLock::new();
        Self { policy, keys, principal, lease, since, stage: Mutex::new(Stage::Held(permit)), _slot: slot }
    }

    pub(super) async fn debit(self: &Arc<Self>, tokens: u64) -> Result<(Decision, Guarantee), NotDebited> {
        let Some(permit) = self.borrow()? else { return Err(NotDebited::Unknown) };
        let mut borrowed = Borrowed { work: self, permit: Some(permit) };
        let permit = borrowed.permit.as_mut().ok_or(NotDebited::Unknown)?;
        let decision = permit.debit(tokens).await.map_err(NotDebited::Store)?;
        Ok((decision, permit.guarantee()))
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
            settle(permit, how);
        }
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
                settle(permit, how);
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
