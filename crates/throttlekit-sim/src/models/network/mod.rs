//! The production machine over a network that delays, reorders, loses and duplicates messages.
//!
//! A request, the store's decision and the arrival of its reply are separate steps, and any other step may
//! come between them: ticks of the clock, requests at this node and others, a driver that gives up, a thread
//! that pauses after it has taken a unit, a crash, a failover. A tick is a millisecond of an exact clock.
//!
//! The model uses the [`Operation`]s of the simulator. Its state is smaller than
//! [`crate::state::ClusterState`]: it keeps no history except the one number that its invariant counts, so
//! that states with the same future are the same state.
//!
//! Each scenario is bounded (ticks, messages in flight, waiting callers, faults of any kind), so its states
//! are finite. Within those bounds every order of steps is explored.
//!
//! Nodes differ only in their clocks, which are part of them. Two states that differ only in the order of
//! their nodes have the same future, so nodes are kept sorted by a hash of their whole state. The sort is
//! only a permutation: nodes whose hashes collide are merely not recognized as the same.

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

/// A clock that ticks evenly, starts anywhere, and may run fast or slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    /// The initial reading, in milliseconds.
    pub begins_ms: u64,
    /// The nanoseconds counted in one tick; a million is exact.
    pub nanos_per_tick: u64,
}

impl Clock {
    /// Creates an exact clock with this initial reading.
    pub const fn at(begins_ms: u64) -> Self {
        Self { begins_ms, nanos_per_tick: 1_000_000 }
    }

    /// Returns the reading at a tick.
    pub fn read(&self, tick: u64) -> Timestamp {
        Timestamp::from_millis(self.begins_ms) + Duration::from_nanos(self.nanos_per_tick * tick)
    }
}

/// The clocks of two nodes, unrelated to each other.
pub const TWO: [Clock; 2] = [Clock::at(0), Clock::at(50)];

/// The guarantee under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// Units carry over: at most `L + N·max(B, c)` per window.
    Carry,
    /// Units expire with their window: at most `L` in it.
    Coupled,
    /// Units of a smooth rate live for a time `h`: in any interval Δ at most `burst + rate·Δ + min(rate·h,
    /// N·H)`, where a node holds at most `H`.
    Rolling,
    /// The store fails over once: at most `L` plus the units lent without the new primary's knowledge.
    Failover,
}

impl Invariant {
    /// Returns its name in the list of guarantees.
    pub fn name(self) -> &'static str {
        match self {
            Invariant::Carry => "lease-carry",
            Invariant::Coupled => "lease-coupled",
            Invariant::Rolling => "lease-rolling",
            Invariant::Failover => "failover",
        }
    }
}

/// A scenario to explore: its limit, its nodes, and the bounds on what may happen.
#[derive(Clone, Debug)]
pub struct Network {
    /// The guarantee under test.
    pub invariant: Invariant,
    /// Units per window, or the burst of a smooth rate.
    pub limit: Cost,
    /// The length of a window in ticks of the store's clock; for a smooth rate, the ticks per unit.
    pub window: u64,
    /// The lifetime of units of a smooth rate, in ticks.
    pub hold: u64,
    /// The costs that callers may request.
    pub costs: &'static [Cost],
    /// The maximum that a node leases.
    pub batch: Cost,
    /// A node requests units ahead of need when it holds this or less. `None`: never.
    pub low_water: Option<Cost>,
    /// The clock of each node.
    pub clocks: &'static [Clock],
    /// The store's clock.
    pub store_clock: Clock,
    /// The clock error that the nodes are configured for.
    pub margin: Margin,
    /// The durability of the store.
    pub keeping: Keeping,
    /// The bounds on what may happen.
    pub room: Room,
    /// The removed assumption, if any.
    pub seam: Seam,
    /// If true, states that differ only in the order of nodes count as one.
    pub sorted: bool,
}

/// The bounds on what may happen in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The length of the scenario, in ticks.
    pub ticks: u64,
    /// The maximum number of requests of one node in flight, and the same number of replies. More than one,
    /// because a driver that gave up requests again.
    pub letters: usize,
    /// The maximum number of callers that wait at one node.
    pub waiters: usize,
    /// The maximum number of returns sent in all.
    pub returns: u8,
    /// The maximum number of messages lost, messages duplicated, threads paused and crashes, in all.
    pub faults: u8,
}

impl Network {
    /// Creates the common base of the scenarios: one limit of `limit` units per window of `window` ticks, two
    /// nodes with unrelated clocks, requests of one unit, and no faults.
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

    /// Returns the store's side of the production machine.
    pub fn authority(&self) -> Authority {
        let tick = Duration::from_millis(1);
        let limit = match self.invariant {
            Invariant::Rolling => Limit::gcra(Rate::every(tick * self.window as u32).burst(self.limit)),
            _ => Limit::fixed_window(self.limit, tick * self.window as u32),
        };
        Authority::new(limit.expect("a limit above zero"), self.term()).expect("it can be lent")
    }

    /// Returns the options of each node.
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

    /// Returns the maximum that may be admitted, in the measure of [`NetworkState::admitted`].
    pub fn bound(&self, state: &NetworkState) -> u64 {
        let nodes = self.clocks.len() as u64;
        match self.invariant {
            Invariant::Carry => self.limit + nodes * self.batch.max(self.cost_max()),
            Invariant::Coupled => self.limit,
            Invariant::Rolling => {
                // Units with different expiries do not add up, so a node that is one unit short of a request
                // may hold that beside the cost of the request.
                let held_max = self.batch.max(2 * self.cost_max() - 1);
                // Units requested at `t` have expired at `t + h`: they live for a tick less.
                let lives = self.hold - 1;
                self.limit * self.window + lives.min(nodes * held_max * self.window)
            }
            Invariant::Failover => self.limit + state.lost(),
        }
    }

    fn broken(&self, state: &NetworkState) -> bool {
        state.admitted() > self.bound(state)
    }

    /// Returns `true` if the state shows that the bound is tight. After a failover, only if something was
    /// lost.
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
