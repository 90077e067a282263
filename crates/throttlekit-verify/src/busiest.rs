//! Whoever tells the busiest of many keys, against exact counts.
//!
//! After any sequence of `n` keys, with `k` places: for whoever has a place, count − error ≤ the true count ≤ count and
//! error ≤ n / k; whoever came more than n / k times has a place; no more than `k` have one, and none has two; and all counts
//! together are `n`, since what is counted moves from place to place and is never lost.

use std::collections::HashMap;

use throttlekit_core::overload::SpaceSaving;

use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::{Check, ensure};

/// Counts keys, and tells which came most often.
pub trait Busiest {
    /// A key came once more.
    fn count(&mut self, hash: u64, key: &[u8]);
    /// Who has a place.
    fn tracked(&self) -> Vec<Tracked>;
}

/// One that has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// As much of the key as is kept.
    pub key: Vec<u8>,
    /// Of how many bytes.
    pub key_len: usize,
    /// It came no more often than this.
    pub count: u64,
    /// By how much that may be too high.
    pub error: u64,
}

impl Busiest for SpaceSaving {
    fn count(&mut self, hash: u64, key: &[u8]) {
        self.count(hash, key);
    }

    fn tracked(&self) -> Vec<Tracked> {
        let tracked = self.iter().map(|heavy| Tracked {
            key: heavy.key.to_vec(),
            key_len: heavy.key_len,
            count: heavy.count,
            error: heavy.error,
        });
        tracked.collect()
    }
}

/// What was seen in all scenarios, to show that each bound was tried where it binds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Keys counted.
    pub keys: u64,
    /// States that were judged.
    pub states: u64,
    /// Errors above zero.
    pub errors: u64,
    /// Errors that were the greatest there may be.
    pub errors_at_bound: u64,
    /// Counts that were too high by all of their error.
    pub wrong_by_all: u64,
    /// Keys that came exactly n / k times and had no place.
    pub level_without_place: u64,
}

/// Plays so many scenarios to what `make` makes for a number of places.
pub fn examine(scenarios: u64, mut make: impl FnMut(usize) -> Box<dyn Busiest>) -> (Seen, Vec<String>) {
    let mut seen = Seen::default();
    let violations = (0..scenarios).filter_map(|seed| counterexample(seed, &mut make, &mut seen)).collect();
    (seen, violations)
}

/// What went wrong in one scenario, if anything did.
fn counterexample(
    seed: u64,
    make: &mut impl FnMut(usize) -> Box<dyn Busiest>,
    seen: &mut Seen,
) -> Option<String> {
    Scenario::new(seed).play(make, seen).err().map(|counterexample| format!("seed {seed}: {counterexample}"))
}

/// What ships.
pub fn shipped(places: usize) -> Box<dyn Busiest> {
    Box::new(SpaceSaving::new(places))
}

/// Looks for the seeded bugs in these scenarios.
pub fn find_seeded(scenarios: u64) -> Found {
    Found::all(|bug: Bug| {
        let mut make = |places: usize| -> Box<dyn Busiest> { Box::new(Seeded::new(bug, places)) };
        (0..scenarios).any(|seed| counterexample(seed, &mut make, &mut Seen::default()).is_some())
    })
}

