//! Work that clients hold something for: under leases, each bound to whom it was given.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use throttlekit::admission::SharedPermit;
use throttlekit::slots::{Ending, Ends};
use throttlekit::store::{Beat, LeaseId, Owner, Slot, StoreError};
use throttlekit::{Clock, Decision, Guarantee, SlotDesk, WallClock};

use super::{Beats, Ended, Held};

/// How many different lives leases may have at a time, over all policies.
const LIVES_MAX: usize = 64;
/// How often it is looked whether leases are left.
const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(20);

/// All leases of this instance.
pub(super) struct Leases {
    /// One desk for each life that a policy gives its leases.
    desks: Mutex<Vec<(Duration, Arc<SlotDesk<AtDesk>>)>>,
    leases_max: u32,
    leases_per_owner_max: u32,
    owners: Arc<Mutex<HashMap<Owner, u32>>>,
}

/// Admitted work.
pub(super) struct Work {
    policy: Arc<str>,
    key: Box<[u8]>,
    stage: Mutex<Stage>,
    owner: Owner,
    owners: Arc<Mutex<HashMap<Owner, u32>>>,
}

/// The same, as a desk holds it.
#[derive(Clone)]
struct AtDesk(Arc<Work>);

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
}

/// Why a debit of held work was not made.
pub(super) enum NotDebited {
    /// No such lease of this owner.
    Unknown,
    /// Another debit of the same lease is under way.
    Busy,
    Store(StoreError),
}

impl Leases {
    pub(super) fn new(leases_max: u32, leases_per_owner_max: u32) -> Self {
        Self { desks: Mutex::default(), leases_max, leases_per_owner_max, owners: Arc::default() }
    }

    /// Whether this owner may hold one more.
    pub(super) fn has_room(&self, owner: Owner) -> bool {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(&owner).is_none_or(|held| *held < self.leases_per_owner_max)
    }

    /// Holds a permit for an owner. Nothing, if there are too many: then the permit has been given back.
    pub(super) fn hold(
        &self,
        owner: Owner,
        policy: &Arc<str>,
        key: &[u8],
        lives: Duration,
        permit: SharedPermit,
    ) -> Option<Held> {
        let desk = self.desk(lives)?;
        let owners = self.owners.clone();
        *lock(&owners).entry(owner).or_default() += 1;
        let stage = Mutex::new(Stage::Held(permit));
        let work = Work { policy: policy.clone(), key: key.into(), stage, owner, owners };
        match desk.admit(owner, AtDesk(Arc::new(work))) {
            Ok((id, Slot { lives, .. })) => Some(Held { id, lives, until: WallClock.now() + lives }),
            Err(AtDesk(work)) => {
                work.end_as(Ended { ignored: true, actual_cost: Some(0), ..Ended::default() });
                None
            }
        }
    }

    fn desk(&self, lives: Duration) -> Option<Arc<SlotDesk<AtDesk>>> {
        let mut desks = lock(&self.desks);
        if let Some((_, desk)) = desks.iter().find(|(known, _)| *known == lives) {
            return Some(desk.clone());
        }
        // One that somebody is about to use is not empty.
        desks.retain(|(_, desk)| desk.held() > 0 || Arc::strong_count(desk) > 1);
        if desks.len() >= LIVES_MAX {
            return None;
        }
        let desk = Arc::new(SlotDesk::new(self.leases_max, lives));
        desks.push((lives, desk.clone()));
        Some(desk)
    }

    fn all(&self) -> Vec<Arc<SlotDesk<AtDesk>>> {
        lock(&self.desks).iter().map(|(_, desk)| desk.clone()).collect()
    }

    /// Ends a lease of this owner, and says whether there was one.
    pub(super) fn release(&self, owner: Owner, lease: LeaseId, how: Ended) -> bool {
        let work = self.all().into_iter().find_map(|desk| desk.take(owner, lease));
        let held = work.is_some();
        if let Some(AtDesk(work)) = work {
            work.end_as(how);
        }
        held
    }

