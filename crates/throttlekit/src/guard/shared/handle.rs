//! The public concurrency limiter over a store.

use std::fmt;
use std::sync::Arc;

use throttlekit_core::Decision;

use super::builder::SharedGuardBuilder;
use super::permit::SharedGuardPermit;
use super::stats::SharedGuardStats;
use crate::admit::{Admission, Axis, Denied};
use crate::clock::{DefaultLeaseClock, LeaseClock};
use crate::guard::divided::{Divided, OwnedSharePermit, Refused, SharePermit};
use crate::guard::single::decision;
use crate::guard::slot_leases::{AnySlots, Granted};
use crate::store::{SlotStore, StoreError};
use crate::{BuildError, Call, Concurrency, Guarantee};

/// A concurrency limiter for several processes: at most `n` at a time in all of them, in total or per key.
///
/// Clones share the limit. Differs from [`Guard`](crate::Guard) in:
///
/// * The limit is counted on a store, under a name.
/// * A permit has a deadline, which heartbeats extend. Run work by [`SharedGuardPermit::run`], which stops it in time.
/// * [`acquire`](Self::acquire) is async and returns an [`Admission`], with the guarantee of the decision.
///
/// ```
/// use throttlekit::{Concurrency, SharedGuard, guard::Ending, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let gpu = SharedGuard::new(MemoryStore::new(), "gpu", Concurrency::per_key(2))?;
///
/// let permit = gpu.acquire("acme").await?.into_permit()?; // the error states when to retry
/// assert_eq!(permit.run(async { 6 * 7 }).await, Ok(42));
/// assert!(permit.close(Ending::Success).await?, "held to the end");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Modes
///
/// | | slots on the store | divided |
/// |---|---|---|
/// | built by | [`build`](SharedGuardBuilder::build) | [`divided`](SharedGuardBuilder::divided) |
/// | limit | fixed, in total or per key | fixed or adaptive, in total |
/// | a call costs | one round trip, and one in the background | a compare-and-swap and a read of the clock |
/// | for | few and long calls | many calls |
/// | while the store is unavailable | denies | admits a local share, by default none |
///
/// # Guarantees
///
/// **Slots on the store.** The store never counts more than the limit, and no work under [`SharedGuardPermit::run`]
/// continues past the end of its lease: so concurrent work never exceeds the limit, whatever the network does, and also
/// if a process is paused for longer than a lease lives. A slot whose holder died is free again when its lease expires
/// (guarantee `slots` in the
/// [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/reference/guarantees.md)). The documentation of a store
/// describes what its failover forgets. A lease must outlive one: with leases of two seconds every failover of a Redis
/// cluster takes all slots from their holders.
///
/// **Divided.**
///
/// * The sum of what the nodes have in flight never exceeds the limit in force, while shares change, nodes join, leave,
///   stop or crash, and messages are lost. It assumes what leases assume: clocks whose rate is within the
///   [margin](super::DividedGuardBuilder::clock_error), a store whose clock is not set, and work that ends when its
///   grant does, or at most [`linger`](super::DividedGuardBuilder::linger) later.
/// * A disconnected node admits nothing from the instant at which the others may have its share. With
///   [`while_disconnected`](super::DividedGuardBuilder::while_disconnected) it continues with that many of its own,
///   labeled [`Local`](crate::Guarantee::Local), and the sum is at most the limit plus that many for each disconnected
///   node.
/// * What a failover of the store may lose depends on the store: see its `Failover`. A lost membership record revokes
///   nothing, and lets no share rise for the lifetime of a grant.
pub struct SharedGuard<C: LeaseClock = DefaultLeaseClock> {
    mode: Mode<C>,
}

enum Mode<C: LeaseClock> {
    Divided(Arc<Divided<C>>),
    Slots { slots: Arc<dyn AnySlots>, per_key: bool },
}

impl SharedGuard {
    /// Creates a guard with slots on the store. The name separates its keys from those of others.
    pub fn new<S: SlotStore>(
        store: S,
        name: &str,
        limit: impl Into<Concurrency>,
    ) -> Result<Self, BuildError> {
        Self::builder(store, name, limit).build()
    }

