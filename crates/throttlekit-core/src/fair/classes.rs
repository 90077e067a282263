//! All members by weight: guarantees and reserves that follow a limit and weights which change.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::class::Class;
use super::roster::Place;
use super::{Weight, guarantee};

/// Factor by which a guarantee must have risen before its members are filed from a higher use on. Large, so that an
/// oscillating limit does not cause a walk each time.
const REFILE_RISE: u64 = 4;

/// The classes of a roster. Each holds the guarantee that was true when it was last read; a change of the limit or of
/// the weights only marks all of them as out of date.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    limit: u64,
    weights: u64,
    all: Vec<Class>,
    by_weight: BTreeMap<Weight, u32>,
    free: Vec<u32>,
    /// Rises whenever some guarantee may have changed. A class whose stamp is older is out of date.
    stamp: u64,
    /// Number of classes that are up to date.
    current: usize,
    /// Total reserve, by the guarantee that each class holds.
    reserve: u64,
    /// The limit and the sum of weights from which the filing thresholds were last computed.
    filed_by: (u64, u64),
}

impl Classes {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, stamp: 1, ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        self.weights = 0;
        self.all.clear();
        self.by_weight.clear();
        self.free.clear();
        self.current = 0;
        self.reserve = 0;
        self.filed_by = (0, 0);
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn set_limit(&mut self, limit: u64) {
        if limit != self.limit {
            self.limit = limit;
            self.outdate();
        }
    }

    pub(super) fn weights(&self) -> u64 {
        self.weights
    }

    #[inline]
    pub(super) fn weight(&self, class: u32) -> Weight {
        self.all[class as usize].weight
    }

    /// Adds the member in this slot to the class of this weight.
    pub(super) fn add(&mut self, place: &mut Place, weight: Weight) -> u32 {
        place.class = self.class_of(weight);
        place.filed = place.used >= self.all[place.class as usize].file_from;
        self.change(place.class, |class| class.add(place.used, place.filed));
        self.weights += weight.get();
        self.outdate();
        place.class
    }

    /// Removes the member in this slot from its class.
    pub(super) fn remove(&mut self, place: &Place) {
        self.change(place.class, |class| class.remove(place.used, place.filed));
        let Class { weight, members, .. } = self.all[place.class as usize];
        self.weights -= weight.get();
        if members == 0 {
            self.by_weight.remove(&weight);
            self.free.push(place.class);
        }
        self.outdate();
    }

    /// Changes the use of the member in this slot.
    #[inline]
    pub(super) fn shift(&mut self, place: &mut Place, used: u64) {
        let before = *place;
        place.used = used;
        place.filed |= used >= self.all[place.class as usize].file_from;
        self.change(before.class, |class| {
            class.remove(before.used, before.filed);
            class.add(used, place.filed);
        });
    }

    /// Returns the current guarantee of each member of a class.
    #[inline]
    pub(super) fn guarantee(&mut self, class: u32, places: &mut [Place]) -> u64 {
        if self.all[class as usize].stamp != self.stamp {
            self.update(class, places);
        }
        self.all[class as usize].guarantee
    }

    /// Returns the current total reserve.
    #[inline]
    pub(super) fn reserve(&mut self, places: &mut [Place]) -> u64 {
        if self.current < self.all.len() {
            (0..self.all.len() as u32).for_each(|class| _ = self.guarantee(class, places));
        }
        self.reserve
    }

    fn class_of(&mut self, weight: Weight) -> u32 {
        if let Some(&class) = self.by_weight.get(&weight) {
            return class;
        }
        let fresh = Class::new(weight, file_from(weight, self.filed_by));
        let class = if let Some(class) = self.free.pop() {
            self.all[class as usize] = fresh;
            class
        } else {
            self.all.push(fresh);
            self.all.len() as u32 - 1
        };
        self.by_weight.insert(weight, class);
        class
    }

    /// Changes a class, and the reserve of all with it.
    #[inline]
    fn change(&mut self, class: u32, by: impl FnOnce(&mut Class)) {
        let class = &mut self.all[class as usize];
        let before = class.reserve();
        by(class);
        self.reserve = self.reserve - before + class.reserve();
    }

    /// From now on every guarantee has to be computed again.
    fn outdate(&mut self) {
        self.stamp += 1;
        self.current = 0;
    }

    /// Brings a class up to date.
    fn update(&mut self, class: u32, places: &mut [Place]) {
        let Class { weight, members, file_from: from, guarantee: held, .. } = self.all[class as usize];
        let promised = if members == 0 { from } else { guarantee(weight, self.weights, self.limit) };
        if promised == held {
            // Among many weights a newcomer moves few guarantees by a unit.
            self.all[class as usize].stamp = self.stamp;
            self.current += 1;
            return;
        }
        if promised < from {
            self.file_from_lower(places);
        }
        let now = self.stamp;
        self.change(class, |class| {
            class.set_guarantee(promised);
            class.stamp = now;
        });
        self.current += 1;
        if promised / REFILE_RISE > from {
            // Members filed at a lower use stay so.
            self.filed_by = (self.limit, self.weights);
            self.all[class as usize].file_from = file_from(weight, self.filed_by);
        }
    }

    /// Files members at lower uses too, as guarantees have fallen: the one walk over all members.
    fn file_from_lower(&mut self, places: &mut [Place]) {
        self.filed_by = (self.limit, self.weights);
        for class in &mut self.all {
            class.file_from = class.file_from.min(file_from(class.weight, self.filed_by));
        }
        for place in places.iter_mut().filter(|place| place.is_taken() && !place.filed) {
            let class = &mut self.all[place.class as usize];
            if place.used >= class.file_from {
                place.filed = true;
                class.file(place.used);
            }
        }
    }
}

/// Returns the use from which members of a weight are filed: seven eighths of their guarantee under a limit and a sum
/// of weights. The sum may be of a time before any member had this weight.
fn file_from(weight: Weight, (limit, weights): (u64, u64)) -> u64 {
    let promised = u128::from(guarantee(weight, weights, limit));
    (promised * 7 / 8) as u64
}