    pub(super) fn heartbeat(&self, owner: Owner, leases: &[LeaseId]) -> Beats {
        let mut held: Vec<Option<Slot>> = vec![None; leases.len()];
        for desk in self.all() {
            for (known, beat) in held.iter_mut().zip(desk.heartbeat(owner, leases)) {
                if let Beat::Held(slot) = beat {
                    *known = Some(slot);
                }
            }
        }
        let now = WallClock.now();
        let mut beats = Beats::default();
        for (lease, slot) in leases.iter().zip(held) {
            match slot.filter(|_| !self.ended_if_fenced(owner, *lease)) {
                Some(slot) => {
                    beats.live.push(*lease);
                    let until = now + slot.lives;
                    beats.next_deadline = Some(beats.next_deadline.map_or(until, |first| first.min(until)));
                }
                None => beats.reclaimed.push(*lease),
            }
        }
        beats
    }

    /// Whether others may have the slot by now, since this instance lost touch with the store: then the client must stop.
    fn ended_if_fenced(&self, owner: Owner, lease: LeaseId) -> bool {
        let fenced =
            |desk: &Arc<SlotDesk<AtDesk>>| desk.find(owner, lease).is_some_and(|work| work.0.is_fenced());
        let Some(desk) = self.all().into_iter().find(fenced) else { return false };
        if let Some(AtDesk(work)) = desk.take(owner, lease) {
            work.end_unheard(false);
        }
        true
    }

    /// Charges held work for what it produced: its estimate covers it first.
    pub(super) async fn debit(
        &self,
        owner: Owner,
        lease: LeaseId,
        tokens: u64,
    ) -> Result<(Decision, Guarantee), NotDebited> {
        let work = self.all().into_iter().find_map(|desk| desk.find(owner, lease));
        work.ok_or(NotDebited::Unknown)?.0.debit(tokens).await
    }

    /// What a lease of this owner was given for: a policy and a key.
    pub(super) fn of(&self, owner: Owner, lease: LeaseId) -> Option<(Arc<str>, Box<[u8]>)> {
        let AtDesk(work) = self.all().into_iter().find_map(|desk| desk.find(owner, lease))?;
        Some((work.policy.clone(), work.key.clone()))
    }

    /// How many are held, by policy.
    pub(super) fn held(&self, policy: &str) -> u64 {
        let each = self.all().into_iter();
        each.map(|desk| desk.count(|work| &*work.0.policy == policy) as u64).sum()
    }

    /// How many are held, of all policies.
    pub(super) fn all_held(&self) -> u64 {
        self.all().into_iter().map(|desk| desk.count(|_| true) as u64).sum()
    }

    /// Ends what clients have fallen silent about.
    pub(super) fn expire(&self) {
        self.all().iter().for_each(|desk| desk.expire());
    }

    /// Waits until no lease is left: nobody can renew any more, so each ends when its client has to stop. Whatever is
    /// left after this long is ended all the same.
    pub(super) async fn drain(&self, within: Duration) {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            self.expire();
            let held: usize = self.all().iter().map(|desk| desk.held()).sum();
            if held == 0 || tokio::time::Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(DRAIN_LOOK_EVERY).await;
        }
        for desk in self.all() {
            desk.drain().into_iter().for_each(|work| work.0.end_unheard(false));
        }
    }
}

impl Work {
    async fn debit(self: &Arc<Self>, tokens: u64) -> Result<(Decision, Guarantee), NotDebited> {
        let Some(permit) = self.borrow()? else { return Err(NotDebited::Unknown) };
        let mut borrowed = Borrowed { work: self, permit: Some(permit) };
        let permit = borrowed.permit.as_mut().ok_or(NotDebited::Unknown)?;
        let decision = permit.debit(tokens).await.map_err(NotDebited::Store)?;
        Ok((decision, permit.guarantee()))
    }

    fn is_fenced(&self) -> bool {
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

    fn end_unheard(&self, dropped: bool) {
        self.end(How::Unheard { dropped });
    }

    fn end_as(&self, how: Ended) {
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
    work: &'a Work,
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
impl Ends for AtDesk {
    fn end(self, _how: Ending) {
        self.0.end_unheard(true);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut owners = lock(&self.owners);
        if let Some(held) = owners.get_mut(&self.owner) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                owners.remove(&self.owner);
            }
        }
    }
}

fn settle(mut permit: SharedPermit, how: How) {
    let how = match how {
        How::Told(how) => how,
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

/// Nothing under these locks runs code of others, so a panic leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
