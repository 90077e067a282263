//! Requests to a store of slots, and its responses.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{
    HeartbeatOutcome, LeaseId, Owner, SLOTS_MAX, Slot, SlotSnapshot, SlotStep,
};

use super::{Background, StoreError};
use crate::{Guarantee, forward_store};

/// Minimum lifetime of a lease that a store accepts.
pub const LIVES_MIN: Duration = Duration::from_millis(10);
/// Maximum lifetime. A fence keeps out a server that may have forgotten leases for the lifetime that the caller
/// requests, not for this long: so all processes of a policy need the same lifetime.
pub const LIVES_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Lends slots, each under a lease: [`SlotTable`](throttlekit_core::concurrency::SlotTable) kept where all processes
/// reach it.
///
/// As with a [`Store`](super::Store), time is the store's own. Every call may be made again: a request has a name and
/// takes one slot however often it comes while that is held, a heartbeat only extends a lease, a release frees a slot
/// once. A request that comes after its release takes a slot without heartbeats: it expires after its lifetime.
pub trait SlotStore: Send + Sync + 'static {
    /// Takes a slot if there is one: removes what has expired, counts, and records the lease, in one round trip.
    fn acquire(&self, ask: &SlotRequest<'_>) -> impl Future<Output = Result<SlotAnswer, StoreError>> + Send;

    /// Renews leases for a lifetime. Each has its own response or error. One round trip for each cluster slot.
    fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> impl Future<Output = Vec<Result<HeartbeatOutcome, StoreError>>> + Send;

    /// Releases slots, and returns for each whether its owner held it. One round trip for each cluster slot.
    fn release(&self, leases: &[SlotLease<'_>])
    -> impl Future<Output = Vec<Result<bool, StoreError>>> + Send;

    /// Returns the number of slots of each key that are held, and writes nothing.
    fn occupancy(&self, keys: &[&str]) -> impl Future<Output = Result<Vec<Occupancy>, StoreError>> + Send;

    /// Returns the guarantee of this store's decisions.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    /// Returns the background for its work and for everything built on it. A wrapper of a store forwards it.
    fn background(&self) -> Background {
        Background::default()
    }
}

/// One key × one lease of one owner × under a limit.
#[derive(Clone, Copy, Debug)]
pub struct SlotRequest<'a> {
    /// The key as the store keeps it, from [`KeySpace::slots`](super::KeySpace::slots).
    pub key: &'a str,
    /// The lease, under a name that cannot be guessed.
    pub lease: LeaseId,
    /// Owner that requests the lease.
    pub owner: Owner,
    /// Maximum number of slots held at a time: the limit, as of now.
    pub most: u32,
    /// Lifetime of the lease without a heartbeat; between [`LIVES_MIN`] and [`LIVES_MAX`].
    pub lives: Duration,
}

/// A lease that was acquired.
#[derive(Clone, Copy, Debug)]
pub struct SlotLease<'a> {
    /// The key as the store keeps it.
    pub key: &'a str,
    /// The lease.
    pub lease: LeaseId,
    /// Owner that acquired it.
    pub owner: Owner,
}

/// The response to one [`SlotRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotAnswer {
    /// Time of the response by the store's clock, or the last one of the key if the clock went back since.
    pub now: Timestamp,
    /// The response.
    pub step: SlotStep,
}

/// Usage of the slots of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Time of the response, as in a [`SlotAnswer`].
    pub now: Timestamp,
    /// Number of slots that are held.
    pub held: u32,
}

/// Returns the lifetime of a lease as stores count it, in whole microseconds, or why it is invalid.
pub(crate) fn life(lives: Duration) -> Result<Duration, StoreError> {
    if (LIVES_MIN..=LIVES_MAX).contains(&lives) {
        return Ok(Duration::from_micros(lives.as_micros() as u64));
    }
    Err(StoreError::misconfigured(format_args!(
        "invalid lease of {lives:?}: expected {LIVES_MIN:?} to {LIVES_MAX:?}"
    )))
}

impl SlotRequest<'_> {
    /// Returns the lifetime of the lease, in microseconds, or why it is invalid.
    pub fn lives_micros(&self) -> Result<u64, StoreError> {
        Ok(life(self.lives)?.as_micros() as u64)
    }

    /// Returns the limit that counts.
    pub fn ceiling(&self) -> u32 {
        self.most.min(SLOTS_MAX)
    }
}

impl SlotLease<'_> {
    /// Returns the lifetime of renewed leases, in microseconds, or why it is invalid.
    pub fn lives_micros(lives: Duration) -> Result<u64, StoreError> {
        Ok(life(lives)?.as_micros() as u64)
    }

    /// Creates the response to a heartbeat of a store at whose time `now` the lease is held until `ends`, in
    /// microseconds; zero is lost.
    pub fn heartbeat(&self, now: Timestamp, ends: i64) -> Result<HeartbeatOutcome, StoreError> {
        match micros(ends) {
            Some(None) => Ok(HeartbeatOutcome::Lost),
            Some(Some(until)) if now < until => {
                Ok(HeartbeatOutcome::Held(Slot { until, lives: until.since(now) }))
            }
            _ => Err(disagree(self.key)),
        }
    }
}

