//! What a store of slots is asked and what it answers.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Beat, LeaseId, Owner, SLOTS_MAX, Slot, SlotSight, SlotStep};

use super::{Background, StoreError};
use crate::{Guarantee, forward_store};

/// The shortest life of a lease that a store takes.
pub const LIVES_MIN: Duration = Duration::from_millis(10);
/// The longest. A fence keeps a server out that may have forgotten leases for the life that the asker asks for, not for
/// this long: so all processes of a policy need the same life.
pub const LIVES_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Lends slots to whoever asks, each under a lease:
/// [`SlotTable`](throttlekit_core::concurrency::SlotTable) kept where all can ask.
///
/// As with a [`Store`](super::Store), time is the store's own. Every call may be made again: an ask has a name and takes
/// one slot however often it comes while that is held, a beat only puts an end off, a release frees a slot once. An
/// ask that comes after its release takes a slot that nobody beats for: it is over after its life.
pub trait SlotStore: Send + Sync + 'static {
    /// Takes a slot if there is one: clears away what is over, counts, and enters the lease, in one flight.
    fn acquire(&self, ask: &SlotAsk<'_>) -> impl Future<Output = Result<SlotAnswer, StoreError>> + Send;

    /// Lets leases live as long again. Each has its own answer or error. One flight for each place.
    fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> impl Future<Output = Vec<Result<Beat, StoreError>>> + Send;

    /// Gives slots back, and says of each whether its owner held it. One flight for each place.
    fn release(&self, leases: &[SlotLease<'_>])
    -> impl Future<Output = Vec<Result<bool, StoreError>>> + Send;

    /// How many slots of each key are held, writing nothing.
    fn occupancy(&self, keys: &[&str]) -> impl Future<Output = Result<Vec<Occupancy>, StoreError>> + Send;

    /// What an answer of this store is worth.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    /// Where its background work runs, and that of everything built on it. Who wraps a store passes it on.
    fn background(&self) -> Background {
        Background::default()
    }
}

/// One key × one lease of one owner × under a ceiling.
#[derive(Clone, Copy, Debug)]
pub struct SlotAsk<'a> {
    /// The key as the store keeps it, from [`KeySpace::slots`](super::KeySpace::slots).
    pub key: &'a str,
    /// The lease, under a name that nobody guesses.
    pub lease: LeaseId,
    /// Who asks.
    pub owner: Owner,
    /// How many may be held at a time: the ceiling, as of now.
    pub most: u32,
    /// How long the lease lives unless its owner beats; between [`LIVES_MIN`] and [`LIVES_MAX`].
    pub lives: Duration,
}

/// A lease that was acquired.
#[derive(Clone, Copy, Debug)]
pub struct SlotLease<'a> {
    /// The key as the store keeps it.
    pub key: &'a str,
    /// The lease.
    pub lease: LeaseId,
    /// Who acquired it.
    pub owner: Owner,
}

/// The answer to one [`SlotAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotAnswer {
    /// The store's instant, or the last one of the key if the clock went back since.
    pub now: Timestamp,
    /// What it answers.
    pub step: SlotStep,
}

/// How full a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The store's instant, as in a [`SlotAnswer`].
    pub now: Timestamp,
    /// How many slots are held.
    pub held: u32,
}

/// The life of a lease as stores count it, in whole microseconds, or why it is none.
pub(crate) fn life(lives: Duration) -> Result<Duration, StoreError> {
    if (LIVES_MIN..=LIVES_MAX).contains(&lives) {
        return Ok(Duration::from_micros(lives.as_micros() as u64));
    }
    Err(StoreError::misconfigured(format_args!(
        "a lease of {lives:?}: let slots live between {LIVES_MIN:?} and {LIVES_MAX:?}"
    )))
}

impl SlotAsk<'_> {
    /// How long the lease lives, in microseconds, or why it cannot.
    pub fn lives_micros(&self) -> Result<u64, StoreError> {
        Ok(life(self.lives)?.as_micros() as u64)
    }

    /// The ceiling that counts.
    pub fn ceiling(&self) -> u32 {
        self.most.min(SLOTS_MAX)
    }
}

