//! The learners that determine the size of reservations.
//!
//! A budget is kept for each key, so a reservation only affects streams of the same key. Each key therefore learns from
//! its own streams alone: nothing that one key does changes the reservations of another. A key without a learner needs
//! none: near the end of a budget, the streams that used it up have provided enough samples.

use std::time::Duration;

use throttlekit_core::learn::Reservation;
use throttlekit_core::lease::Want;

use super::builder::Reserve;
use super::throughput::Throughput;
use crate::sync::Mutex;

/// Above this, the learners alone would fill a node's memory.
const KEYS_CAP: usize = 1 << 24;
/// Learners in a set: a key is looked up in one set only.
const SET_MAX: usize = 8;
/// Maximum number of streams of new keys in a full set before a key is evicted.
const CREDIT_MAX: u32 = 64;

/// The learners of a budget.
pub struct Learners(Kind);

enum Kind {
    Fixed(u64),
    Shared(Mutex<Reservation>),
    PerKey(Mutex<Sets>),
}

impl Learners {
    /// Creates the learners that size reservations in this way.
    pub fn new(reserve: Reserve) -> Self {
        Self(match reserve {
            Reserve::Fixed(tokens) => Kind::Fixed(tokens),
            Reserve::Learned(learner) => Kind::Shared(Mutex::new(learner)),
            Reserve::PerKey { fresh, keys_max } => Kind::PerKey(Mutex::new(Sets::new(fresh, keys_max))),
        })
    }

    /// Returns the number of tokens to request for a stream of this key. The window of `budget` tokens ends in `left`,
    /// if that is known.
    pub fn want(&self, key: u64, hint: Option<u64>, budget: u64, left: Option<Duration>) -> Want {
        match &self.0 {
            Kind::Fixed(tokens) => Want::whole((*tokens).min(budget)),
            // Any key may have influenced it.
            Kind::Shared(learner) => Want::guessed(learner.lock().reserve(hint), budget),
            Kind::PerKey(sets) => sets.lock().want(key, hint, budget, left),
        }
    }

    /// Records a stream that produced its last token after `lasted`.
    pub fn observe(&self, key: u64, hint: Option<u64>, produced: u64, lasted: Duration) {
        match &self.0 {
            Kind::Fixed(_) => {}
            Kind::Shared(learner) => learner.lock().observe(hint, produced),
            Kind::PerKey(sets) => sets.lock().observe(key, hint, produced, lasted),
        }
    }
}

/// A learner for each of a bounded number of keys. In a full set each stream of a new key lowers the credit of the key
/// with the least credit, until that key is evicted, so that keys which occur once do not displace frequent ones. A
/// learner decides nothing: losing one costs only what it had learned.
struct Sets {
    fresh: Reservation,
    sets: Box<[Vec<Learner>]>,
    set_max: usize,
}

struct Learner {
    key: u64,
    /// Streams recorded, up to [`CREDIT_MAX`], less streams of new keys.
    credit: u32,
    reservation: Reservation,
    throughput: Throughput,
}

impl Learner {
    fn new(key: u64, reservation: Reservation) -> Self {
        Self { key, credit: 1, reservation, throughput: Throughput::default() }
    }

    fn observe(&mut self, hint: Option<u64>, produced: u64, lasted: Duration) {
        self.reservation.observe(hint, produced);
        self.throughput.observe(produced, lasted);
    }

    /// Returns how many tokens to reserve: never more than a stream of this key produces before the window ends. The
    /// rest would be unavailable to other streams and then expire unused.
    fn wish(&self, hint: Option<u64>, left: Option<Duration>) -> u64 {
        let spendable = left.map_or(u64::MAX, |left| self.throughput.tokens_in(left));
        self.reservation.reserve(hint).min(spendable)
    }
}

// As the builder documents for its default.
const _: () = assert!(size_of::<Learner>() * super::builder::LEARNERS_MAX <= 5 << 19);

impl Sets {
    fn new(fresh: Reservation, keys_max: usize) -> Self {
        let keys_max = keys_max.clamp(1, KEYS_CAP);
        let set_max = keys_max.min(SET_MAX);
        let sets = (0..keys_max / set_max).map(|_| Vec::new()).collect();
        Self { fresh, sets, set_max }
    }

    fn want(&mut self, key: u64, hint: Option<u64>, budget: u64, left: Option<Duration>) -> Want {
        match self.set(key).iter().find(|learner| learner.key == key) {
            Some(learner) => Want::learned(learner.wish(hint, left), budget),
            None => Want::guessed(self.fresh.reserve(hint), budget),
        }
    }

