//! Who says how much to set aside.

use std::sync::{Mutex, MutexGuard, PoisonError};

use throttlekit_core::Cost;
use throttlekit_core::learn::Reservation;

use super::builder::Reserve;

/// Beyond, the learners alone would fill a node's memory.
const KEYS_CAP: usize = 1 << 24;

pub(super) enum Learners {
    Fixed(Cost),
    Shared(Mutex<Reservation>),
    PerKey(Mutex<Places>),
}

/// One place for each key that comes its way, given to whoever came last. A learner decides nothing, so one that is lost
/// costs only what it had learned.
pub(super) struct Places {
    fresh: Reservation,
    places: Box<[Option<(u64, Reservation)>]>,
}

impl Learners {
    pub(super) fn new(reserve: Reserve) -> Self {
        match reserve {
            Reserve::Fixed(tokens) => Self::Fixed(tokens),
            Reserve::Learned(learner) => Self::Shared(Mutex::new(learner)),
            Reserve::PerKey { fresh, keys_max } => {
                let places = vec![None; keys_max.clamp(1, KEYS_CAP)].into();
                Self::PerKey(Mutex::new(Places { fresh, places }))
            }
        }
    }

    pub(super) fn reserve(&self, fingerprint: u64, hint: Option<u64>) -> Cost {
        match self {
            Self::Fixed(tokens) => *tokens,
            Self::Shared(learner) => lock(learner).reserve(hint),
            Self::PerKey(places) => lock(places).of(fingerprint).reserve(hint),
        }
    }

    pub(super) fn observe(&self, fingerprint: u64, hint: Option<u64>, produced: Cost) {
        match self {
            Self::Fixed(_) => {}
            Self::Shared(learner) => lock(learner).observe(hint, produced),
            Self::PerKey(places) => lock(places).of(fingerprint).observe(hint, produced),
        }
    }
}

impl Places {
    fn of(&mut self, fingerprint: u64) -> &mut Reservation {
        let index = (fingerprint % self.places.len() as u64) as usize;
        let place = &mut self.places[index];
        if place.as_ref().is_none_or(|(owner, _)| *owner != fingerprint) {
            *place = Some((fingerprint, self.fresh.clone()));
        }
        &mut place.as_mut().expect("it was just filled").1
    }
}

/// A learner finishes what it begins, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_learn_apart_and_the_last_to_come_has_the_place() {
        let learners = Learners::new(Reserve::PerKey { fresh: Reservation::default(), keys_max: 2 });
        let fresh = Reservation::default().reserve(None);
        (0..100).for_each(|_| learners.observe(0, None, 100));
        assert!(learners.reserve(0, None) < fresh / 2);
        assert_eq!(learners.reserve(1, None), fresh, "another key knows nothing of it");
        assert_eq!(learners.reserve(2, None), fresh, "a newcomer in its place begins anew");
        assert_eq!(learners.reserve(0, None), fresh, "and so does it when it returns");
    }
}
