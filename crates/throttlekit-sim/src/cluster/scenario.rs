//! The parameters of one run, drawn from its seed.

use core::time::Duration;

use throttlekit_core::lease::{Authority, HolderOptions, Margin, Term};
use throttlekit_core::rate::{Limit, Rate};
use throttlekit_core::{Cost, Timestamp};

use crate::bugs::LeaseBug;
use crate::dice::Dice;
use crate::faults::Fault;
use crate::state::{Clock, Replication, Setup};

const MILLI: u64 = 1_000_000;

/// The initial parameters of one run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) setup: Setup,
    /// The length of a window, or the hold time of units leased from a smooth rate.
    pub(super) window: u64,
    pub(super) ends: u64,
    pub(super) costs: Costs,
    pub(super) batches: Batches,
    /// A node requests units ahead of need when it holds fewer than this.
    pub(super) low_water: Cost,
    pub(super) holder_ppm: u32,
    pub(super) grain: u64,
    pub(super) network: Network,
    /// The faults that may be injected in this run.
    pub(super) faults: Vec<Fault>,
    /// The mean time between faults other than those of the network.
    pub(super) fault_every: u64,
    /// The maximum number of requests in one burst.
    pub(super) burst_max: u64,
    /// The mean time between two bursts at a node.
    pub(super) burst_every: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) usual_max: Cost,
    pub(super) rare_max: Cost,
}

/// The batch size that drivers request. Any number is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batches {
    Fixed,
    Arbitrary,
    /// Doubled when a node runs out, halved when it has much left.
    Adaptive,
    Absurd,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    pub(super) delay: u64,
    pub(super) lost_percent: u64,
    pub(super) doubled_percent: u64,
    pub(super) slow_percent: u64,
    pub(super) timeout: u64,
    pub(super) replica_lag: u64,
}

impl Scenario {
    pub(super) fn draw(dice: &mut Dice, bug: Option<LeaseBug>) -> Self {
        let window = dice.pick(&[40, 60, 100, 200]) * MILLI;
        let (term, replication) = terms(dice, window);
        let units = limit_units(dice);
        let authority = Authority::new(limit(dice, term, units, window), term).expect("a limit that lends");
        let costs = costs(dice, units);
        let nodes = dice.pick(&[1, 2, 2, 3, 3, 4, 5, 8, 16, 32]);
        let (holder_ppm, store_ppm) = (drift_max(dice), drift_max(dice));
        let grain = dice.pick(&[0, 0, 1, 4, 10]) * MILLI;
        // Clocks show whole nanoseconds.
        let slack = Duration::from_nanos(grain + dice.pick(&[1, MILLI]));
        let margin = Margin { holder_ppm, authority_ppm: store_ppm, slack };
        let (batches, lease_max) = batches(dice, units, nodes);
        let share = dice.pick(&[1, 1, 2, 4, nodes]);
        let plan = HolderOptions { term, margin, lease_max, share, denial_max: Duration::MAX };
        let store_clock = Clock {
            offset: i128::from(dice.within(50, 90) * window + dice.below(window)),
            ppm: drift(dice, store_ppm),
            grain: 0,
        };
        let setup = Setup {
            authority,
            plan,
            batch: lease_max.min(units),
            nodes: nodes as usize,
            store_clock,
            cost_max: costs.rare_max,
            taken_max: 2,
            waiters_max: dice.within(1, 8) as usize,
            tries_max: 6,
            replication,
            isolation: Duration::from_nanos(window * dice.within(10, 120) / 100),
            bug,
        };
        let ends = window * dice.within(24, 48);
        let network = network(dice, window);
        let faults = faults_for(dice, &setup);
        let per_node = units.div_ceil(nodes);
        Self {
            window,
            ends,
            costs,
            batches,
            low_water: if dice.chance(50) { dice.within(1, lease_max.min(units).max(2)) } else { 0 },
            holder_ppm,
            grain,
            network,
            faults,
            fault_every: window / dice.within(1, 4),
            burst_max: (per_node * dice.within(1, 4) / costs.usual_max).max(4),
            burst_every: window / dice.within(4, 12),
            setup,
        }
    }