    fn observe(&mut self, key: u64, hint: Option<u64>, produced: u64, lasted: Duration) {
        let (mut newcomer, set_max) = (Learner::new(key, self.fresh.clone()), self.set_max);
        let set = self.set(key);
        if let Some(learner) = set.iter_mut().find(|learner| learner.key == key) {
            learner.credit = CREDIT_MAX.min(learner.credit + 1);
            return learner.observe(hint, produced, lasted);
        }
        newcomer.observe(hint, produced, lasted);
        if set.len() < set_max {
            return set.push(newcomer);
        }
        let Some(weakest) = set.iter_mut().min_by_key(|learner| learner.credit) else { return };
        match weakest.credit.checked_sub(1) {
            Some(credit) => weakest.credit = credit,
            None => *weakest = newcomer,
        }
    }

    fn set(&mut self, key: u64) -> &mut Vec<Learner> {
        let index = key % self.sets.len() as u64;
        &mut self.sets[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 1_000_000;

    fn per_key(keys_max: usize) -> Learners {
        Learners::new(Reserve::PerKey { fresh: Reservation::default(), keys_max })
    }

    fn wants(learners: &Learners, key: u64) -> u64 {
        learners.want(key, None, BUDGET, None).wants
    }

    /// Records a stream of zero duration.
    fn observe(learners: &Learners, key: u64, produced: u64) {
        learners.observe(key, None, produced, Duration::ZERO);
    }

    #[test]
    fn keys_learn_apart() {
        let (learners, fresh) = (per_key(64), Reservation::default().reserve(None));
        (0..100).for_each(|_| observe(&learners, 0, 100));
        assert!(wants(&learners, 0) <= 100);
        assert!((1..1_000).all(|key| wants(&learners, key) == fresh));
    }

    #[test]
    fn one_time_keys_do_not_displace_a_frequent_key() {
        let (learners, fresh) = (per_key(1), Reservation::default().reserve(None));
        for key in 1..1_000 {
            observe(&learners, 0, 100);
            observe(&learners, key, 4_000);
        }
        assert!(wants(&learners, 0) <= 100);
        assert_eq!(wants(&learners, 999), fresh, "there was no place for it");
    }

    #[test]
    fn an_inactive_key_is_replaced_by_an_active_one() {
        let (learners, fresh) = (per_key(1), Reservation::default().reserve(None));
        (0..1_000).for_each(|_| observe(&learners, 0, 100));
        (0..CREDIT_MAX).for_each(|_| observe(&learners, 1, 50));
        assert!(wants(&learners, 0) <= 100 && wants(&learners, 1) == fresh);
        observe(&learners, 1, 50);
        assert!(wants(&learners, 0) == fresh && wants(&learners, 1) == 50);
    }

    #[test]
    fn at_most_the_configured_number_of_learners_is_kept() {
        for keys_max in [0, 1, 7, 8, 9, 100] {
            let learners = per_key(keys_max);
            (0..1_000).for_each(|key| observe(&learners, key, 1));
            let Kind::PerKey(sets) = &learners.0 else { unreachable!("it was made per key") };
            let kept: usize = sets.lock().sets.iter().map(Vec::len).sum();
            assert!(kept >= keys_max / 2 && kept <= keys_max.max(1), "{kept} of {keys_max}");
        }
    }

    #[test]
    fn a_shared_learner_is_only_a_hint_for_each_key() {
        let learners = Learners::new(Reserve::Learned(Reservation::default()));
        (0..100).for_each(|_| observe(&learners, 0, 4_000));
        assert_eq!(learners.want(1, None, 1_600, None).wants, 50, "one part in 32 of the budget");
    }

    #[test]
    fn no_more_is_wanted_than_a_stream_produces_before_its_window_ends() {
        let (learners, left) = (per_key(64), |secs| Some(Duration::from_secs(secs)));
        (0..1_000).for_each(|_| learners.observe(0, None, 400, Duration::from_secs(200)));
        let wants = |key, left| learners.want(key, None, BUDGET, left).wants;
        let learned = wants(0, None);
        assert!(learned > 300, "{learned}: nearly all of a stream");
        assert_eq!([left(60), left(10), left(0)].map(|left| wants(0, left)), [120, 20, 1], "two a second");
        assert_eq!(wants(0, left(3_600)), learned, "a window that does not end before the stream");
        assert_eq!(wants(1, left(1)), wants(1, None), "nothing is known of another key");
    }

    #[test]
    fn any_key_may_slow_one_learner_for_all_so_its_rate_does_not_count() {
        let learners = Learners::new(Reserve::Learned(Reservation::default()));
        let wants = |left| learners.want(0, None, BUDGET, left);
        (0..100).for_each(|_| learners.observe(1, None, 400, Duration::from_secs(4_000)));
        assert_eq!(wants(Some(Duration::from_secs(1))), wants(None));
    }
}