    /// Describes a guard over a store that all its processes reach. The name separates its keys from those of others.
    pub fn builder<S>(store: S, name: &str, limit: impl Into<Concurrency>) -> SharedGuardBuilder<S> {
        SharedGuardBuilder::new(store, name, limit.into())
    }

    pub(super) fn slots(slots: Arc<dyn AnySlots>, per_key: bool) -> Self {
        Self { mode: Mode::Slots { slots, per_key } }
    }
}

impl<C: LeaseClock + 'static> SharedGuard<C> {
    pub(super) fn divided(divided: Divided<C>) -> Self {
        Self { mode: Mode::Divided(Arc::new(divided)) }
    }

    /// Acquires a slot. A denial has no permit, and states when to retry.
    ///
    /// Slots on the store: one call to the store. While that is unavailable, calls are denied. If the future is dropped,
    /// the call is completed by a task of its own, and a slot that nobody takes is released.
    ///
    /// Divided: now or after waiting in the queue, which [`queue_max`](super::DividedGuardBuilder::queue_max) allows. A
    /// wait continues through an outage.
    pub async fn acquire<'c>(
        &self,
        call: impl Into<Call<'c>>,
    ) -> Result<Admission<SharedGuardPermit<C>>, StoreError> {
        let call = call.into();
        match &self.mode {
            Mode::Divided(divided) => Ok(shared_out(divided, divided.acquire(call.of_priority()).await)),
            Mode::Slots { .. } => self.enter(&call).await,
        }
    }

    /// Acquires a slot without waiting in the queue.
    pub(crate) async fn enter(&self, call: &Call<'_>) -> Result<Admission<SharedGuardPermit<C>>, StoreError> {
        match &self.mode {
            Mode::Divided(divided) => Ok(shared_out(divided, divided.try_acquire_owned(call.of_priority()))),
            Mode::Slots { slots, per_key } => Ok(granted(slots.admit(slot_key(call, *per_key)).await?)),
        }
    }

    /// Like [`enter`](Self::enter), if that takes no call to the store.
    pub(super) fn enter_at_once(&self, call: &Call<'_>) -> Option<Admission<SharedGuardPermit<C>>> {
        let Mode::Divided(divided) = &self.mode else { return None };
        Some(shared_out(divided, divided.try_acquire_owned(call.of_priority())))
    }

    /// Acquires a slot of this node's share, if one is free now. Makes no call to the store.
    ///
    /// `None` unless the guard is [divided](SharedGuardBuilder::divided): slots on the store need
    /// [`acquire`](Self::acquire).
    ///
    /// The slot is taken first, then the clock is read: a process that is paused in between finds the grant expired,
    /// and releases the slot.
    #[inline(always)]
    pub fn try_acquire<'c>(&self, call: impl Into<Call<'c>>) -> Option<Result<SharePermit<'_, C>, Denied>> {
        let Mode::Divided(divided) = &self.mode else { return None };
        Some(match divided.try_acquire(call.into().of_priority()) {
            Ok(permit) => Ok(permit),
            Err(refused) => Err(divided.denial(refused)),
        })
    }

    /// Like [`try_acquire`](Self::try_acquire), with an owned permit.
    pub fn try_acquire_owned<'c>(
        &self,
        call: impl Into<Call<'c>>,
    ) -> Option<Result<SharedGuardPermit<C>, Denied>> {
        let Mode::Divided(divided) = &self.mode else { return None };
        let permit = divided.try_acquire_owned(call.into().of_priority());
        Some(permit.map(SharedGuardPermit::share).map_err(|refused| divided.denial(refused)))
    }

    /// Decides a call without admitting it: `limit`, and how many of it are free as `remaining`.
    ///
    /// Slots on the store: one call to the store. Divided: of this node's share, without a call.
    pub async fn peek<'c>(&self, call: impl Into<Call<'c>>) -> Result<Decision, StoreError> {
        let (limit, in_flight) = match &self.mode {
            Mode::Divided(divided) => divided.snapshot(),
            Mode::Slots { slots, per_key } => {
                let held = slots.occupancy(slot_key(&call.into(), *per_key)).await?;
                (slots.limit(), held)
            }
        };
        Ok(decision(in_flight < limit, limit, in_flight))
    }

    /// Changes the limit for calls of this process from now on. Slots that are held stay held.
    ///
    /// Returns `false` and changes nothing if the limit is divided: all nodes must agree on it, so build another guard.
    pub fn set_limit(&self, limit: u32) -> bool {
        match &self.mode {
            Mode::Divided(_) => false,
            Mode::Slots { slots, .. } => {
                slots.set_limit(limit);
                true
            }
        }
    }

    /// Releases this node's share: stops admissions, notifies the other nodes, and waits until all work in flight has
    /// ended and they have seen it. Call it before the process stops, with a timeout if needed: without it the others
    /// get the share as soon as the last grant has expired.
    ///
    /// Returns at once for slots on the store, which are released with their permits.
    pub async fn close(&self) {
        if let Mode::Divided(divided) = &self.mode {
            divided.leave().await;
        }
    }

    /// Returns the current state and counters.
    pub fn stats(&self) -> SharedGuardStats {
        match &self.mode {
            Mode::Divided(divided) => {
                let stats = divided.stats();
                SharedGuardStats {
                    limit: stats.limit,
                    in_flight: stats.in_flight,
                    fenced: stats.fenced,
                    slots: None,
                    division: Some(stats),
                }
            }
            Mode::Slots { slots, .. } => {
                let stats = slots.stats();
                let in_flight = u32::try_from(stats.held).unwrap_or(u32::MAX);
                SharedGuardStats {
                    limit: slots.limit(),
                    in_flight,
                    fenced: false,
                    slots: Some(stats),
                    division: None,
                }
            }
        }
    }
}

