//! Every guarantee that a verification checks, with the seeded bugs that it must find.

use throttlekit_conformance::bugs::SeededBug;
use throttlekit_conformance::invariants::Invariant;
use throttlekit_conformance::{invariants, membership, regions, slots, stores};
use throttlekit_sim::bugs::LeaseBug;
use throttlekit_sim::slots::SlotBug;

use super::runner::names;
use super::{exhaustion, failover, label_truth, model, rolling_upgrade};
use throttlekit_verify::{
    admission, budget, budget_tree, budget_use, busiest, divided, drill, fair, guard, inference, isolation,
    key_capacity, learn, metering, outbound, price, reload, sketch, streams, throttle, turn,
};

/// The name of a guarantee, and those of its seeded bugs.
type Listed = (&'static str, Vec<&'static str>);

/// Prints every guarantee with its seeded bugs.
pub fn print() {
    let all = all();
    for (guarantee, bugs) in &all {
        println!("{guarantee:<26}{:>4}  {}", bugs.len(), bugs.join(", "));
    }
    model::pinned().iter().for_each(|line| println!("{line}"));
    let bugs = all.iter().map(|(_, bugs)| bugs.len()).sum::<usize>();
    println!("{} guarantees, {bugs} seeded bugs", all.len());
}

fn all() -> Vec<Listed> {
    let of_invariants =
        invariants::all().into_iter().chain(fair::invariants()).chain(turn::invariants()).map(
            |invariant: Invariant| {
                let bugs = invariant.seeded.iter().map(|(name, _)| *name).collect();
                (invariant.name, bugs)
            },
        );
    of_invariants.chain(others()).collect()
}

fn others() -> Vec<Listed> {
    vec![
        ("admission/fused", names(&admission::FUSED_BUGS)),
        ("admission/matrix", names(&admission::MATRIX_BUGS)),
        ("admission/order", every::<admission::OrderBug>()),
        ("admission/price", names(&admission::PRICED_BUGS)),
        ("admission/drill", every::<drill::DrillBug>()),
        ("bid-price/solver", every::<price::SolverBug>()),
        ("bid-price/refiner", every::<price::RefinerBug>()),
        ("bid-price/filter", every::<price::FilterBug>()),
        ("bid-price/removes", every::<price::PassBug>()),
        ("budget", every::<budget::BudgetBug>()),
        ("budget-streams", every::<streams::StreamBug>()),
        ("budget-tree", every::<budget_tree::TreeBug>()),
        ("budget-use", every::<budget_use::UseBug>()),
        ("budget-use/server", every::<super::budget_use::ServerBug>()),
        ("busiest", every::<busiest::Bug>()),
        ("exhaustion", every::<exhaustion::Bug>()),
        ("failover", failover::through_server::seeded()),
        ("fair-regions/pool", every::<regions::PoolBug>()),
        ("fair-regions", every::<throttlekit_verify::regions::RegionBug>()),
        ("fleet", every::<super::leasing_nodes::Bug>()),
        ("fleet-rolls", every::<membership::MembershipBug>()),
        ("fleet-slots", every::<divided::Bug>()),
        ("fleet-slots/simulated", every::<SlotBug>()),
        ("inference/steady", every::<inference::InferenceBug>()),
        ("inference/tails", every::<inference::tails::TailBug>()),
        ("isolated-callers", names(isolation::Bug::SEEDED)),
        ("key-capacity", every::<key_capacity::Bug>()),
        ("label-truth", label_truth::seeded()),
        ("learn/sizes", every::<learn::SizerBug>()),
        ("learn/forecasts", every::<learn::PredictorBug>()),
        ("learn/reservations", every::<learn::reserve::ReserveBug>()),
        ("learned-ceiling", every::<outbound::CeilingBug>()),
        ("lease-sim", every::<LeaseBug>()),
        ("metering", every::<metering::MeterBug>()),
        ("reload-room", every::<reload::ReloadBug>()),
        ("rolling-upgrade", rolling_upgrade::seeded()),
        ("same-everywhere", every::<stores::StoreBug>()),
        ("sketch", every::<sketch::SketchBug>()),
        ("sketch/merge", every::<sketch::MergeBug>()),
        ("sketch/threads", vec![sketch::RACY]),
        ("slots", every::<slots::SlotBug>()),
        ("slots/holders", every::<slots::HolderBug>()),
        ("slots/cycles", super::slots::cycle_bugs()),
        ("slots/in-process", every::<guard::SlotBug>()),
        ("slots/keyed", every::<guard::keyed::KeyedBug>()),
        ("throttle", every::<throttle::Bug>()),
        ("turn-order/server", super::turn_order::seeded()),
    ]
}

fn every<B: SeededBug>() -> Vec<&'static str> {
    names(B::ALL)
}

#[cfg(test)]
mod tests {
    use super::{all, model};

    /// A guarantee, a bug, a model or an assumption that is removed must be removed from `guarantees.txt`
    /// too, so that none is lost by accident.
    #[test]
    fn no_guarantee_and_no_seeded_bug_is_lost() {
        let listed = all().into_iter().map(|(guarantee, bugs)| format!("{guarantee}: {}", bugs.join(" ")));
        let listed: Vec<String> = listed.chain(model::pinned()).collect();
        let pinned: Vec<&str> = include_str!("guarantees.txt").lines().collect();
        assert_eq!(listed, pinned);
    }
}
