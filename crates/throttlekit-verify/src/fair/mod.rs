//! `fair-1` to `fair-4`: the guarantees of tenants that share a budget.
//!
//! [`judge`] runs a random [`FairScenario`] on any [`Shares`] and checks one invariant of its admissions. It
//! keeps its own [`Books`], which compute everything from all tenants each time. The same judge passes the
//! real rule and must find each seeded bug. The invariant of nested weights is beside them.

mod books;
mod judge;
mod over_time;
mod scenario;
mod seeded;
mod tree;

use throttlekit::clock::ManualClock;
use throttlekit::fair::FairRule;
use throttlekit::{Budget, Call, FairLimiter};
use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Timestamp};

pub use books::{Books, Place};
pub use judge::{FairInvariant, judge};
pub use over_time::{Given, PICTURED, shares_over_time};
pub use scenario::{FairScenario, Operation, WINDOW};
pub use seeded::{Bug, Seeded};
use throttlekit_conformance::invariants::{Invariant, Trial, Violation};
pub use tree::equal_leaves;

/// Shares one budget per window among tenants.
pub trait Shares {
    /// Decides a request of a tenant, which has this weight from now on.
    fn ask(&mut self, tenant: usize, weight: Weight, cost: Cost, now: Timestamp) -> Decision;
    /// Changes the limit.
    fn set_limit(&mut self, limit: u64, now: Timestamp);
    /// Forgets a tenant and returns its use.
    fn reset(&mut self, tenant: usize, now: Timestamp);
    /// Refunds units to the window that ends at `reset_at`.
    fn refund(&mut self, tenant: usize, units: Cost, reset_at: Timestamp, now: Timestamp);
}

/// The public limiter, on a clock set by the scenario.
pub struct Held {
    limiter: FairLimiter<ManualClock>,
    clock: ManualClock,
}

impl Held {
    /// Creates the limiter of a scenario.
    pub fn new(scenario: &FairScenario) -> Self {
        let clock = ManualClock::at(scenario.start);
        let limiter = FairLimiter::builder(Budget::per(scenario.limit, WINDOW))
            .rule(scenario.give_back.map_or(FairRule::Escrow, FairRule::GiveBack))
            .tenants_max(scenario.places)
            .clock(clock.clone())
            .build()
            .expect("scenarios have valid limits");
        Self { limiter, clock }
    }
}

impl Shares for Held {
    fn ask(&mut self, tenant: usize, weight: Weight, cost: Cost, now: Timestamp) -> Decision {
        self.clock.set(now);
        self.limiter.check(Call::by(&tenant.to_le_bytes()).cost(cost).weight(weight.get()))
    }

    fn set_limit(&mut self, limit: u64, now: Timestamp) {
        self.clock.set(now);
        self.limiter.set_limit(limit);
    }

    fn reset(&mut self, tenant: usize, now: Timestamp) {
        self.clock.set(now);
        self.limiter.reset(&tenant.to_le_bytes());
    }

    fn refund(&mut self, tenant: usize, units: Cost, reset_at: Timestamp, now: Timestamp) {
        self.clock.set(now);
        self.limiter.refund((&tenant.to_le_bytes(), units), reset_at);
    }
}

/// Returns every invariant of sharing, with the bugs that its check must find.
pub fn invariants() -> Vec<Invariant> {
    use Bug::*;
    vec![
        invariant(
            FairInvariant::Safety,
            &[
                GuaranteeAboveAll,
                EvictionRefunds,
                WeightRefunds,
                UseGivenBack,
                LimitKept,
                WindowBack,
                FreshOnReturn,
                ForgottenIsFresh,
                RemembersOneWindow,
                RefundOfAnyWindow,
            ],
        ),
        invariant(
            FairInvariant::SharingIncentive,
            &[
                CountedTwice,
                ReserveUnder,
                DividesFirst,
                WeightIgnored,
                WeightKept,
                DenialCharged,
                DenialForgotten,
                QuietWhileDenied,
                NeverWakes,
                PartEarly,
                PartLate,
                NanoEarly,
                NanoLate,
            ],
        ),
        invariant(
            FairInvariant::WorkConservation,
            &[
                NeverBorrows,
                OwnReserved,
                ReserveOver,
                TenantsStay,
                StaysAhead,
                RefundForgotten,
                DenialCharged,
                EvictionForgives,
            ],
        ),
        invariant(
            FairInvariant::BoundedUnfairness,
            &[BorrowsAgain, CountedTwice, WeightIgnored, EvictionForgives, MostUsedLoses, UseUncovered],
        ),
        invariant(
            FairInvariant::Answers,
            &[
                RetryEarly,
                NeverAsWait,
                LeftAsRemaining,
                PlaceImagined,
                RefundForgotten,
                RefundStaysCovered,
                MostUsedLoses,
                UseUncovered,
            ],
        ),
        tree::invariant(),
    ]
}

fn invariant(invariant: FairInvariant, bugs: &[Bug]) -> Invariant {
    let seeded = bugs.iter().map(|&bug| {
        (bug.name(), trial(vec![invariant], move |scenario| Box::new(Seeded::new(scenario, Some(bug)))))
    });
    let seeded = seeded.collect();
    Invariant {
        name: invariant.name(),
        holds: trial(vec![invariant], |scenario| Box::new(Held::new(scenario))),
        seeded,
    }
}

/// Returns a trial of all invariants at once on the public limiter: one run per scenario.
pub fn every_invariant() -> Trial {
    trial(FairInvariant::ALL.to_vec(), |scenario| Box::new(Held::new(scenario)))
}

/// Returns a trial of invariants on the rule that `make` creates for a scenario. A failing scenario is
/// shrunk.
pub fn trial(
    invariants: Vec<FairInvariant>,
    make: impl Fn(&FairScenario) -> Box<dyn Shares> + Send + Sync + 'static,
) -> Trial {
    Box::new(move |seed| {
        let scenario = FairScenario::roll(seed);
        let check = |scenario: &FairScenario| judge(&invariants, scenario, &mut *make(scenario));
        let Err(first) = check(&scenario) else { return Ok(()) };
        let short = scenario.shrink(|shorter| check(shorter).is_err());
        let problem = check(&short).err().unwrap_or(first);
        Err(Violation { seed, counterexample: format!("{problem}\n{short}") })
    })
}
