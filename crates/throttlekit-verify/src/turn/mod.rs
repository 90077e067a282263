//! `turn-order`: the guarantees of callers that wait for a limiter.
//!
//! [`play`] runs random schedules of arrivals, cancellations and stopped runtimes on any [`Turns`], and checks one
//! guarantee. [`Shipped`] is the production queue; [`Plain`] is the same as a list, with or without a seeded bug.
//! [`play_queue`] runs schedules on the whole `wait::Queue` over a limiter, and [`play_slots`] over a guard, on a paused
//! clock.

mod end_to_end;
mod plain;
mod scenario;
mod shipped;
mod slots;

use std::time::Duration;

use throttlekit_conformance::invariants::{Invariant, Trial, Violation};
use throttlekit_core::turn::Departure;
use throttlekit_core::{Retry, Timestamp};

pub use end_to_end::{QueueBug, play_queue};
pub use plain::{Plain, TurnBug};
pub use scenario::play;
pub use shipped::Shipped;
pub use slots::{SlotBug, play_slots};

/// A caller, by the order of arrival.
pub type Who = u64;

/// Decides whose turn it is. Methods that change it return the caller to notify.
pub trait Turns {
    /// Adds a waiter.
    fn join(&mut self, who: Who, class: u8, now: Timestamp) -> Option<Who>;
    /// Records that a waiter is alive.
    fn see(&mut self, who: Who, now: Timestamp) -> Option<Who>;
    /// Begins a request, if it is the waiter's turn.
    fn request(&mut self, who: Who) -> bool;
    /// Ends a request that was denied.
    fn denied(&mut self, who: Who, now: Timestamp) -> Option<Who>;
    /// Removes a waiter.
    fn leave(&mut self, who: Who, departure: Departure, now: Timestamp) -> Option<Who>;
    /// Returns `true` if it is this waiter's turn.
    fn has_turn(&self, who: Who) -> bool;
    /// Returns the number of waiters.
    fn waiting(&self) -> usize;
    /// Returns the pause of a waiter after a denial.
    fn pause(&mut self, who: Who, retry: Retry, random: u64) -> Option<Duration>;
}

/// A part of the guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Waiters are served by class, and in the order of arrival within a class.
    Order,
    /// One turn in four goes by age, so a waiter has left after at most four turns for each in the queue.
    Starvation,
    /// A turn that ends reaches the next waiter, and nothing is left of a waiter that left.
    HandOver,
    /// A waiter without a sign of life loses its turn, and delays the others once.
    Stalled,
    /// One request is in flight at a time, and none before the wait is over.
    OneRequest,
}

impl Part {
    fn invariant(self, name: &'static str, bugs: &[TurnBug]) -> Invariant {
        let seeded = bugs.iter().map(|&bug| {
            let trial: Trial = Box::new(move |seed| trial(seed, self, &|| Plain::new(Some(bug))));
            (bug.name(), trial)
        });
        Invariant {
            name,
            holds: Box::new(move |seed| trial(seed, self, &Shipped::default)),
            seeded: seeded.collect(),
        }
    }
}

fn trial<T: Turns>(seed: u64, part: Part, make: &dyn Fn() -> T) -> Result<(), Violation> {
    play(seed, part, make).map_err(|counterexample| Violation { seed, counterexample })
}

/// Returns every part of the guarantee, with the bugs that its check must find.
pub fn invariants() -> Vec<Invariant> {
    use TurnBug::*;
    let passes_on = [TurnLostOnLeave, NextNotNotified, LeaverStays];
    vec![
        Part::Order.invariant(
            "turn-order/order",
            &[LastFirst, NewcomerFirst, PassedOverLosesPosition, ClassesReversed, NewcomerNeverTakesTurn],
        ),
        Part::Starvation.invariant(
            "turn-order/starvation",
            &[StrictPriority, NewcomerTakesTurnByAge, GivingUpEndsTurnByAge, GivingUpNotCounted],
        ),
        Part::HandOver.invariant("turn-order/hand-over", &passes_on),
        Part::Stalled
            .invariant("turn-order/stalled", &[StalledKeepsTurn, StalledRequestKeepsTurn, StalledOneByOne]),
        Part::OneRequest
            .invariant("turn-order/one-request", &[NewcomerTakesTurnOfRequest, JitterShortens, NoPause]),
        end_to_end::invariant(),
        slots::invariant(),
    ]
}
