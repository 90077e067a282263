//! The policies, and meters with a seeded bug.

use std::time::Duration;

use throttlekit_core::learn::{Reservation, ReservationOptions};
use throttlekit_core::lease::{Authority, Epoch, Return, Term, Want};
use throttlekit_core::rate::{Limit, Rule, Settle, State};
use throttlekit_core::{Cost, Timestamp};

const WINDOW: Duration = Duration::from_secs(60);
/// The chunk size of policies that debit by chunks.
const CHUNK: u64 = 16;
/// The maximum of a learned reservation.
const RESERVE_MAX: u64 = 4_096;

/// A way to meter tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The cap is reserved and counts in full until the window ends.
    ReserveMax,
    /// The cap is reserved, and the unused part is returned when the stream ends.
    ReserveMaxRefunded,
    /// Streams start while any of the budget is left, and are counted when they end.
    AdmitThenCount,
    /// Each token is debited.
    PerToken,
    /// Each chunk of sixteen is debited.
    ByChunks,
    /// The same, where a stream starts only if the learned reservation for it is left.
    Paced,
}

impl Policy {
    /// Returns its name in tables and plots.
    pub fn label(self) -> &'static str {
        match self {
            Self::ReserveMax => "reserve-max",
            Self::ReserveMaxRefunded => "reserve-max, refunded",
            Self::AdmitThenCount => "admit-then-count",
            Self::PerToken => "streaming, per token",
            Self::ByChunks => "streaming, by 16",
            Self::Paced => "streaming, reserved",
        }
    }

    /// Returns the number of tokens that are debited at once.
    pub fn chunk(self) -> u64 {
        match self {
            Self::ByChunks | Self::Paced => CHUNK,
            _ => 1,
        }
    }
}

/// Admits streams and their chunks.
pub trait Meter {
    /// Starts a window.
    fn begin(&mut self, window: u64);
    /// Admits another stream and returns its ticket, or `None`.
    fn open(&mut self) -> Option<u64>;
    /// Returns `true` if a chunk may pass.
    fn debit(&mut self, ticket: &mut u64, tokens: Cost) -> bool;
    /// Ends a stream after this many tokens.
    fn end(&mut self, ticket: u64, produced: Cost);
}

/// Returns the meter of a policy for this budget and cap.
pub fn meter(policy: Policy, budget: u64, cap: u64) -> Box<dyn Meter> {
    Box::new(Metered::new(policy, budget, cap))
}

/// The budget of one key, kept by the production rules.
struct Metered {
    policy: Policy,
    budget: Limit,
    /// The source of reservations: it counts together with the budget, and nothing crosses its edge.
    set_aside: Authority,
    state: State,
    now: Timestamp,
    cap: u64,
    learner: Reservation,
}

impl Metered {
    fn new(policy: Policy, budget: u64, cap: u64) -> Self {
        let budget = Limit::token_budget(budget, WINDOW).expect("a valid budget");
        let set_aside = Authority::new(budget.uncrossed(), Term::Window).expect("windows lend");
        let options = ReservationOptions { max: cap.min(RESERVE_MAX), ..ReservationOptions::default() };
        let learner = Reservation::new(options).expect("valid options");
        Self { policy, budget, set_aside, state: State::default(), now: Timestamp::EPOCH, cap, learner }
    }

    /// Reserves tokens.
    fn reserve(&mut self, want: Want) -> Option<u64> {
        let granted = self.set_aside.lend(&mut self.state, want, self.now).granted;
        (granted > 0).then_some(granted)
    }

    /// Returns the request of a token budget for a key with history.
    fn want(&self) -> Want {
        Want::learned(self.learner.reserve(None), self.budget.units())
    }

    fn give_back(&mut self, units: Cost) {
        let epoch = Epoch(self.budget.mark(&self.state, self.now).0);
        self.set_aside.take_back(&mut self.state, Return { epoch, units }, self.now);
    }

    fn is_spent(&self) -> bool {
        !self.budget.decide(&self.state, 1, self.now).allowed
    }
}