impl SlotLease<'_> {
    /// How long leases live that beat, in microseconds, or why they cannot.
    pub fn lives_micros(lives: Duration) -> Result<u64, StoreError> {
        Ok(life(lives)?.as_micros() as u64)
    }

    /// The answer to a beat of a store at whose instant `now` the lease is held until `ends`, in microseconds; zero is
    /// lost.
    pub fn beat(&self, now: Timestamp, ends: i64) -> Result<Beat, StoreError> {
        match micros(ends) {
            Some(None) => Ok(Beat::Lost),
            Some(Some(until)) if now < until => Ok(Beat::Held(Slot { until, lives: until.since(now) })),
            _ => Err(disagree(self.key)),
        }
    }
}

impl SlotAnswer {
    /// The answer of a store that admitted or did not, at `now`, an ask that sees these numbers: how many slots were held,
    /// until when its own lease was if it was, and when there is room; instants in microseconds, zero is none.
    ///
    /// The rule words the answer; the store only ran its mirror. If the two disagree, its state is not ours.
    pub fn of(ask: &SlotAsk<'_>, seen: [i64; 3], now: Timestamp, admitted: bool) -> Result<Self, StoreError> {
        let [held, own, room_at] = seen;
        let bad = || disagree(ask.key);
        let held = u32::try_from(held).ok().filter(|&held| held <= SLOTS_MAX).ok_or_else(bad)?;
        let (own, room_at) = (micros(own).ok_or_else(bad)?, micros(room_at).ok_or_else(bad)?);
        let sight = SlotSight { held, own, room_at, quiet_until: Timestamp::EPOCH };
        let step = sight.step(ask.most, life(ask.lives)?, now);
        let fits = match step {
            SlotStep::Admit { slot, held } => admitted && now < slot.until && held > 0,
            SlotStep::Deny(full) => !admitted && full.room_in.is_some() == (ask.most > 0),
        };
        if fits { Ok(Self { now, step }) } else { Err(bad()) }
    }
}

/// An instant in microseconds where zero is none; or nothing for what is neither.
fn micros(number: i64) -> Option<Option<Timestamp>> {
    let micros = u64::try_from(number).ok()?;
    Some((micros > 0).then(|| Timestamp::from_micros(micros)))
}

fn disagree(key: &str) -> StoreError {
    StoreError::bad_state(format_args!("{key}: the store and the rule disagree"))
}

impl<P: SlotStore> SlotStore for Arc<P> {
    forward_store!(SlotStore for self => **self; acquire, heartbeat, release, occupancy);
    forward_store!(SlotStore for self => **self; guarantee, background);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn ask(most: u32) -> SlotAsk<'static> {
        SlotAsk { key: "k", lease: LeaseId(1), owner: Owner(2), most, lives: Duration::from_secs(1) }
    }

    #[test]
    fn the_rule_words_the_answer_and_a_store_that_disagrees_is_not_believed() {
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
    fn a_beat_is_held_for_a_while_or_lost() {
        let lease = SlotLease { key: "k", lease: LeaseId(1), owner: Owner(2) };
        let held = Slot { until: Timestamp::from_millis(1_200), lives: Duration::from_millis(200) };
        assert_eq!(lease.beat(NOW, 1_200_000), Ok(Beat::Held(held)));
        assert_eq!(lease.beat(NOW, 0), Ok(Beat::Lost));
        assert!([-1, 1_000_000].iter().all(|&ends| lease.beat(NOW, ends).is_err()));
    }

    #[test]
    fn a_life_that_is_none_is_refused() {
        let lives = |lives| SlotAsk { lives, ..ask(1) }.lives_micros();
        assert_eq!(lives(LIVES_MIN + Duration::from_nanos(999)), Ok(10_000));
        assert!(lives(LIVES_MIN - Duration::from_nanos(1)).is_err());
        assert!(lives(LIVES_MAX).is_ok() && lives(LIVES_MAX + Duration::from_nanos(1)).is_err());
    }
}
