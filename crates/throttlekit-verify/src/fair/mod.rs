//! `fair-1` to `fair-4`: what tenants that share a budget may rely on.
//!
//! [`judge`] plays a random [`FairWorld`] to anything that [`Shares`] and checks one law on what it admits. It keeps
//! its own [`Books`], which compute everything from all tenants each time. The same judge passes the real rule and
//! must find each seeded bug. The law of nested weights is beside them.

mod books;
mod judge;
mod over_time;
mod seeded;
mod tree;
mod world;

use throttlekit::clock::ManualClock;
use throttlekit::fair::FairRule;
use throttlekit::{Budget, Call, FairLimiter};
use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Timestamp};

pub use books::{Books, Place};
pub use judge::{FairLaw, judge};
pub use over_time::{Given, PICTURED, shares_over_time};
pub use seeded::{Bug, Seeded};
use throttlekit_conformance::laws::{Law, Trial, Violation};
pub use tree::equal_leaves;
pub use world::{FairWorld, Operation, WINDOW};

/// Anything that shares one budget per window among tenants.
pub trait Shares {
    /// Answers an ask of a tenant, which weighs this from now on.
    fn ask(&mut self, tenant: usize, weight: Weight, cost: Cost, now: Timestamp) -> Decision;
    /// Changes the limit.
    fn set_limit(&mut self, limit: u64, now: Timestamp);
    /// Forgets a tenant and hands its use back.
    fn reset(&mut self, tenant: usize, now: Timestamp);
    /// Hands units back into the window that ends at `reset_at`.
    fn refund(&mut self, tenant: usize, units: Cost, reset_at: Timestamp, now: Timestamp);
}

/// What users hold, on a clock that stands where the world says.
pub struct Held {
    limiter: FairLimiter<ManualClock>,
    clock: ManualClock,
}

impl Held {
    /// The limiter of a world.
    pub fn new(world: &FairWorld) -> Self {
        let clock = ManualClock::at(world.start);
        let limiter = FairLimiter::builder(Budget::per(world.limit, WINDOW))
            .rule(world.give_back.map_or(FairRule::Escrow, FairRule::GiveBack))
            .tenants_max(world.places)
            .clock(clock.clone())
            .build()
            .expect("worlds have valid limits");
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

/// Every law of sharing, with the bugs that its check must find.
pub fn laws() -> Vec<Law> {
    use Bug::*;
    vec![
        law(
            FairLaw::Safety,
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
        law(
            FairLaw::SharingIncentive,
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
        law(
            FairLaw::WorkConservation,
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
        law(
            FairLaw::BoundedUnfairness,
            &[BorrowsAgain, CountedTwice, WeightIgnored, EvictionForgives, MostUsedLoses, UseUncovered],
        ),
        law(
            FairLaw::Answers,
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
        tree::law(),
    ]
}

fn law(law: FairLaw, bugs: &[Bug]) -> Law {
    let seeded = bugs
        .iter()
        .map(|&bug| (bug.name(), trial(vec![law], move |world| Box::new(Seeded::new(world, Some(bug))))));
    let seeded = seeded.collect();
    Law { name: law.name(), holds: trial(vec![law], |world| Box::new(Held::new(world))), seeded }
}

/// All laws at once on what users hold: one world, one play.
pub fn every_law() -> Trial {
    trial(FairLaw::ALL.to_vec(), |world| Box::new(Held::new(world)))
}

/// The trial of laws on whatever `make` makes of a world. A failing world is shortened.
pub fn trial(
    laws: Vec<FairLaw>,
    make: impl Fn(&FairWorld) -> Box<dyn Shares> + Send + Sync + 'static,
) -> Trial {
    Box::new(move |seed| {
        let world = FairWorld::roll(seed);
        let check = |world: &FairWorld| judge(&laws, world, &mut *make(world));
        let Err(first) = check(&world) else { return Ok(()) };
        let short = world.shrink(|shorter| check(shorter).is_err());
        let problem = check(&short).err().unwrap_or(first);
        Err(Violation { seed, story: format!("{problem}\n{short}") })
    })
}
