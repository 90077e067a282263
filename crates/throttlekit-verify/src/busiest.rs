//! Trackers of the busiest of many keys, checked against exact counts.
//!
//! After any sequence of `n` keys, with `k` entries: for each tracked key, count − error ≤ the true count ≤
//! count and error ≤ n / k; a key that came more than n / k times is tracked; at most `k` are tracked, and
//! none twice; and all counts add up to `n`, since counts move from entry to entry and are never lost.

use std::collections::HashMap;

use throttlekit_core::overload::SpaceSaving;

use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::{Check, ensure};

/// Counts keys, and tracks the most frequent.
pub trait Busiest {
    /// Counts one occurrence of a key.
    fn count(&mut self, hash: u64, key: &[u8]);
    /// Returns the tracked keys.
    fn tracked(&self) -> Vec<Tracked>;
}

/// A tracked key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// The stored prefix of the key.
    pub key: Vec<u8>,
    /// The length of the whole key in bytes.
    pub key_len: usize,
    /// The upper bound on its count.
    pub count: u64,
    /// The maximum error of that bound.
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

/// Counts over all scenarios, to show that each bound was tested where it is tight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Keys counted.
    pub keys: u64,
    /// States that were checked.
    pub states: u64,
    /// Errors above zero.
    pub errors: u64,
    /// Errors equal to the maximum.
    pub errors_at_bound: u64,
    /// Counts that were too high by their whole error.
    pub wrong_by_all: u64,
    /// Keys that came exactly n / k times and were not tracked.
    pub level_without_place: u64,
}

/// Runs `scenarios` scenarios on the tracker that `make` creates for a number of entries.
pub fn examine(scenarios: u64, mut make: impl FnMut(usize) -> Box<dyn Busiest>) -> (Seen, Vec<String>) {
    let mut seen = Seen::default();
    let violations = (0..scenarios).filter_map(|seed| counterexample(seed, &mut make, &mut seen)).collect();
    (seen, violations)
}

/// Returns the violation in one scenario, if there is one.
fn counterexample(
    seed: u64,
    make: &mut impl FnMut(usize) -> Box<dyn Busiest>,
    seen: &mut Seen,
) -> Option<String> {
    Scenario::new(seed).play(make, seen).err().map(|counterexample| format!("seed {seed}: {counterexample}"))
}

/// Returns the production tracker.
pub fn shipped(places: usize) -> Box<dyn Busiest> {
    Box::new(SpaceSaving::new(places))
}

/// Searches for the seeded bugs in these scenarios.
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
    /// The number of significant hash bits. With few, many keys collide.
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

    /// Draws the next key: uniform, skewed, sequential, or a few busy ones among keys that never return.
    fn key(&mut self, n: u64) -> (u64, Vec<u8>) {
        let number = match self.shape {
            0 => self.dice.below(self.universe),
            1 => self.dice.any_size(self.universe),
            2 => n % self.universe,
            _ if self.dice.once_in(2) => self.dice.below(3),
            _ => 1_000 + n,
        };
        let mut key = number.to_le_bytes().to_vec();
        // Long keys differ where nothing of them is stored.
        if self.long_keys {
            key.splice(0..0, [b'x'; SpaceSaving::KEY_BYTES]);
        }
        let hash = Dice::new(number).roll();
        // Long keys are distinguished by their hash, so they need all of it.
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

/// The keys of the entries.
struct Owners<'a> {
    pairs: Vec<(&'a Tracked, u64)>,
    without_place: Vec<(&'a [u8], u64)>,
}

impl<'a> Owners<'a> {
    /// Assigns keys to entries. Short keys are stored in their entries. Entries of long keys look alike, so
    /// they pass if the true counts can be assigned at all: the entry with the greatest lower bound first,
    /// and to it the greatest count that fits. If any assignment fits, this one does.
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
    /// A bug of a tracker.
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

/// An independent implementation with a list, so that each step can be wrong.
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

/// Returns the independent implementation without a bug, to show that the bugs are what is found.
pub fn written_anew(places: usize) -> Box<dyn Busiest> {
    Box::new(Seeded::new(None, places))
}
