//! Admitted work: a permit, which debits borrow and which its end settles.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use throttlekit::admission::SharedPermit;
use throttlekit::slots::{Ending, Ends};
use throttlekit::store::StoreError;
use throttlekit::{Decision, Guarantee};

use super::Ended;
use super::ask::Keys;
use super::lease_capacity::LeaseSlot;

/// Admitted work.
pub(super) struct AdmittedWork {
    pub(super) policy: Arc<str>,
    pub(super) keys: Keys,
    stage: Mutex<Stage>,
    /// Free again when nobody has this any more.
    _slot: LeaseSlot,
}

/// The same, as the registry of leases holds it.
#[derive(Clone)]
pub(super) struct RegisteredWork(pub(super) Arc<AdmittedWork>);

/// How far it has come.
enum Stage {
    // Held => Debiting | Over
    Held(SharedPermit),
    // Debiting => Held | Over
    Debiting,
    // Debiting => Ending => Over: whoever debits ends it then.
    Ending(How),
    Over,
}

/// How work ends.
#[derive(Clone, Copy)]
enum How {
    /// As its client said.
    Told(Ended),
    /// Without a word of the client's: all that was set aside may have been used.
    Unheard { dropped: bool },
    /// Not here: its client may work on until its lease ends, after this process has. Slots on the store lapse then, and
    /// what was set aside stays charged.
    Outliving,
}

/// Why a debit of held work was not made.
pub(super) enum NotDebited {
    /// No such lease of this owner.
    Unknown,
    /// Another debit of the same lease is under way.
    Busy,
    Store(StoreError),
}

impl AdmittedWork {
    pub(super) fn new(policy: &Arc<str>, keys: Keys, permit: SharedPermit, mut slot: LeaseSlot) -> Self {
        slot.held_for(policy);
        Self { policy: policy.clone(), keys, stage: Mutex::new(Stage::Held(permit)), _slot: slot }
    }

    pub(super) async fn debit(self: &Arc<Self>, tokens: u64) -> Result<(Decision, Guarantee), NotDebited> {
        let Some(permit) = self.borrow()? else { return Err(NotDebited::Unknown) };
        let mut borrowed = Borrowed { work: self, permit: Some(permit) };
        let permit = borrowed.permit.as_mut().ok_or(NotDebited::Unknown)?;
        let decision = permit.debit(tokens).await.map_err(NotDebited::Store)?;
        Ok((decision, permit.guarantee()))
    }

    pub(super) fn is_fenced(&self) -> bool {
        matches!(&*lock(&self.stage), Stage::Held(permit) if permit.is_fenced())
    }

    /// Takes the permit for a debit. Nothing, if the work is over.
    fn borrow(&self) -> Result<Option<SharedPermit>, NotDebited> {
        let mut stage = lock(&self.stage);
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

    /// Leaves the work to its client, who has a lease that outlives this process.
    pub(super) fn leave(&self) {
        self.end(How::Outliving);
    }

    pub(super) fn end_as(&self, how: Ended) {
        self.end(How::Told(how));
    }

    fn end(&self, how: How) {
        let mut stage = lock(&self.stage);
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

/// The permit while a debit is under way. However that ends, it is put back, or ended if the work is over.
struct Borrowed<'a> {
    work: &'a AdmittedWork,
    permit: Option<SharedPermit>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let mut stage = lock(&self.work.stage);
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Ending(how) => {
                drop(stage);
                settle(permit, how);
            }
            _ => *stage = Stage::Held(permit),
        }
    }
}

/// A client that has fallen silent may have done all of its work: what was set aside for it stays charged.
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

/// Nothing under this lock runs code of others, so a panic leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