impl SlotAnswer {
    /// Creates the response of a store that admitted or did not, at `now`, a request that sees these numbers: how many
    /// slots were held, until when its own lease was if it was, and when a slot is free; times in microseconds, zero is
    /// none.
    ///
    /// The rule computes the response; the store only ran its mirror. If the two disagree, its state is not ours.
    pub fn of(
        ask: &SlotRequest<'_>,
        seen: [i64; 3],
        now: Timestamp,
        admitted: bool,
    ) -> Result<Self, StoreError> {
        let [held, own, room_at] = seen;
        let bad = || disagree(ask.key);
        let held = u32::try_from(held).ok().filter(|&held| held <= SLOTS_MAX).ok_or_else(bad)?;
        let (own, room_at) = (micros(own).ok_or_else(bad)?, micros(room_at).ok_or_else(bad)?);
        let sight = SlotSnapshot { held, own, room_at, quiet_until: Timestamp::EPOCH };
        let step = sight.step(ask.most, life(ask.lives)?, now);
        let fits = match step {
            SlotStep::Admit { slot, held } => admitted && now < slot.until && held > 0,
            SlotStep::Deny(full) => !admitted && full.room_in.is_some() == (ask.most > 0),
        };
        if fits { Ok(Self { now, step }) } else { Err(bad()) }
    }
}

/// Decodes a time in microseconds, where zero is none. Returns `None` if it is neither.
fn micros(number: i64) -> Option<Option<Timestamp>> {
    let micros = u64::try_from(number).ok()?;
    Some((micros > 0).then(|| Timestamp::from_micros(micros)))
}

fn disagree(key: &str) -> StoreError {
    StoreError::bad_state(format_args!("{key}: the response of the store is inconsistent with the limit"))
}

impl<P: SlotStore> SlotStore for Arc<P> {
    forward_store!(SlotStore for self => **self; acquire, heartbeat, release, occupancy);
    forward_store!(SlotStore for self => **self; guarantee, background);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn ask(most: u32) -> SlotRequest<'static> {
        SlotRequest { key: "k", lease: LeaseId(1), owner: Owner(2), most, lives: Duration::from_secs(1) }
    }

    #[test]
    fn a_response_that_contradicts_the_rule_is_an_error() {
        let taken = SlotAnswer::of(&ask(3), [2, 0, 0], NOW, true).unwrap();
        let slot = Slot { until: Timestamp::from_millis(2_000), lives: Duration::from_secs(1) };
        assert_eq!(taken.step, SlotStep::Admit { slot, held: 3 });
        assert!(SlotAnswer::of(&ask(3), [2, 0, 0], NOW, false).is_err(), "there was room");
        assert!(SlotAnswer::of(&ask(3), [3, 0, 1_500_000], NOW, true).is_err(), "there was none");
        assert!(SlotAnswer::of(&ask(3), [3, 0, 0], NOW, false).is_err(), "it would be told when");
        assert!(SlotAnswer::of(&ask(3), [3, 0, 1_500_000], NOW, false).is_ok());
        assert!(SlotAnswer::of(&ask(3), [3, 1_000_000, 0], NOW, true).is_err(), "its own was over");
        for seen in [[-1, 0, 0], [i64::from(SLOTS_MAX) + 1, 0, 0], [1, -1, 0], [3, 0, -1]] {
            assert!(
                [true, false].iter().all(|&said| SlotAnswer::of(&ask(3), seen, NOW, said).is_err()),
                "{seen:?}"
            );
        }
    }

    #[test]
    fn a_heartbeat_is_held_for_a_while_or_lost() {
        let lease = SlotLease { key: "k", lease: LeaseId(1), owner: Owner(2) };
        let held = Slot { until: Timestamp::from_millis(1_200), lives: Duration::from_millis(200) };
        assert_eq!(lease.heartbeat(NOW, 1_200_000), Ok(HeartbeatOutcome::Held(held)));
        assert_eq!(lease.heartbeat(NOW, 0), Ok(HeartbeatOutcome::Lost));
        assert!([-1, 1_000_000].iter().all(|&ends| lease.heartbeat(NOW, ends).is_err()));
    }

    #[test]
    fn a_life_that_is_none_is_refused() {
        let lives = |lives| SlotRequest { lives, ..ask(1) }.lives_micros();
        assert_eq!(lives(LIVES_MIN + Duration::from_nanos(999)), Ok(10_000));
        assert!(lives(LIVES_MIN - Duration::from_nanos(1)).is_err());
        assert!(lives(LIVES_MAX).is_ok() && lives(LIVES_MAX + Duration::from_nanos(1)).is_err());
    }
}
