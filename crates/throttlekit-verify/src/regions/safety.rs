//! At most the limit in a window, whatever the network, the clocks and the regions do.

use std::time::Duration;

use throttlekit::Limit;

use super::scenario::weight;
use super::sim::{Faults, RegionBug, Sim};
use throttlekit_conformance::Dice;
use throttlekit_conformance::invariants::Violation;

const STEPS: u64 = 400;

/// Checks the guarantee `fair-regions`, safety, in the scenario of this seed, with faults. Returns how much was
/// admitted of what could have been.
pub fn check_safety(seed: u64, bug: Option<RegionBug>) -> Result<(u64, u64), Violation> {
    let mut dice = Dice::new(seed);
    let units = dice.between(1, 60) * dice.pick(&[1, 5]);
    let limit =
        Limit::fixed_window(units, Duration::from_millis(dice.pick(&[500, 2_000]))).expect("in range");
    let (regions, tenants) = (dice.between(1, 4) as usize, dice.between(1, 4) as usize);
    let faults = Faults {
        lost: dice.pick(&[0, 3, 20]),
        twice: dice.pick(&[0, 3, 20]),
        delay_max: Duration::from_millis(dice.pick(&[1, 30, 400])),
        drift_ppm: dice.pick(&[0, 500]),
        pause: dice.pick(&[0, 10]),
    };
    let quantum = dice.between(1, 50);
    let mut sim = Sim::new(seed, regions, tenants, limit, quantum, faults, bug);
    for _ in 0..STEPS {
        match dice.below(12) {
            0 => sim.now = sim.now + Duration::from_millis(dice.below(300)),
            1..4 => drop(sim.deliver()),
            4 if dice.once_in(8) => sim.restart(dice.below(regions as u64) as usize),
            _ => {
                let (tenant, region) = (dice.below(tenants as u64), dice.below(regions as u64));
                let (weight, most) = (weight(dice.between(1, 9)), dice.between(1, units));
                sim.ask(tenant as usize, region as usize, weight, dice.between(1, most));
            }
        }
    }
    match sim.admitted.iter().find(|(_, admitted)| **admitted > units) {
        Some((ends, admitted)) => Err(Violation {
            seed,
            counterexample: format!(
                "{admitted} of {units} in the window that ends at {ends}, {faults:?}, quantum {quantum}"
            ),
        }),
        None => Ok((sim.admitted.values().sum(), sim.admitted.len() as u64 * units)),
    }
}
