//! Fair shares over time, for a plot: three tenants, one that starts late, one that goes quiet.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::fair::{GiveBack, Weight};

use super::{FairScenario, Held, Shares};
use throttlekit_conformance::Dice;

/// Units in a window.
const LIMIT: u64 = 70_000;
/// The resolution: this many steps in each of [`WINDOWS`] windows.
const STEPS: u64 = 100;
const WINDOWS: u64 = 3;
/// The weights of the three, and the demand of each per step: together one and a half times the limit.
const TENANTS: [(u64, u64); 3] = [(4, 600), (2, 250), (1, 200)];
/// The lightest starts late in the first window; the second goes quiet in the second and returns in the
/// third.
const LATE: (usize, u64) = (2, 30);
const QUIET: (usize, u64) = (1, STEPS + 20);

/// The return of quiet tenants' shares in the plot, where enabled: after five steps, within forty.
pub const PICTURED: GiveBack =
    GiveBack { quiet_after: step_length().saturating_mul(5), over: step_length().saturating_mul(40) };

/// The units of a tenant in its window by the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// The step, from the start; a window has a hundred.
    pub step: u64,
    /// The tenant.
    pub tenant: usize,
    /// Its weight.
    pub weight: u64,
    /// Units admitted in this window so far.
    pub admitted: u64,
}

/// Returns three windows of three tenants with weights 4, 2 and 1. The same seed gives the same rows.
pub fn shares_over_time(seed: u64, give_back: Option<GiveBack>) -> Vec<Given> {
    let scenario = FairScenario {
        limit: LIMIT,
        places: TENANTS.len(),
        give_back,
        weights: TENANTS.map(|(weight, _)| weight).to_vec(),
        start: Timestamp::from_nanos(super::WINDOW.as_nanos() as u64),
        operations: Vec::new(),
    };
    let (mut rule, mut dice) = (Held::new(&scenario), Dice::new(seed));
    let mut admitted = [0; TENANTS.len()];
    let mut rows = Vec::new();
    for step in 0..WINDOWS * STEPS {
        if step % STEPS == 0 {
            admitted = [0; TENANTS.len()];
        }
        let now = scenario.start + step_length().saturating_mul(step as u32);
        for turn in 0..TENANTS.len() {
            let tenant = (turn + step as usize) % TENANTS.len();
            if asks(tenant, step) {
                admitted[tenant] += spend(&mut rule, &mut dice, tenant, now);
            }
        }
        let row = |(tenant, &admitted)| Given { step, tenant, weight: TENANTS[tenant].0, admitted };
        rows.extend(admitted.iter().enumerate().map(row));
    }
    rows
}

fn asks(tenant: usize, step: u64) -> bool {
    let absent = tenant == LATE.0 && step < LATE.1;
    let quiet = tenant == QUIET.0 && (QUIET.1..2 * STEPS).contains(&step);
    !absent && !quiet
}

/// Sends one step's requests of a tenant, of one to fifty units each. Returns the admitted units.
fn spend(rule: &mut Held, dice: &mut Dice, tenant: usize, now: Timestamp) -> u64 {
    let (weight, mut wanted) = TENANTS[tenant];
    let weight = Weight::new(weight).expect("a weight");
    let mut admitted = 0;
    while wanted > 0 {
        let cost = dice.between(1, 50).min(wanted);
        wanted -= cost;
        if rule.ask(tenant, weight, cost, now).allowed {
            admitted += cost;
        }
    }
    admitted
}

const fn step_length() -> Duration {
    Duration::from_nanos(super::WINDOW.as_nanos() as u64 / STEPS)
}
