//! `fair-1` to `fair-4`: what tenants that share a budget may rely on.
//!
//! [`judge`] plays a random [`FairWorld`] to anything that [`Shares`] and checks one law on what it admits. It keeps
//! its own [`Books`], which compute everything from all tenants each time. The same judge passes the real rule and
//! must find each planted bug. The law of nested weights is beside them.

mod books;
mod judge;
mod over_time;
mod planted;
mod tree;
mod world;

use throttlekit::fair::Escrow;
use throttlekit::{Ask, Cadence, FairLimiter, ManualClock};
use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Timestamp};

use crate::laws::{Law, Trial, Violation};
pub use books::{Books, Place};
pub use judge::{FairLaw, judge};
pub use over_time::{Given, PICTURED, shares_over_time};
pub use planted::{Bug, Planted};
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
        let escrow = Escrow::new(world.limit, Cadence::every(WINDOW)).expect("worlds have valid limits");
        let escrow = world.give_back.into_iter().fold(escrow, Escrow::give_back);
        let limiter = FairLimiter::builder(escrow).tenants_max(world.places).clock(clock.clone()).build();
        Self { limiter, clock }
    }
}

impl Shares for Held {
    fn ask(&mut self, tenant: usize, weight: Weight, cost: Cost, now: Timestamp) -> Decision {
        self.clock.set(now);
        self.limiter.check_weighing(Ask::of(&tenant.to_le_bytes()).cost(cost), weight)
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
        self.limiter.refund(&tenant.to_le_bytes(), units, reset_at);
    }
}

/// Every law of sharing, with the bugs that its check must find.
pub fn laws() -> Vec<Law> {
    use Bug::*;
    vec![
        law(
            FairLaw::Safety,
            &[
                ("guarantee_above_all", GuaranteeAboveAll),
                ("eviction_refunds", EvictionRefunds),
                ("weight_refunds", WeightRefunds),
                ("use_given_back", UseGivenBack),
                ("limit_kept", LimitKept),
                ("window_back", WindowBack),
                ("fresh_on_return", FreshOnReturn),
                ("forgotten_is_fresh", ForgottenIsFresh),
                ("remembers_one_window", RemembersOneWindow),
                ("refund_of_any_window", RefundOfAnyWindow),
            ],
        ),
        law(
            FairLaw::SharingIncentive,
            &[
                ("counted_twice", CountedTwice),
                ("reserve_under", ReserveUnder),
                ("divides_first", DividesFirst),
                ("weight_ignored", WeightIgnored),
                ("weight_kept", WeightKept),
                ("denial_charged", DenialCharged),
                ("denial_forgotten", DenialForgotten),
                ("quiet_while_denied", QuietWhileDenied),
                ("never_wakes", NeverWakes),
                ("part_early", PartEarly),
                ("part_late", PartLate),
                ("nano_early", NanoEarly),
                ("nano_late", NanoLate),
            ],
        ),
        law(
            FairLaw::WorkConservation,
            &[
                ("never_borrows", NeverBorrows),
                ("own_reserved", OwnReserved),
                ("reserve_over", ReserveOver),
                ("tenants_stay", TenantsStay),
                ("stays_ahead", StaysAhead),
                ("refund_forgotten", RefundForgotten),
                ("denial_charged", DenialCharged),
                ("eviction_forgives", EvictionForgives),
            ],
        ),
        law(
            FairLaw::BoundedUnfairness,
            &[
                ("borrows_again", BorrowsAgain),
                ("counted_twice", CountedTwice),
                ("weight_ignored", WeightIgnored),
                ("eviction_forgives", EvictionForgives),
                ("most_used_loses", MostUsedLoses),
                ("use_uncovered", UseUncovered),
            ],
        ),
        law(
            FairLaw::Answers,
            &[
                ("retry_early", RetryEarly),
                ("never_as_wait", NeverAsWait),
                ("left_as_remaining", LeftAsRemaining),
                ("place_imagined", PlaceImagined),
                ("refund_forgotten", RefundForgotten),
                ("refund_stays_covered", RefundStaysCovered),
                ("most_used_loses", MostUsedLoses),
                ("use_uncovered", UseUncovered),
            ],
        ),
        tree::law(),
    ]
}

fn law(law: FairLaw, bugs: &[(&'static str, Bug)]) -> Law {
    let planted = bugs
        .iter()
        .map(|&(name, bug)| (name, trial(vec![law], move |world| Box::new(Planted::new(world, Some(bug))))));
    let planted = planted.collect();
    Law { name: law.name(), holds: trial(vec![law], |world| Box::new(Held::new(world))), planted }
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
