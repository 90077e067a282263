//! The production machine over a network that delays, reorders, loses and doubles.
//!
//! A request, the store's answer and the arrival of its reply are steps of their own, and any other step may come
//! between them: ticks of the clock, asks at this node and others, a driver that gives up, a thread that sleeps with a unit
//! in its hand, a crash, a failover. A tick is a millisecond by a clock that runs right.
//!
//! It speaks the [`Operation`]s of the simulator. Its state is a leaner one than [`crate::state::ClusterState`]: it
//! keeps no history but the one number that its invariant counts, so that states with the same future are the same
//! state.
//!
//! What a scenario may do is bounded (ticks, letters in flight, callers waiting, faults of any kind), so there is an
//! end to its states. Within those bounds every order of steps is explored.
//!
//! Nodes are alike but for their clocks, which are part of them. Two states that differ only in the order of their
//! nodes have the same future, so nodes are kept sorted by a hash of all they hold. That is a permutation and no more:
//! nodes whose hashes collide are merely not recognised as the same.

mod letters;
mod menu;
mod node;
mod state;
mod store;

use std::time::Duration;

use stateright::{Model, Property};
use throttlekit_core::lease::{Authority, HolderOptions, Margin, Term};
use throttlekit_core::rate::{Limit, Rate};
use throttlekit_core::{Cost, Timestamp};

pub use menu::in_words;
pub use node::Node;
pub use state::NetworkState;
pub use store::Keeping;

use super::seam::Seam;
use crate::operation::Operation;

/// A clock that ticks evenly, begins anywhere, and may run fast or slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    /// What it shows at the beginning, in milliseconds.
    pub begins_ms: u64,
    /// What it counts in one tick; a million is right.
    pub nanos_per_tick: u64,
}

impl Clock {
    /// A clock that runs right and shows as much at the beginning.
    pub const fn at(begins_ms: u64) -> Self {
        Self { begins_ms, nanos_per_tick: 1_000_000 }
    }

    /// What it shows.
    pub fn read(&self, tick: u64) -> Timestamp {
        Timestamp::from_millis(self.begins_ms) + Duration::from_nanos(self.nanos_per_tick * tick)
    }
}

/// The clocks of two nodes, which have nothing in common with each other.
pub const TWO: [Clock; 2] = [Clock::at(0), Clock::at(50)];

/// Which promise is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// Units carry over: at most `L + N·max(B, c)` per window.
    Carry,
    /// Units die with their window: at most `L` in it.
    Coupled,
    /// Units of a smooth rate live for a time `h`: in any interval Δ at most
    /// `burst + rate·Δ + min(rate·h, N·H)`, where a node holds at most `H`.
    Rolling,
    /// The store fails over once: at most `L` and what the new one does not know was lent.
    Failover,
}

impl Invariant {
    /// Its name in the book of guarantees.
    pub fn name(self) -> &'static str {
        match self {
            Invariant::Carry => "lease-carry",
            Invariant::Coupled => "lease-coupled",
            Invariant::Rolling => "lease-rolling",
            Invariant::Failover => "failover",
        }
    }
}

/// A scenario to explore: its limit, its nodes, and how much may happen.
#[derive(Clone, Debug)]
pub struct Network {
    /// Which promise is under test.
    pub invariant: Invariant,
    /// Units per window, or the burst of a smooth rate.
    pub limit: Cost,
    /// How many ticks a window lasts by the store's clock; for a smooth rate, how many each unit takes.
    pub window: u64,
    /// How long units of a smooth rate live, in ticks.
    pub hold: u64,
    /// What callers may ask for.
    pub costs: &'static [Cost],
    /// The most that a node leases.
    pub batch: Cost,
    /// A node asks ahead of need when it holds this or less. None: it does not.
    pub low_water: Option<Cost>,
    /// The clock of each node.
    pub clocks: &'static [Clock],
    /// The store's clock.
    pub store_clock: Clock,
    /// What the clocks may be wrong by, as the nodes are told.
    pub margin: Margin,
    /// How the store keeps what it knows.
    pub keeping: Keeping,
    /// How much may happen.
    pub room: Room,
    /// Which assumption is removed, if any.
    pub seam: Seam,
    /// Whether states that differ in the order of nodes count as one.
    pub sorted: bool,
}

