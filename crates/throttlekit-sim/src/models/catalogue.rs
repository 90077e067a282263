//! The explored leasing scenarios, and the number of states of each.

use std::time::Duration;

use throttlekit_core::lease::Margin;

use super::case::Case;
use super::network::{Clock, Invariant, Keeping, Network, Room, TWO};
use super::one_step::OneStep;
use super::rolling_return::{BOUND_AT_SECONDS, RollingReturn};

/// Three exact clocks that agree, so that nodes are interchangeable.
const ALIKE: [Clock; 3] = [Clock::at(0); 3];
/// Counts three milliseconds in four ticks.
const SLOW: Clock = Clock { begins_ms: 50, nanos_per_tick: 750_000 };
/// Counts five milliseconds in four ticks.
const QUICK: Clock = Clock { begins_ms: 0, nanos_per_tick: 1_250_000 };
/// A margin that covers those two clocks.
const WIDE: Margin = Margin { holder_ppm: 250_000, authority_ppm: 250_000, slack: Duration::ZERO };
const DRIFTING: [Clock; 2] = [Clock::at(0), SLOW];

/// Returns the scenarios that are explored within seconds.
pub fn small() -> Vec<Case> {
    let room = Room { ticks: 1, letters: 1, waiters: 1, returns: 0, faults: 0 };
    let with = |invariant, limit, batch| Network {
        clocks: &ALIKE[..2],
        room,
        ..Network::new(invariant, limit, 1, batch)
    };
    let over = |keeping| Network { keeping, ..with(Invariant::Failover, 2, 2) };
    vec![
        one_step("one step, N2 L4 B2", Invariant::Carry, 31, OneStep::carry(2, 4, 2)),
        one_step("one step, N3 L6 B3", Invariant::Carry, 441, OneStep::carry(3, 6, 3)),
        one_step("one step, N5 L10 B2", Invariant::Carry, 992, OneStep::carry(5, 10, 2)),
        one_step("one step, N2 L4 B2", Invariant::Coupled, 8, OneStep::coupled(2, 4, 2)),
        one_step("one step, N3 L6 B3", Invariant::Coupled, 27, OneStep::coupled(3, 6, 3)),
        one_step("one step, N5 L10 B2", Invariant::Coupled, 112, OneStep::coupled(5, 10, 2)),
        one_step("one step, N8 L8 B2", Invariant::Coupled, 303, OneStep::coupled(8, 8, 2)),
        rolling("one step, N3 burst 5, 1/s, h 10 s", 11_616),
        network("N2 L2 B1", "4", 12_829, with(Invariant::Carry, 2, 1)),
        network("N2 L2 B2", "2", 3_635, with(Invariant::Coupled, 2, 2)),
        network("N2 burst 1, h 2", "2", 4_473, Network { hold: 2, ..with(Invariant::Rolling, 1, 1) }),
        network("async, N2 L2 B2", "2 + lost", 27_137, over(Keeping::Async)),
        network("fence, N2 L2 B2", "2", 24_599, over(Keeping::Fence)),
        network("wait, N2 L2 B2", "2", 13_511, over(Keeping::Wait)),
    ]
}

/// Returns the scenarios that take minutes together. A window is two ticks unless stated otherwise.
pub fn large() -> Vec<Case> {
    let room = Room { ticks: 2, letters: 1, waiters: 1, returns: 0, faults: 0 };
    let with = |invariant, limit, batch| Network {
        clocks: &ALIKE[..2],
        room,
        ..Network::new(invariant, limit, 2, batch)
    };
    let (carry, coupled) = (with(Invariant::Carry, 4, 2), with(Invariant::Coupled, 2, 2));
    let rolling = Network { window: 1, hold: 2, ..with(Invariant::Rolling, 2, 2) };
    let over = |keeping| Network { keeping, ..with(Invariant::Failover, 2, 2) };
    let faulty = Room { faults: 1, ..room };
    vec![
        network(
            "N2 L4 B2, 3 ticks, skew",
            "8",
            462_817,
            Network { clocks: &TWO, room: Room { ticks: 3, ..room }, ..carry.clone() },
        ),
        network(
            "N2 L4 B2, low water 1, window 1",
            "8",
            3_132_767,
            Network { low_water: Some(1), window: 1, room: Room { ticks: 1, ..room }, ..carry.clone() },
        ),
        network(
            "N2 L6 B2, costs 1 and 3, window 1",
            "12",
            9_883_189,
            Network { limit: 6, window: 1, costs: &[1, 3], room: Room { ticks: 1, ..room }, ..carry },
        ),
        network(
            "N2 L3 B2, costs 1 and 2",
            "3",
            1_551_763,
            Network { limit: 3, costs: &[1, 2], ..coupled.clone() },
        ),
        network("N2 L2 B2, a fault", "2", 9_010_168, Network { room: faulty, ..coupled.clone() }),
        network(
            "N2 L2 B2, a fault, a return, window 1",
            "2",
            9_479_894,
            Network { window: 1, room: Room { ticks: 1, returns: 1, ..faulty }, ..coupled.clone() },
        ),
        network(
            "N2 L3 B2, 2 waiters, 3 ticks, skew",
            "3",
            793_172,
            Network {
                limit: 3,
                clocks: &TWO,
                room: Room { ticks: 3, waiters: 2, ..room },
                ..coupled.clone()
            },
        ),
        network(
            "N2 L2 B2, a return, 3 ticks, skew",
            "2",
            853_256,
            Network { clocks: &TWO, room: Room { ticks: 3, returns: 1, ..room }, ..coupled.clone() },
        ),
        network("N3 L2 B2", "2", 693_163, Network { clocks: &ALIKE, ..coupled.clone() }),
        network(
            "N2 L2 B2, drift of a quarter, window 5",
            "2",
            137_439,
            Network {
                window: 5,
                clocks: &DRIFTING,
                store_clock: QUICK,
                margin: WIDE,
                room: Room { ticks: 4, ..room },
                ..coupled
            },
        ),
        network("N2 burst 2, h 2 (rate·h)", "3", 46_745, rolling.clone()),
        network("N2 burst 2 B1, h 6 (N·H)", "4", 48_272, Network { hold: 6, batch: 1, ..rolling.clone() }),
        network(
            "N2 burst 2, h 2, a fault",
            "3",
            2_018_550,
            Network { room: Room { ticks: 1, ..faulty }, ..rolling },
        ),
        network(
            "async, N2 L2 B2, a fault",
            "2 + lost",
            4_627_312,
            Network { room: Room { ticks: 1, ..faulty }, ..over(Keeping::Async) },
        ),
        network("fence, N2 L2 B2", "2", 100_807, over(Keeping::Fence)),
        network("wait, N2 L2 B2", "2", 58_137, over(Keeping::Wait)),
        network("async, N2 L2 B2", "2 + lost", 111_428, over(Keeping::Async)),
    ]
}

fn network(name: &'static str, bound: &str, states: usize, model: Network) -> Case {
    Case::new(model.invariant.name(), name, bound.to_owned(), states, model)
}

fn rolling(name: &'static str, states: usize) -> Case {
    Case::new(
        Invariant::Rolling.name(),
        name,
        BOUND_AT_SECONDS.to_string(),
        states,
        RollingReturn { returns: false },
    )
}

fn one_step(name: &'static str, invariant: Invariant, states: usize, model: OneStep) -> Case {
    Case::new(invariant.name(), name, model.bound().to_string(), states, model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_scenarios_have_as_many_states_as_they_had() {
        for case in small() {
            assert_eq!(case.wrong(&case.explore(1)), None);
        }
    }
}
