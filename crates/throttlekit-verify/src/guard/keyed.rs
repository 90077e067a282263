//! `slots-keyed`: no key ever exceeds its ceiling, whichever key is evicted, and memory is bounded.

use std::collections::{BTreeMap, BTreeSet};

use throttlekit::Guard;
use throttlekit::guard::{KeyedGuard, OwnedGuardPermit};

use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;
use throttlekit_conformance::check::{Check, ensure};

const LIMIT: usize = 2;
const PLACES: usize = 6;
const KEYS: u64 = 18;
const STEPS: usize = 400;

/// Limits the concurrency of each key, with a separate guard for a few of them.
pub trait HoldsKeys {
    /// Proof of admission.
    type Permit;
    /// Requests a slot of a key.
    fn ask(&mut self, key: u64) -> Option<Self::Permit>;
    /// Releases a slot.
    fn go(&mut self, permit: Self::Permit);
    /// Returns the number of tracked keys.
    fn keys(&self) -> usize;
}

impl HoldsKeys for KeyedGuard {
    type Permit = OwnedGuardPermit;

    fn ask(&mut self, key: u64) -> Option<OwnedGuardPermit> {
        self.try_acquire(&key.to_le_bytes()).ok()
    }

    fn go(&mut self, permit: OwnedGuardPermit) {
        permit.success();
    }

    fn keys(&self) -> usize {
        self.stats().keys
    }
}

/// Returns the production keyed guard.
pub fn shipped() -> KeyedGuard {
    Guard::builder(LIMIT as u32).keys_max(PLACES).build_per_key().expect("a valid limit")
}

/// Runs `scenarios` scenarios. Returns the first few violations.
pub fn examine<S: HoldsKeys>(scenarios: u64, make: impl Fn() -> S) -> Vec<String> {
    (0..scenarios).filter_map(|seed| play(seed, make()).err()).take(3).collect()
}

/// Searches for the seeded bugs in these scenarios.
pub fn find_seeded(scenarios: u64) -> Found {
    Found::all(|bug: KeyedBug| !examine(scenarios, || Seeded::new(bug)).is_empty())
}

/// Runs a scenario: keys come in bursts, and each holds its slots for a while.
fn play<S: HoldsKeys>(seed: u64, mut subject: S) -> Check {
    let mut dice = Dice::new(seed);
    let mut held: Vec<(u64, S::Permit)> = Vec::new();
    let busy_max = dice.between(1, 2 * PLACES as u64) as usize;
    for step in 0..STEPS {
        if held.len() >= busy_max || dice.once_in(3) && !held.is_empty() {
            let (_, permit) = held.swap_remove(dice.below(held.len() as u64) as usize);
            subject.go(permit);
            continue;
        }
        let key = dice.below(KEYS);
        let had = held.iter().filter(|(holder, _)| *holder == key).count();
        let busy = held.iter().map(|(holder, _)| holder).collect::<BTreeSet<_>>();
        let (idle, crowded) = (!busy.contains(&key), busy.len() >= PLACES);
        let permit = subject.ask(key);
        ensure(had < LIMIT || permit.is_none(), || {
            format!("scenario {seed}, step {step}: key {key} has {} of {LIMIT}", had + 1)
        })?;
        ensure(permit.is_some() || !idle || crowded, || {
            format!(
                "scenario {seed}, step {step}: key {key} has nothing and gets nothing, {} keys are busy",
                busy.len()
            )
        })?;
        held.extend(permit.map(|permit| (key, permit)));
        ensure(subject.keys() <= PLACES, || format!("scenario {seed}: {} keys are kept", subject.keys()))?;
    }
    let strangers = held.iter().map(|(key, _)| key).collect::<BTreeSet<_>>().len().saturating_sub(PLACES);
    let most = PLACES * LIMIT + LIMIT;
    ensure(held.len() <= most, || {
        format!("scenario {seed}: {} in flight, {strangers} without place", held.len())
    })
}

throttlekit_conformance::bugs! {
    /// A bug of a keyed guard.
    pub enum KeyedBug {
        EvictsBusy: "A key that holds slots is dropped to make room.",
        FreshBeyondCap: "Every newcomer beyond the cap has a ceiling of its own.",
        TwoCeilings: "A key gets a place while it still holds slots in the shared guard.",
        NeverEvicts: "Nobody is dropped to make room.",
        Unbounded: "No cap.",
    }
}

/// Counts by key, in a map, with one bug.
struct Seeded {
    bug: KeyedBug,
    /// For each tracked key: its entry, and the number in flight.
    places: BTreeMap<u64, (u64, usize)>,
    shared: Vec<u64>,
    given: u64,
}

/// The source of a slot: an entry, or the shared guard.
struct Had {
    key: u64,
    place: Option<u64>,
}

impl Seeded {
    fn new(bug: KeyedBug) -> Self {
        Self { bug, places: BTreeMap::new(), shared: Vec::new(), given: 0 }
    }

    fn make_room(&mut self) {
        let evicts_busy = self.bug == KeyedBug::EvictsBusy;
        let gone = self.places.iter().find(|(_, (_, held))| *held == 0 || evicts_busy).map(|(key, _)| *key);
        if let Some(gone) = gone.filter(|_| self.bug != KeyedBug::NeverEvicts) {
            self.places.remove(&gone);
        }
    }

    fn has_place(&mut self, key: u64) -> bool {
        if self.places.contains_key(&key) {
            return true;
        }
        if self.shared.contains(&key) && self.bug != KeyedBug::TwoCeilings {
            return false;
        }
        if self.places.len() >= PLACES && self.bug != KeyedBug::Unbounded {
            self.make_room();
        }
        let room = self.places.len() < PLACES || self.bug == KeyedBug::Unbounded;
        if room {
            self.given += 1;
            self.places.insert(key, (self.given, 0));
        }
        room
    }
}

impl HoldsKeys for Seeded {
    type Permit = Had;

    fn ask(&mut self, key: u64) -> Option<Had> {
        if self.has_place(key) {
            let (place, held) = self.places.get_mut(&key)?;
            let room = *held < LIMIT;
            *held += usize::from(room);
            return room.then_some(Had { key, place: Some(*place) });
        }
        let fresh = self.bug == KeyedBug::FreshBeyondCap;
        let room = fresh || self.shared.len() < LIMIT;
        room.then(|| {
            self.shared.push(key);
            Had { key, place: None }
        })
    }

    fn go(&mut self, permit: Had) {
        match permit.place {
            Some(place) => {
                let held = self.places.get_mut(&permit.key).filter(|(given, _)| *given == place);
                held.into_iter().for_each(|(_, held)| *held -= 1);
            }
            None => {
                let at = self.shared.iter().position(|key| *key == permit.key);
                at.into_iter().for_each(|at| _ = self.shared.swap_remove(at));
            }
        }
    }

    fn keys(&self) -> usize {
        self.places.len()
    }
}