/// How much may happen in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How long it lasts.
    pub ticks: u64,
    /// Requests of one node in flight at once, and as many replies. One more than one: a driver that gave up asks again.
    pub letters: usize,
    /// Callers of one node that wait at once.
    pub waiters: usize,
    /// Returns sent in all.
    pub returns: u8,
    /// Letters lost, letters delivered twice, threads that sleep, and crashes, in all.
    pub faults: u8,
}

impl Network {
    /// One limit of `limit` units per window of `window` ticks, two nodes with clocks that have nothing in common, asks of one
    /// unit, and no faults: what the scenarios have in common.
    pub fn new(invariant: Invariant, limit: Cost, window: u64, batch: Cost) -> Self {
        Self {
            invariant,
            limit,
            window,
            hold: 0,
            costs: &[1],
            batch,
            low_water: None,
            clocks: &TWO,
            store_clock: Clock::at(0),
            margin: Margin::NONE,
            keeping: Keeping::Alone,
            room: Room { ticks: 2 * window, letters: 1, waiters: 1, returns: 0, faults: 0 },
            seam: Seam::Sound,
            sorted: true,
        }
    }

    fn term(&self) -> Term {
        match self.invariant {
            Invariant::Carry => Term::Carry,
            Invariant::Coupled | Invariant::Failover => Term::Window,
            Invariant::Rolling => Term::Rolling(Duration::from_millis(self.hold)),
        }
    }

    /// The store's side of the production machine.
    pub fn authority(&self) -> Authority {
        let tick = Duration::from_millis(1);
        let limit = match self.invariant {
            Invariant::Rolling => Limit::gcra(Rate::every(tick * self.window as u32).burst(self.limit)),
            _ => Limit::fixed_window(self.limit, tick * self.window as u32),
        };
        Authority::new(limit.expect("a limit above zero"), self.term()).expect("it can be lent")
    }

    /// What each node is told.
    pub fn plan(&self) -> HolderOptions {
        HolderOptions {
            term: self.term(),
            margin: self.margin,
            lease_max: self.batch,
            share: 1,
            denial_max: Duration::MAX,
        }
    }

    fn cost_max(&self) -> Cost {
        self.costs.iter().copied().max().expect("callers ask for something")
    }

    /// The most that may be admitted, in the measure of [`NetworkState::admitted`].
    pub fn bound(&self, state: &NetworkState) -> u64 {
        let nodes = self.clocks.len() as u64;
        match self.invariant {
            Invariant::Carry => self.limit + nodes * self.batch.max(self.cost_max()),
            Invariant::Coupled => self.limit,
            Invariant::Rolling => {
                // Units that die at different times do not add up, so a node that is one short of an ask may hold
                // that beside what the ask costs.
                let held_max = self.batch.max(2 * self.cost_max() - 1);
                // What was asked for at `t` is dead at `t + h`: it lives for a tick less.
                let lives = self.hold - 1;
                self.limit * self.window + lives.min(nodes * held_max * self.window)
            }
            Invariant::Failover => self.limit + state.lost(),
        }
    }

    fn broken(&self, state: &NetworkState) -> bool {
        state.admitted() > self.bound(state)
    }

    /// Whether a scenario shows that its bound is the least that holds. After a failover, only if something was lost.
    fn reached(&self, state: &NetworkState) -> bool {
        let lost_enough = self.keeping != Keeping::Async || state.lost() > 0;
        state.admitted() == self.bound(state) && lost_enough
    }
}

impl Model for Network {
    type State = NetworkState;
    type Action = Operation;

    fn init_states(&self) -> Vec<NetworkState> {
        vec![NetworkState::new(self)]
    }

    fn actions(&self, state: &NetworkState, menu: &mut Vec<Operation>) {
        menu::enabled(self, state, menu);
    }

    fn next_state(&self, state: &NetworkState, operation: Operation) -> Option<NetworkState> {
        state.after(self, operation)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("within the bound", |model: &Self, state: &NetworkState| !model.broken(state)),
            Property::sometimes("the bound is reached", |model: &Self, state: &NetworkState| {
                model.reached(state)
            }),
            Property::always("a grant is credited once", |_, state: &NetworkState| !state.credited_twice()),
            Property::always("nobody waits for nothing", |_, state: &NetworkState| {
                state.nobody_waits_for_nothing()
            }),
        ]
    }
}