/// Keys from one seed.
struct Scenario {
    dice: Dice,
    places: usize,
    universe: u64,
    shape: u64,
    /// How many bits of a hash count: few make many keys share one.
    hash_bits: u32,
    long_keys: bool,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        Self {
            places: dice.between(1, 24) as usize,
            universe: dice.between(1, 120),
            shape: dice.below(4),
            hash_bits: dice.pick(&[0, 2, 64]),
            long_keys: dice.once_in(3),
            dice,
        }
    }

    fn play(mut self, make: &mut impl FnMut(usize) -> Box<dyn Busiest>, seen: &mut Seen) -> Check {
        let mut subject = make(self.places);
        let mut exact: HashMap<Vec<u8>, u64> = HashMap::new();
        for n in 1..=self.dice.between(1, 600) {
            let (hash, key) = self.key(n);
            subject.count(hash, &key);
            *exact.entry(key).or_default() += 1;
            judge(n, self.places, &exact, &subject.tracked(), seen)?;
            seen.keys += 1;
        }
        Ok(())
    }

    /// The next key: any, few far more often than others, one after the other, or a few busy ones among keys that never return.
    fn key(&mut self, n: u64) -> (u64, Vec<u8>) {
        let number = match self.shape {
            0 => self.dice.below(self.universe),
            1 => self.dice.any_size(self.universe),
            2 => n % self.universe,
            _ if self.dice.once_in(2) => self.dice.below(3),
            _ => 1_000 + n,
        };
        let mut key = number.to_le_bytes().to_vec();
        // Long ones differ where nothing of them is kept.
        if self.long_keys {
            key.splice(0..0, [b'x'; SpaceSaving::KEY_BYTES]);
        }
        let hash = Dice::new(number).roll();
        // Long ones are told apart by their hash, so they need all of it.
        let bits = if self.long_keys { 64 } else { self.hash_bits };
        (hash.checked_shr(64 - bits).unwrap_or(0), key)
    }
}

fn judge(
    n: u64,
    places: usize,
    exact: &HashMap<Vec<u8>, u64>,
    tracked: &[Tracked],
    seen: &mut Seen,
) -> Check {
    let bound = n / places as u64;
    seen.states += 1;
    ensure(tracked.len() <= places, || format!("{} have one of {places} places", tracked.len()))?;
    let sum: u64 = tracked.iter().map(|place| place.count).sum();
    ensure(sum == n, || format!("after {n} keys all counts are {sum}"))?;
    let owners = Owners::of(exact, tracked)?;
    for (place, truth) in owners.pairs {
        let Tracked { count, error, .. } = place;
        let counterexample = || format!("after {n} keys in {places} places, {truth} times, but {place:?}");
        ensure(
            count.checked_sub(*error).is_some_and(|least| least <= truth) && truth <= *count,
            counterexample,
        )?;
        ensure(*error <= bound, counterexample)?;
        seen.errors += u64::from(*error > 0);
        seen.errors_at_bound += u64::from(*error > 0 && *error == bound);
        seen.wrong_by_all += u64::from(*error > 0 && count - error == truth);
    }
    for (key, truth) in owners.without_place {
        ensure(truth <= bound, || {
            format!("{key:?} came {truth} of {n} times and has none of {places} places")
        })?;
        seen.level_without_place += u64::from(truth == bound);
    }
    Ok(())
}

