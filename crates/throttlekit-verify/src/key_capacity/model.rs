//! A simple limiter with exact cells and a sketch beyond them, and its seeded bugs.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use throttlekit::limiter::KeyMemory;
use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Decision, Timestamp};

use super::{Reply, Subject};

/// The size of a key in the model's own account.
const BYTES_PER_KEY: usize = 64;
const ROWS: u64 = 3;
/// The processor time of a check, and of one that copies a table of a million keys. It is counted rather than
/// measured, so that finding the bug does not depend on the machine.
const CHECK_NANOS: u64 = 100;
const COPY_NANOS: u64 = 20_000_000;

throttlekit_conformance::bugs! {
    /// A bug.
    pub enum Bug {
        SharedMaximum: "Keys without a cell start from the greatest debt of all that have none.",
        ForgetsBeyondTheBudget: "Keys without a cell start fresh each time.",
        GreatestOfTheRows: "An estimate is the greatest of a key's cells.",
        OneRow: "A sketch of one row.",
        RoundsDown: "Every other charge beyond the budget is rounded down to nothing.",
        KeepsWhatIsOver: "A key that owes nothing keeps its cell.",
        IgnoresTheBudget: "Cells are added beyond the budget.",
        AlwaysExact: "Every answer is labelled exact.",
        Rehashes: "A full table is copied into one twice as large, in one check.",
        TakesCells: "A newcomer takes the cell of a key that owes.",
    }
}

/// The model.
pub struct Model {
    limit: Limit,
    bug: Option<Bug>,
    now: Timestamp,
    cells_max: usize,
    cells: HashMap<u64, State>,
    sketch: Vec<State>,
    charges: u64,
    cpu_nanos: Rc<Cell<u64>>,
}

impl Model {
    /// Creates a model: three quarters of the budget are cells, the rest a sketch.
    pub fn new(limit: Limit, budget: usize, now: Timestamp, bug: Option<Bug>) -> Self {
        let cells_max = budget / 4 * 3 / BYTES_PER_KEY;
        let sketch = vec![State::Fresh; (budget / 4 / 8).max(ROWS as usize)];
        let (cells, cpu_nanos) = (HashMap::new(), Rc::default());
        Self { limit, bug, now, cells_max, cells, sketch, charges: 0, cpu_nanos }
    }

    /// Returns a clock of the processor time that the model counts.
    pub fn cpu(&self) -> impl Fn() -> u64 + use<> {
        let nanos = Rc::clone(&self.cpu_nanos);
        move || nanos.get()
    }

    fn places(&self, key: u64) -> Vec<usize> {
        let rows = if self.bug == Some(Bug::OneRow) { 1 } else { ROWS };
        let width = self.sketch.len() as u64 / ROWS;
        let mixed = |row: u64| {
            let mixed = (key ^ (row << 56)).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
        };
        (0..rows).map(|row| (row * width + mixed(row) % width) as usize).collect()
    }

    /// Returns the minimum of all of a key's cells.
    fn estimate(&self, key: u64) -> State {
        match self.bug {
            Some(Bug::ForgetsBeyondTheBudget) => return State::Fresh,
            Some(Bug::SharedMaximum) => return self.sketch[0].clone(),
            _ => {}
        }
        let left = |state: &State| self.limit.decide(state, 0, self.now).remaining;
        let states = self.places(key).into_iter().map(|place| &self.sketch[place]);
        let picked = match self.bug {
            Some(Bug::GreatestOfTheRows) => states.min_by_key(|state| left(state)),
            _ => states.max_by_key(|state| left(state)),
        };
        picked.cloned().unwrap_or_default()
    }

    fn raise(&mut self, key: u64, state: &State) {
        if self.bug == Some(Bug::SharedMaximum) {
            let limit = self.limit;
            return limit.join(&mut self.sketch[0], state);
        }
        for place in self.places(key) {
            self.limit.join(&mut self.sketch[place], state);
        }
    }

    fn has_room(&mut self) -> bool {
        if self.cells.len() < self.cells_max || self.bug == Some(Bug::IgnoresTheBudget) {
            return true;
        }
        if self.bug != Some(Bug::KeepsWhatIsOver) && self.charges.is_multiple_of(64) {
            let (limit, now) = (self.limit, self.now);
            self.cells.retain(|_, state| limit.idle_at(state) > now);
        }
        self.cells.len() < self.cells_max
    }

    fn known(&mut self, key: u64) -> Decision {
        let (limit, now) = (self.limit, self.now);
        self.cells
            .get_mut(&key)
            .map_or_else(|| limit.decide(&State::Fresh, 1, now), |state| limit.check(state, 1, now))
    }

    fn beyond(&mut self, key: u64) -> (Decision, bool) {
        let mut state = self.estimate(key);
        let fresh = self.limit.idle_at(&state) <= self.now;
        let decision = self.limit.check(&mut state, 1, self.now);
        if decision.allowed && !(self.bug == Some(Bug::RoundsDown) && self.charges.is_multiple_of(2)) {
            self.raise(key, &state);
        }
        (decision, fresh)
    }
}

impl Subject for Model {
    fn check(&mut self, key: u64) -> Reply {
        self.charges += 1;
        let copies = self.bug == Some(Bug::Rehashes) && self.charges == 1_000;
        let nanos = if copies { COPY_NANOS } else { CHECK_NANOS };
        self.cpu_nanos.set(self.cpu_nanos.get() + nanos);
        let (decision, exact) = if self.cells.contains_key(&key) {
            (self.known(key), true)
        } else if self.limit.idle_at(&self.estimate(key)) <= self.now && self.has_room() {
            self.cells.insert(key, State::Fresh);
            (self.known(key), true)
        } else if self.bug == Some(Bug::TakesCells) {
            let owner = self.cells.keys().next().copied().unwrap_or_default();
            self.cells.remove(&owner);
            self.cells.insert(key, State::Fresh);
            (self.known(key), true)
        } else {
            self.beyond(key)
        };
        Reply { decision, exact: Some(exact || self.bug == Some(Bug::AlwaysExact)) }
    }

    fn set(&mut self, now: Timestamp) {
        self.now = now;
    }

    fn memory(&self) -> KeyMemory {
        let mut memory = KeyMemory::default();
        memory.used_bytes = self.cells.len() * BYTES_PER_KEY + self.sketch.len() * 8;
        memory.live_keys = self.cells.len();
        memory
    }
}