    /// Draws a node's clock: any offset, and a drift of the allowed maximum in either direction or of zero.
    pub(super) fn node_clock(&self, dice: &mut Dice, now: Timestamp) -> Clock {
        let ppm = drift(dice, self.holder_ppm);
        let grain = if dice.chance(70) { self.grain } else { 0 };
        // A clock that drifts back never reads below zero.
        let offset = i128::from(dice.within(1_000, 5_000) * MILLI + dice.below(MILLI) + now.as_nanos());
        Clock { offset, ppm, grain }
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

fn terms(dice: &mut Dice, window: u64) -> (Term, Replication) {
    let hold = Term::Rolling(Duration::from_nanos(window * dice.pick(&[1, 1, 2, 4]) / 2));
    match dice.below(20) {
        0..7 => (Term::Window, Replication::None),
        7..9 => (Term::Window, Replication::Async),
        9..11 => (Term::Window, Replication::Wait),
        11..14 => (Term::Window, Replication::Fence),
        14..17 => (hold, Replication::None),
        17 => (hold, dice.pick(&[Replication::Async, Replication::Wait])),
        _ => (Term::Carry, dice.pick(&[Replication::None, Replication::None, Replication::Async])),
    }
}

fn limit_units(dice: &mut Dice) -> u64 {
    match dice.below(8) {
        0..3 => dice.within(4, 40),
        3..6 => dice.within(50, 1_000),
        6 => dice.within(2_000, 10_000),
        _ => dice.within(10_000, 40_000),
    }
}

/// Returns a window, or a bucket that fills in about one. Its rate is a whole number of units per window, so
/// that the bucket's period is not rounded.
fn limit(dice: &mut Dice, term: Term, units: u64, window: u64) -> Limit {
    let length = Duration::from_nanos(window);
    let smooth = matches!(term, Term::Rolling(_)) || (term == Term::Carry && dice.chance(30));
    let made = if smooth {
        let pace = window.div_ceil(units);
        Limit::gcra(Rate::every(Duration::from_nanos(pace)).burst(units))
    } else {
        Limit::fixed_window(units, length)
    };
    made.expect("a limit within bounds")
}

fn costs(dice: &mut Dice, units: u64) -> Costs {
    match dice.below(10) {
        0..5 => Costs { usual_max: 1, rare_max: 1 },
        5..8 => Costs { usual_max: 3.min(units), rare_max: 3.min(units) },
        // Some cost more than the whole limit.
        _ => Costs { usual_max: 2, rare_max: dice.pick(&[50.min(units), 50, units + 1]) },
    }
}

fn drift_max(dice: &mut Dice) -> u32 {
    dice.pick(&[0, 500, 500, 20_000, 100_000])
}

fn drift(dice: &mut Dice, max: u32) -> i32 {
    dice.pick(&[-1, -1, 1, 0]) * max as i32
}

fn batches(dice: &mut Dice, units: u64, nodes: u64) -> (Batches, Cost) {
    let fair = units.div_ceil(nodes).max(1);
    let lease_max = match dice.below(6) {
        0 => 1,
        1 => dice.within(1, units),
        2 => units,
        _ => dice.within(1, 2 * fair),
    };
    match dice.below(8) {
        0..4 => (Batches::Fixed, lease_max),
        4..6 => (Batches::Arbitrary, lease_max),
        6 => (Batches::Adaptive, lease_max),
        _ => (Batches::Absurd, if dice.chance(50) { lease_max } else { u64::MAX }),
    }
}

fn network(dice: &mut Dice, window: u64) -> Network {
    Network {
        delay: window / dice.pick(&[400, 100, 40, 15]),
        lost_percent: dice.pick(&[0, 2, 5, 15]),
        doubled_percent: dice.pick(&[0, 3, 10, 20]),
        slow_percent: dice.pick(&[0, 3, 10]),
        timeout: window / dice.pick(&[12, 6, 3]),
        replica_lag: window / dice.pick(&[500, 50, 20, 8]),
    }
}

/// Draws a random half of the faults that apply to such a cluster: faults that always occur together hide
/// each other.
///
/// A store clock is never both stepped and failed over. Each of the two has its bound; together they may open a window
/// that a primary has lent from and its replica has never seen, and then the bound is only their sum.
fn faults_for(dice: &mut Dice, setup: &Setup) -> Vec<Fault> {
    use Fault::*;
    let mut list = vec![
        CutBothWays,
        CutUpward,
        CutDownward,
        ThreadPaused,
        NodePaused,
        NodeCrashed,
        NodeRebooted,
        KeyEvicted,
        StorePaused,
        BoundaryHerd,
        BoundaryHerd,
        ThreadPaused,
    ];
    match setup.replication {
        Replication::None => list.extend([StoreSetBack, StoreSetBack, StoreSetForward]),
        _ => list.extend([
            FailoverInSync,
            FailoverWithLag,
            FailoverWithLag,
            SplitBrain,
            FailoverAgain,
            ReplicaStalled,
        ]),
    }
    if matches!(setup.replication, Replication::Async | Replication::Fence) {
        list.push(StoreForgets);
    }
    if let Limit::Window(_) = setup.authority.limit() {
        list.extend([LimitLowered, LimitRaised]);
    }
    list.retain(|_| dice.chance(60));
    list
}
