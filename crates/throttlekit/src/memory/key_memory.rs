//! Memory usage of keys.

/// Memory usage of keys, and the number of requests that it was too small for.
///
/// While keys fit their budget every decision is exact. Watch [`live_keys`](Self::live_keys) against
/// [`keys_max`](Self::keys_max), or [`used_bytes`](Self::used_bytes) against [`budget_bytes`](Self::budget_bytes) where
/// states differ in size: beyond, new keys are counted in an estimate. It never admits more than the limit, and it may
/// deny a key early that shares its cells with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyMemory {
    /// Maximum number of bytes that keys may take.
    pub budget_bytes: usize,
    /// Bytes that they have taken. Memory that is free again is kept for the next keys.
    pub used_bytes: usize,
    /// Keys that are counted exactly and have usage now.
    pub live_keys: usize,
    /// Number of keys that can be counted exactly. Near it, from about nine in ten on, the first are estimated.
    pub keys_max: usize,
    /// Charges to keys that were estimated, since the limiter was built.
    pub estimated: u64,
    /// Number of keys, of a million never seen before, that would start short of their limit now.
    pub strangers_short_ppm: u32,
}

impl KeyMemory {
    /// Adds the keys of a limit with a budget of its own.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            budget_bytes: self.budget_bytes + other.budget_bytes,
            used_bytes: self.used_bytes + other.used_bytes,
            live_keys: self.live_keys + other.live_keys,
            keys_max: self.keys_max + other.keys_max,
            estimated: self.estimated + other.estimated,
            strangers_short_ppm: self.strangers_short_ppm.max(other.strangers_short_ppm),
        }
    }
}

#[cfg(feature = "store")]
impl KeyMemory {
    /// Creates the report of a budget that several limits share.
    pub(crate) fn of(budget: &super::Budget) -> Self {
        Self { budget_bytes: budget.most(), used_bytes: budget.taken(), ..Self::default() }
    }

    /// Adds the keys of one of these limits.
    pub(crate) fn add(&mut self, one: &Self) {
        self.live_keys += one.live_keys;
        self.estimated += one.estimated;
        self.strangers_short_ppm = self.strangers_short_ppm.max(one.strangers_short_ppm);
        self.keys_max = self.live_keys.max(1) * self.budget_bytes / self.used_bytes.max(1);
    }
}

/// Sum of the probabilities that a key that was never seen finds a count in each of its rows.
#[derive(Default)]
pub(super) struct Collisions {
    sum: f64,
    sketches: usize,
}

impl Collisions {
    /// Adds a sketch of `cells` cells, of which `held` hold a count.
    pub(super) fn add(&mut self, held: usize, cells: usize) {
        let part = held as f64 / cells.max(1) as f64;
        self.sum += part.powi(throttlekit_core::rate::estimate::ROWS as i32);
        self.sketches += 1;
    }

    pub(super) fn ppm(&self) -> u32 {
        (self.sum / self.sketches.max(1) as f64 * 1e6).round() as u32
    }
}
