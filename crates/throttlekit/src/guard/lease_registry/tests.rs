use std::sync::Arc;

use throttlekit_core::Timestamp;

use super::*;
use crate::clock::ManualClock;

const LIVES: Duration = Duration::from_millis(100);
const ANN: Owner = Owner(1);
const BOB: Owner = Owner(2);

type Endings = Arc<Mutex<Vec<(u32, Ending)>>>;

/// A permit that records how it ended.
struct Noted(u32, Endings);

impl Ends for Noted {
    fn end(self, how: Ending) {
        self.1.lock().push((self.0, how));
    }
}

fn registry(most: u32) -> (LeaseRegistry<Noted, ManualClock>, ManualClock, Endings) {
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    (LeaseRegistry::with_clock(most, LIVES, clock.clone()), clock, Endings::default())
}

#[test]
fn a_permit_ends_once_with_its_reported_outcome() {
    let (registry, _, endings) = registry(2);
    let (lease, slot) = registry.admit(ANN, Noted(1, endings.clone())).ok().unwrap();
    assert_eq!(slot.lives, LIVES);
    assert!(!registry.release(BOB, lease, Ending::Success), "another's");
    assert!(!registry.release(ANN, LeaseId(0), Ending::Success), "nobody's");
    assert!(registry.release(ANN, lease, Ending::Ignored));
    assert!(!registry.release(ANN, lease, Ending::Success), "over");
    assert_eq!(*endings.lock(), [(1, Ending::Ignored)]);
}

#[test]
fn a_permit_without_heartbeats_ends_as_dropped_and_cannot_be_revived() {
    let (registry, clock, endings) = registry(2);
    let mut held = (1..=2).map(|n| registry.admit(ANN, Noted(n, endings.clone())).ok().unwrap().0);
    let (silent, heartbeats) = (held.next().unwrap(), held.next().unwrap());
    clock.advance(LIVES / 2);
    assert!(matches!(registry.heartbeat(ANN, &[heartbeats])[..], [HeartbeatOutcome::Held(_)]));
    assert_eq!(registry.next_expiry(), Some(Timestamp::from_millis(1_100)));
    clock.advance(LIVES / 2);
    assert!(matches!(
        registry.heartbeat(ANN, &[silent, heartbeats])[..],
        [HeartbeatOutcome::Lost, HeartbeatOutcome::Held(_)]
    ));
    assert_eq!(*endings.lock(), [(1, Ending::Dropped)]);
    assert!(!registry.release(ANN, silent, Ending::Success));
    assert_eq!((registry.held(), endings.lock().len()), (1, 1));
}

#[test]
fn a_full_registry_returns_the_permit_and_expiry_frees_capacity() {
    let (registry, clock, endings) = registry(1);
    assert!(registry.admit(ANN, Noted(1, endings.clone())).is_ok());
    let back = registry.admit(BOB, Noted(2, endings.clone())).err().unwrap();
    assert_eq!(back.0, 2);
    clock.advance(LIVES);
    assert!(registry.admit(BOB, back).is_ok());
    assert_eq!(*endings.lock(), [(1, Ending::Dropped)]);
}

#[test]
fn a_registry_that_was_lost_is_quiet_for_one_lifetime() {
    let (registry, clock, endings) = registry(1);
    let registry = registry.recovering();
    clock.advance(LIVES - Duration::from_nanos(1));
    let back = registry.admit(ANN, Noted(1, endings)).err().unwrap();
    clock.advance(Duration::from_nanos(1));
    assert!(registry.admit(ANN, back).is_ok());
}

#[test]
fn a_permit_may_be_a_closure_and_may_return_to_the_registry() {
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    let registry = Arc::new(LeaseRegistry::with_clock(1, LIVES, clock.clone()));
    let (told, again) = (Arc::new(Mutex::new(None)), registry.clone());
    let seen = told.clone();
    let permit: Box<dyn FnOnce(Ending) + Send> =
        Box::new(move |how| *seen.lock() = Some((how, again.held())));
    assert!(registry.admit(ANN, permit).is_ok());
    clock.advance(LIVES);
    registry.expire();
    assert_eq!(*told.lock(), Some((Ending::Dropped, 0)));
}
