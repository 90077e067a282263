//! The explored clusters, and the number of states of each.

use throttlekit_core::concurrency::division::Split;

use super::{Fleet, INVARIANT, Room, Seam};
use crate::models::case::{Case, without};
use crate::models::counter_examples::Assumption;

const CALM: Room = Room { letters: 2, reports: 2, ticks: 2, deaths: 0, leaves: 0, losses: 0 };
const THREE: Fleet =
    Fleet { nodes: 3, limit: 3, split: Split::Equal, lives: 1, linger: 0, room: CALM, seam: Seam::Sound };
const TWO: Fleet = Fleet { nodes: 2, limit: 2, ..THREE };
/// Demand moves, and shares with it.
const MOVING: Fleet = Fleet { limit: 3, split: Split::Demand, ..TWO };

/// Returns the clusters that are explored within seconds.
pub fn small() -> Vec<Case> {
    let with = |room, fleet: Fleet| Fleet { room, ..fleet };
    vec![
        case("N2 L2, a death, a leave", 118_272, with(Room { deaths: 1, leaves: 1, ..CALM }, TWO)),
        case("N2 L3, wants move, 4 reports", 309_449, moving(4)),
    ]
}

/// Returns the clusters that take minutes together.
pub fn large() -> Vec<Case> {
    let with = |room, fleet: Fleet| Fleet { room, ..fleet };
    let more = Room { reports: 3, ..CALM };
    vec![
        case("N3 L3, a roll is lost, a death", 374_217, with(Room { deaths: 1, losses: 1, ..CALM }, THREE)),
        case("N2 L3, wants move, 6 reports", 1_558_083, moving(6)),
        case(
            "N2 L1, wants move, 2 messages at a time",
            359_327,
            Fleet { limit: 1, room: Room { letters: 2, ..moving(4).room }, ..moving(4) },
        ),
        case("N2 L1, late answers are taken", 245_694, late_answers()),
        case("N3 L3, 3 reports", 612_698, with(Room { ticks: 1, ..more }, THREE)),
        case(
            "N3 L2, work runs on, a death, a leave",
            903_388,
            with(Room { deaths: 1, leaves: 1, ..CALM }, Fleet { limit: 2, linger: 1, ..THREE }),
        ),
        case("N3 L3, 3 reports, work runs on", 2_647_998, with(more, Fleet { linger: 1, ..THREE })),
        case("N3 L3, 3 reports, a leave", 4_710_217, with(Room { leaves: 1, ..more }, THREE)),
        case("N3 L3, 3 reports, a roll is lost", 3_408_645, with(Room { losses: 1, ..more }, THREE)),
    ]
}

/// Returns a cluster in which demand moves, and shares with it, while reports and grants are lost or late.
fn moving(reports: u8) -> Fleet {
    Fleet { room: Room { letters: 1, reports, ticks: 0, ..CALM }, ..MOVING }
}

/// Returns a cluster whose driver accepts any response. The rebalancer's reservation covers whatever the node
/// does.
fn late_answers() -> Fleet {
    let room = Room { reports: 5, ticks: 0, ..CALM };
    Fleet { limit: 1, seam: Seam::LateAnswers, room, ..TWO }
}

fn case(name: &'static str, states: usize, fleet: Fleet) -> Case {
    Case::new(INVARIANT, name, fleet.limit.to_string(), states, fleet)
}

/// Returns one assumption at a time, with the shortest counterexample that exceeds the ceiling.
pub fn assumptions() -> Vec<Assumption> {
    let room = Room { ticks: 1, ..CALM };
    let with = |seam| Fleet { seam, room, ..TWO };
    let lost = |seam| Fleet { room: Room { ticks: 0, losses: 1, ..CALM }, ..with(seam) };
    let lingers = |seam| Fleet { linger: 1, ..with(seam) };
    let leaves = |seam| Fleet { room: Room { ticks: 0, leaves: 1, ..CALM }, ..with(seam) };
    // One node is alone with the whole ceiling, and hands over when another joins. Some need a message that
    // comes late.
    let joined = |seam, limit, reports, letters| {
        let room = Room { reports, letters, ticks: 0, ..CALM };
        Fleet { limit, room, ..with(seam) }
    };
    let long = |seam| Fleet { lives: 2, room: CALM, ..with(seam) };
    vec![
        without("a node stops when its grant has died", INVARIANT, with(Seam::Unfenced)),
        without("the fold knows how long work runs on", INVARIANT, lingers(Seam::LingerUntold)),
        without("on a roll that begins no share rises", INVARIANT, lost(Seam::NoQuiet)),
        without("whoever has work has not left", INVARIANT, leaves(Seam::LeavesWithWork)),
        without(
            "the most that a node may still enforce is kept",
            INVARIANT,
            joined(Seam::KeepsLast, 2, 4, 1),
        ),
        without("what a node has in flight is kept", INVARIANT, joined(Seam::KeepsNoWork, 2, 5, 1)),
        without("a report is of one instant", INVARIANT, joined(Seam::Torn, 1, 5, 1)),
        without("a node goes back to no older grant", INVARIANT, joined(Seam::GoesBack, 1, 5, 2)),
        without("whoever told of a grant that died takes no answer", INVARIANT, long(Seam::BelievesTheDead)),
        without(
            "late answers taken: all since the acknowledged is kept",
            INVARIANT,
            joined(Seam::LateAnswersKeepsLast, 1, 5, 2),
        ),
    ]
}