impl Meter for Metered {
    fn begin(&mut self, window: u64) {
        self.now = Timestamp::EPOCH + WINDOW * u32::try_from(window).expect("few windows");
    }

    fn open(&mut self) -> Option<u64> {
        match self.policy {
            Policy::ReserveMax | Policy::ReserveMaxRefunded => self.reserve(Want::whole(self.cap)),
            Policy::Paced => self.reserve(self.want()),
            Policy::AdmitThenCount | Policy::PerToken | Policy::ByChunks => (!self.is_spent()).then_some(0),
        }
    }

    /// Debits the reservation first; beyond it the budget decides.
    fn debit(&mut self, ticket: &mut u64, tokens: Cost) -> bool {
        let part = tokens.min(*ticket);
        let rest = tokens - part;
        let passes = rest == 0
            || self.policy == Policy::AdmitThenCount
            || self.budget.check(&mut self.state, rest, self.now).allowed;
        if passes {
            *ticket -= part;
        }
        passes
    }

    fn end(&mut self, ticket: u64, produced: Cost) {
        match self.policy {
            Policy::AdmitThenCount => self.budget.owe(&mut self.state, produced, self.now),
            Policy::ReserveMaxRefunded | Policy::Paced => self.give_back(ticket),
            Policy::ReserveMax | Policy::PerToken | Policy::ByChunks => {}
        }
        self.learner.observe(None, produced);
    }
}

throttlekit_conformance::bugs! {
    /// A bug of a [`Seeded`] meter.
    pub enum MeterBug {
        RefusesTheCrossing: "A debit that crosses the edge of the budget is denied.",
        CountsAtTheEnd: "Tokens are counted when the stream ends.",
        CountsTheFirstOfAChunk: "Each chunk is counted as one token.",
        ReservesAcrossTheEdge: "A reservation may cross the edge of the budget.",
        KeepsWhatIsLeft: "What is left of a reservation is never returned.",
        GivesBackAll: "A stream returns what it has produced as well.",
    }
}

impl MeterBug {
    /// Returns the policy that it imitates.
    pub fn stands_for(self) -> Policy {
        match self {
            Self::RefusesTheCrossing | Self::CountsAtTheEnd | Self::CountsTheFirstOfAChunk => {
                Policy::ByChunks
            }
            Self::ReservesAcrossTheEdge | Self::KeepsWhatIsLeft | Self::GivesBackAll => Policy::Paced,
        }
    }
}

/// A meter with one bug.
pub struct Seeded {
    bug: MeterBug,
    real: Metered,
}

impl Seeded {
    /// Creates a meter with this bug.
    pub fn new(bug: MeterBug, budget: u64, cap: u64) -> Self {
        let mut real = Metered::new(bug.stands_for(), budget, cap);
        match bug {
            MeterBug::RefusesTheCrossing => real.budget = real.budget.uncrossed(),
            MeterBug::ReservesAcrossTheEdge => {
                real.set_aside = Authority::new(real.budget, Term::Window).expect("budgets lend");
            }
            _ => {}
        }
        Self { bug, real }
    }
}

impl Meter for Seeded {
    fn begin(&mut self, window: u64) {
        self.real.begin(window);
    }

    fn open(&mut self) -> Option<u64> {
        self.real.open()
    }

    fn debit(&mut self, ticket: &mut u64, tokens: Cost) -> bool {
        match self.bug {
            MeterBug::CountsAtTheEnd => true,
            MeterBug::CountsTheFirstOfAChunk => self.real.debit(ticket, 1),
            _ => self.real.debit(ticket, tokens),
        }
    }

    fn end(&mut self, ticket: u64, produced: Cost) {
        match self.bug {
            MeterBug::CountsAtTheEnd => {
                self.real.budget.owe(&mut self.real.state, produced, self.real.now);
                self.real.end(ticket, produced);
            }
            MeterBug::KeepsWhatIsLeft => self.real.end(0, produced),
            MeterBug::GivesBackAll => self.real.end(ticket + produced, produced),
            _ => self.real.end(ticket, produced),
        }
    }
}