/// Whose places they are.
struct Owners<'a> {
    pairs: Vec<(&'a Tracked, u64)>,
    without_place: Vec<(&'a [u8], u64)>,
}

impl<'a> Owners<'a> {
    /// Places of short keys say whose they are. Of long ones all places look alike, so they pass if the true counts can be given
    /// to them at all: the place with the greatest least count first, and to it the greatest that fits. If any way fits, this does.
    fn of(exact: &'a HashMap<Vec<u8>, u64>, tracked: &'a [Tracked]) -> Result<Self, String> {
        let long = |len: usize| len > SpaceSaving::KEY_BYTES;
        let (hidden, plain): (Vec<_>, Vec<_>) = tracked.iter().partition(|place| long(place.key_len));
        let mut left: HashMap<&[u8], u64> =
            exact.iter().map(|(key, truth)| (key.as_slice(), *truth)).collect();
        let mut pairs = Vec::new();
        for place in plain {
            let truth = left.remove(place.key.as_slice());
            pairs.push((place, truth.ok_or_else(|| format!("{place:?} never came, or has two places"))?));
        }
        let mut left: Vec<_> = left.into_iter().collect();
        left.sort_by_key(|(_, truth)| std::cmp::Reverse(*truth));
        let mut by_count = hidden;
        by_count.sort_by_key(|place| (std::cmp::Reverse(place.count - place.error), place.count));
        for place in by_count {
            let fits = |(_, truth): &(&[u8], u64)| (place.count - place.error..=place.count).contains(truth);
            let at = left.iter().position(fits).ok_or_else(|| format!("{place:?} is nobody's"))?;
            pairs.push((place, left.remove(at).1));
        }
        Ok(Self { pairs, without_place: left })
    }
}

throttlekit_conformance::bugs! {
    /// What is wrong with a counter of the busiest.
    pub enum Bug {
        NewcomerStartsAtZero: "A new key starts at zero instead of the count that it replaces.",
        ErrorNotKept: "A new key that replaces another has no error.",
        ErrorOneTooHigh: "The error of a new key is one too high.",
        ErrorOneTooLow: "The error of a new key is one too low.",
        ReplacesTheGreatest: "A new key replaces the one with the greatest count.",
        ReplacesAnyone: "A new key replaces the last one, whatever its count.",
        NeverReplaces: "A new key never replaces another.",
        OnePlaceMore: "There is one place too many.",
        OnePlaceFewer: "There is one place too few.",
        CountsTheNewcomerTwice: "A new key that replaces another counts twice.",
        LongKeysByTheirStart: "Long keys with the same beginning are taken for one.",
        SameHashSameKey: "Keys with the same hash are taken for one.",
    }
}

/// The same written anew with a list, so that each step can be wrong.
struct Seeded {
    bug: Option<Bug>,
    places_max: usize,
    places: Vec<(u64, Tracked)>,
}

impl Seeded {
    fn new(bug: impl Into<Option<Bug>>, places: usize) -> Self {
        let bug = bug.into();
        let places_max = match bug {
            Some(Bug::OnePlaceMore) => places + 1,
            Some(Bug::OnePlaceFewer) => places.saturating_sub(1).max(1),
            _ => places,
        };
        Self { bug, places_max, places: Vec::new() }
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn position(&self, hash: u64, named: &Tracked) -> Option<usize> {
        self.places.iter().position(|(other, place)| match self.bug {
            Some(Bug::SameHashSameKey) => *other == hash,
            Some(Bug::LongKeysByTheirStart) => place.key == named.key,
            _ => *other == hash && place.key == named.key && place.key_len == named.key_len,
        })
    }

    fn victim(&self) -> usize {
        let mut counts = self.places.iter().map(|(_, place)| place.count).enumerate();
        let victim = match self.bug {
            Some(Bug::ReplacesTheGreatest) => counts.max_by_key(|(_, count)| *count),
            Some(Bug::ReplacesAnyone) => counts.next_back(),
            _ => counts.min_by_key(|(_, count)| *count),
        };
        victim.map_or(0, |(at, _)| at)
    }

    fn replace(&mut self, hash: u64, named: Tracked) {
        let at = self.victim();
        let least = self.places[at].1.count;
        let error = match self.bug {
            Some(Bug::ErrorNotKept | Bug::NewcomerStartsAtZero) => 0,
            Some(Bug::ErrorOneTooHigh) => least + 1,
            Some(Bug::ErrorOneTooLow) => least - 1,
            _ => least,
        };
        let before = if self.is(Bug::NewcomerStartsAtZero) { 0 } else { least };
        let count = before + if self.is(Bug::CountsTheNewcomerTwice) { 2 } else { 1 };
        self.places[at] = (hash, Tracked { count, error, ..named });
    }
}

impl Busiest for Seeded {
    fn count(&mut self, hash: u64, key: &[u8]) {
        let kept = key[..key.len().min(SpaceSaving::KEY_BYTES)].to_vec();
        let named = Tracked { key: kept, key_len: key.len(), count: 1, error: 0 };
        if let Some(at) = self.position(hash, &named) {
            self.places[at].1.count += 1;
        } else if self.places.len() < self.places_max {
            self.places.push((hash, named));
        } else if !self.is(Bug::NeverReplaces) {
            self.replace(hash, named);
        }
    }

    fn tracked(&self) -> Vec<Tracked> {
        self.places.iter().map(|(_, place)| place.clone()).collect()
    }
}

/// The same without a bug, to show that it is the bugs that are found.
pub fn written_anew(places: usize) -> Box<dyn Busiest> {
    Box::new(Seeded::new(None, places))
}