/// Returns the result of the concurrency axis alone.
fn one_axis<P>(decision: Decision, guarantee: Guarantee, permit: Option<P>) -> Admission<P> {
    let mut admission = Admission { decision, guarantee, permit, ..Admission::open() };
    admission.axes.record(Axis::Concurrency, decision);
    admission
}

/// Returns the key on the store: one for all calls, unless limits are per key.
fn slot_key<'c>(call: &Call<'c>, per_key: bool) -> &'c [u8] {
    if per_key { call.key() } else { b"" }
}

fn granted<C: LeaseClock>(granted: Granted) -> Admission<SharedGuardPermit<C>> {
    let Granted { decision, guarantee, slot, outage } = granted;
    let permit = slot.map(|slot| SharedGuardPermit::slot(slot, guarantee));
    let mut admission = one_axis(decision, guarantee, permit);
    admission.outage = outage;
    admission
}

fn shared_out<C: LeaseClock>(
    divided: &Divided<C>,
    acquired: Result<OwnedSharePermit<C>, Refused>,
) -> Admission<SharedGuardPermit<C>> {
    match acquired {
        Ok(permit) => {
            let (limit, in_flight) = divided.snapshot();
            let (decision, guarantee) = (decision(true, limit, in_flight), permit.guarantee());
            let permit = Some(SharedGuardPermit::share(permit));
            one_axis(decision, guarantee, permit)
        }
        Err(refused) => {
            let denied = divided.denial(refused);
            one_axis(denied.decision, denied.guarantee, None)
        }
    }
}

impl<C: LeaseClock> Clone for SharedGuard<C> {
    fn clone(&self) -> Self {
        let mode = match &self.mode {
            Mode::Divided(divided) => Mode::Divided(Arc::clone(divided)),
            Mode::Slots { slots, per_key } => Mode::Slots { slots: Arc::clone(slots), per_key: *per_key },
        };
        Self { mode }
    }
}

impl<C: LeaseClock + 'static> fmt::Debug for SharedGuard<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedGuard").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
