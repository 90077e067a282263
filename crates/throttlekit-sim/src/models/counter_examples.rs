//! The assumptions of leasing, each with the shortest counterexample without it.

use super::check::Breach;
use super::network::{Clock, Invariant, Keeping, Network, NetworkState, Room, in_words};
use super::rolling_return::{BOUND, Fleet, Move, RollingReturn};
use super::seam::Seam;

/// An assumption of a model, and the search for a counterexample without it.
pub struct Assumption {
    /// The assumption.
    pub text: &'static str,
    /// The invariant that breaks without it.
    pub invariant: &'static str,
    search: Box<dyn Fn() -> Option<Vec<String>>>,
}

impl Assumption {
    pub(super) fn new(
        text: &'static str,
        invariant: &'static str,
        search: impl Fn() -> Option<Vec<String>> + 'static,
    ) -> Self {
        Self { text, invariant, search: Box::new(search) }
    }

    /// Searches for the shortest counterexample and returns its steps in plain language, if there is one.
    pub fn counterexample(&self) -> Option<Vec<String>> {
        (self.search)()
    }
}

/// Returns the assumptions of leasing.
pub fn assumptions() -> Vec<Assumption> {
    let networks = networks().into_iter();
    let networks = networks.map(|(text, network)| {
        Assumption::new(text, network.invariant.name(), move || counterexample(&network))
    });
    let lapses = "what was lent of a smooth rate lapses and is not given back";
    networks.chain([Assumption::new(lapses, Invariant::Rolling.name(), rolling_returned)]).collect()
}

const ONE: [Clock; 1] = [Clock::at(0)];
/// Two exact clocks that agree.
const RIGHT: [Clock; 2] = [Clock::at(0), Clock::at(0)];
/// Counts five milliseconds in four ticks.
const QUICK: Clock = Clock { begins_ms: 0, nanos_per_tick: 1_250_000 };

/// Windows of one tick, two of them: the minimum that each counterexample needs, so that it is found soon.
fn networks() -> Vec<(&'static str, Network)> {
    let room = Room { ticks: 1, letters: 1, waiters: 1, returns: 0, faults: 0 };
    let two = Network { clocks: &RIGHT, sorted: false, room, ..Network::new(Invariant::Coupled, 2, 1, 2) };
    let one = Network { clocks: &ONE, ..two.clone() };
    let two_with = |seam: Seam, room: Room| Network { seam, room, ..two.clone() };
    let one_with = |seam: Seam, room: Room| Network { seam, room, ..one.clone() };
    vec![
        (
            "a holder counts a life, and compares no instant of the store with a clock of its own",
            Network { store_clock: Clock::at(1), ..two_with(Seam::WallClock, room) },
        ),
        ("a life is counted from when the request was sent", two_with(Seam::ReplyAnchored, room)),
        (
            "a grant is credited once, however many wait for it",
            one_with(Seam::CreditPerWaiter, Room { ticks: 0, waiters: 2, ..room }),
        ),
        ("units say from which window they are", one_with(Seam::NoEpoch, Room { returns: 1, ..room })),
        (
            "the clock is read after the units are taken",
            two_with(Seam::ClockReadFirst, Room { faults: 1, ..room }),
        ),
        (
            "a return counts once",
            one_with(Seam::ReturnTwice, Room { ticks: 0, returns: 1, faults: 1, ..room }),
        ),
        (
            "the margin covers the drift of the clocks",
            Network { window: 5, store_clock: QUICK, room: Room { ticks: 4, ..room }, ..two.clone() },
        ),
        (
            "a store that took over lends nothing in a window it did not open",
            Network {
                invariant: Invariant::Failover,
                keeping: Keeping::Async,
                ..two_with(Seam::Unfenced, Room { ticks: 0, ..room })
            },
        ),
    ]
}

fn counterexample(network: &Network) -> Option<Vec<String>> {
    let Breach { invariant, path } = Breach::shortest(network)?;
    let steps: Vec<_> = path.into_vec();
    let told = steps.windows(2).filter_map(|pair| {
        let ((before, Some(operation)), (after, _)) = (&pair[0], &pair[1]) else { return None };
        Some(format!("{}{}", in_words(operation), outcome(network, before, after)))
    });
    let (last, _) = steps.last().expect("a path has a beginning");
    let end =
        format!("not {invariant}: {} where {} may be", last.admitted_units(network), network.bound(last));
    Some(told.chain([end]).collect())
}

fn outcome(network: &Network, before: &NetworkState, after: &NetworkState) -> String {
    match after.admitted_units(network).checked_sub(before.admitted_units(network)) {
        Some(0) | None if after.window(network) == before.window(network) => String::new(),
        Some(0) | None => ": the store's next window begins".into(),
        Some(units) => format!(": {units} admitted, {} in this window", after.admitted_units(network)),
    }
}

fn rolling_returned() -> Option<Vec<String>> {
    Breach::shortest(&RollingReturn { returns: true }).map(|Breach { path, .. }| {
        let steps: Vec<(Fleet, Option<Move>)> = path.into_vec();
        let name = |node: usize| char::from(b'A' + node as u8);
        let told = steps.iter().filter_map(|(fleet, action)| match (*action)? {
            Move::Second => None,
            Move::Lease(node) => Some(format!("at {} s {} leases 5", fleet.second(), name(node))),
            Move::LeaseReturn(node) => {
                Some(format!("at {} s {} gives back what it holds", fleet.second(), name(node)))
            }
        });
        let (last, _) = steps.last().expect("a path has a beginning");
        let end = format!(
            "at {} s {} could be spent at once, and the bound is {BOUND}",
            last.second(),
            last.spendable()
        );
        told.chain([end]).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_assumption_is_needed() {
        for assumption in assumptions() {
            assert!(assumption.counterexample().is_some(), "nothing breaks without: {}", assumption.text);
        }
    }
}
