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

fn desk(most: u32) -> (LeaseRegistry<Noted, ManualClock>, ManualClock, Endings) {
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    (LeaseRegistry::with_clock(most, LIVES, clock.clone()), clock, Endings::default())
}

#[test]
fn a_permit_ends_once_as_its_owner_says() {
    let (desk, _, endings) = desk(2);
    let (lease, slot) = desk.admit(ANN, Noted(1, endings.clone())).ok().unwrap();
    assert_eq!(slot.lives, LIVES);
    assert!(!desk.release(BOB, lease, Ending::Success), "another's");
    assert!(!desk.release(ANN, LeaseId(0), Ending::Success), "nobody's");
    assert!(desk.release(ANN, lease, Ending::Ignored));
    assert!(!desk.release(ANN, lease, Ending::Success), "over");
    assert_eq!(*endings.lock(), [(1, Ending::Ignored)]);
}

#[test]
fn a_permit_of_who_fell_silent_ends_as_dropped_and_cannot_come_back() {
    let (desk, clock, endings) = desk(2);
    let mut held = (1..=2).map(|n| desk.admit(ANN, Noted(n, endings.clone())).ok().unwrap().0);
    let (silent, beats) = (held.next().unwrap(), held.next().unwrap());
    clock.advance(LIVES / 2);
    assert!(matches!(desk.heartbeat(ANN, &[beats])[..], [Beat::Held(_)]));
    assert_eq!(desk.next_expiry(), Some(Timestamp::from_millis(1_100)));
    clock.advance(LIVES / 2);
    assert!(matches!(desk.heartbeat(ANN, &[silent, beats])[..], [Beat::Lost, Beat::Held(_)]));
    assert_eq!(*endings.lock(), [(1, Ending::Dropped)]);
    assert!(!desk.release(ANN, silent, Ending::Success));
    assert_eq!((desk.held(), endings.lock().len()), (1, 1));
}

#[test]
fn one_too_many_gets_its_permit_back_and_silence_makes_room() {
    let (desk, clock, endings) = desk(1);
    assert!(desk.admit(ANN, Noted(1, endings.clone())).is_ok());
    let back = desk.admit(BOB, Noted(2, endings.clone())).err().unwrap();
    assert_eq!(back.0, 2);
    clock.advance(LIVES);
    assert!(desk.admit(BOB, back).is_ok());
    assert_eq!(*endings.lock(), [(1, Ending::Dropped)]);
}

#[test]
fn a_desk_that_was_lost_is_quiet_for_one_life() {
    let (desk, clock, endings) = desk(1);
    let desk = desk.recovering();
    clock.advance(LIVES - Duration::from_nanos(1));
    let back = desk.admit(ANN, Noted(1, endings)).err().unwrap();
    clock.advance(Duration::from_nanos(1));
    assert!(desk.admit(ANN, back).is_ok());
}

#[test]
fn a_permit_may_be_a_closure_and_may_come_back_to_the_desk() {
    let clock = ManualClock::at(Timestamp::from_millis(1_000));
    let desk = Arc::new(LeaseRegistry::with_clock(1, LIVES, clock.clone()));
    let (told, again) = (Arc::new(Mutex::new(None)), desk.clone());
    let seen = told.clone();
    let permit: Box<dyn FnOnce(Ending) + Send> =
        Box::new(move |how| *seen.lock() = Some((how, again.held())));
    assert!(desk.admit(ANN, permit).is_ok());
    clock.advance(LIVES);
    desk.expire();
    assert_eq!(*told.lock(), Some((Ending::Dropped, 0)));
}
