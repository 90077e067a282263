//! Models of one shared ceiling, as the first implementation had them: the amount to reserve for a node so
//! that all nodes together never exceed the ceiling.
//!
//! [`heartbeat`] has grants without delay, [`handoff`] has grants and reports with a delay, and [`fence`] has
//! a partitioned node. Each is explored as published, with its counts, and again with one of its terms
//! removed.

pub mod fence;
pub mod handoff;
pub mod heartbeat;

use fence::Fence;
use handoff::{Handoff, Reserve};
use heartbeat::{Cap, Heartbeat, Split};

use super::case::{Case, without};
use super::counter_examples::Assumption;

/// All nodes together never run more than the ceiling.
const CEILING: &str = "fleet-ceiling";
/// A partitioned node has stopped when its share goes to another.
const FENCED: &str = "self-fence";

/// Returns the published scenarios, and others in which the same bound holds.
pub fn cases() -> Vec<Case> {
    let heartbeat =
        |name, states, model: Heartbeat| Case::new(CEILING, name, model.limit.to_string(), states, model);
    let handoff =
        |name, states, model: Handoff| Case::new(CEILING, name, model.limit.to_string(), states, model);
    let fence = |name, states, model: Fence| Case::new(FENCED, name, "1".to_owned(), states, model);
    let by_demand = |nodes, limit| Heartbeat { split: Split::ByDemand, ..Heartbeat::published(nodes, limit) };
    vec![
        heartbeat("at once, N2 L4", 76, Heartbeat::published(2, 4)),
        heartbeat("at once, N2 L6", 149, Heartbeat::published(2, 6)),
        heartbeat("at once, N3 L4", 361, Heartbeat::published(3, 4)),
        heartbeat("at once, N3 L6", 1_432, Heartbeat::published(3, 6)),
        heartbeat("at once, by demand, N2 L4", 112, by_demand(2, 4)),
        heartbeat("at once, by demand, N3 L2", 103, by_demand(3, 2)),
        heartbeat("at once, by demand, N3 L6", 2_547, by_demand(3, 6)),
        handoff("acknowledged, N2 L4 K3", 250_624, Handoff::published(2, 4, 3)),
        handoff("acknowledged, trimmed, N2 L4 K2", 12_387, Handoff::trimmed(2, 4, 2)),
        handoff("acknowledged, trimmed, N2 L4 K3", 76_914, Handoff::trimmed(2, 4, 3)),
        handoff("acknowledged, trimmed, N2 L6 K2", 38_223, Handoff::trimmed(2, 6, 2)),
        fence("cut off, aborts, margin = skew", 580, ABORTS),
        fence("cut off, runs on, margin = skew + work", 520, RUNS_ON),
    ]
}

const ABORTS: Fence = Fence { life: 9, margin: 2, skew_max: 2, work_max: 3, aborts: true, fences: true };
const RUNS_ON: Fence = Fence { margin: 5, aborts: false, ..ABORTS };

/// Returns one assumption for each removed term, with the shortest counterexample that exceeds the ceiling.
pub fn assumptions() -> Vec<Assumption> {
    let (at_once, late) = (Heartbeat::published(2, 4), Handoff::published(2, 4, 2));
    let reserve = |reserve| Handoff { reserve, ..late };
    vec![
        without("a grant leaves what others were granted", CEILING, Heartbeat { cap: Cap::None, ..at_once }),
        without(
            "a grant leaves what others have in flight",
            CEILING,
            Heartbeat { cap: Cap::Share, ..at_once },
        ),
        without("the most that a node may still obey is kept for it", CEILING, reserve(Reserve::Snapshot)),
        without("what a node says is in flight is kept for it", CEILING, reserve(Reserve::Granted)),
        without("a report is of one instant", CEILING, Handoff { torn_report: true, ..late }),
        without("a node obeys no older grant", CEILING, Handoff { obeys_older: true, ..late }),
        without("the node stops by itself", FENCED, Fence { fences: false, ..ABORTS }),
        without("the margin covers the skew", FENCED, Fence { margin: ABORTS.margin - 1, ..ABORTS }),
        without(
            "the margin covers the work that runs on",
            FENCED,
            Fence { margin: RUNS_ON.margin - 1, ..RUNS_ON },
        ),
    ]
}

/// Returns the share of each of `nodes` when `units` are split evenly and rounded up.
fn even_split(units: u8, nodes: usize) -> u8 {
    units.div_ceil(nodes as u8)
}

fn named(node: usize) -> char {
    char::from(b'A' + node as u8)
}

#[cfg(test)]
mod tests;
