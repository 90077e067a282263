//! Options of a token budget.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::learn::Reservation;
use throttlekit_core::lease::{Authority, Margin, Term};
use throttlekit_core::rate::shared::ScriptEncoding;

use super::TokenBudget;
use super::learners::Learners;
use super::ledger::Ledger;
use crate::clock::{BootClock, LeaseClock};
use crate::policy::TokenLimit;
use crate::store::Store;
use crate::{BuildError, OnOutage, SharedLimiter};

const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const STREAMS_MAX: usize = 65_536;

/// Default number of keys with a learner: 2.5 MiB if all of them are in use.
pub(super) const LEARNERS_MAX: usize = 16_384;

/// Number of tokens reserved for a stream. Default: learned for each key, with 16,384 learners.
///
/// A learned number is a target. At most a quarter of the budget is reserved for a stream, one part in 32 if the key
/// has no learner of its own, and less if less is left; a stream is denied only while less than the target and less
/// than a twentieth of the budget is left. A key with a learner of its own reserves no more than its streams produce
/// before the window ends. So whatever was learned, all but a twentieth of a budget can be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reserve {
    /// This many for each, all or none: at least one, and at most the whole budget.
    Fixed(u64),
    /// As many as one learner for all keys returns. Each key's streams change the reservations of all others.
    Learned(Reservation),
    /// As many as the key's own learner returns. No key changes the reservations of another.
    PerKey {
        /// The initial learner of each key.
        fresh: Reservation,
        /// Maximum number of learners. In a full table keys with many streams stay, and a key without a learner
        /// reserves by `fresh`.
        keys_max: usize,
    },
}

impl Default for Reserve {
    fn default() -> Self {
        Self::PerKey { fresh: Reservation::default(), keys_max: LEARNERS_MAX }
    }
}

/// Builder of a [`TokenBudget`].
#[derive(Debug)]
pub struct TokenBudgetBuilder<S, C = BootClock> {
    store: S,
    policy: String,
    limit: TokenLimit,
    clock: C,
    on_outage: OnOutage,
    reserve: Reserve,
    margin: Margin,
    idle_timeout: Duration,
    streams_max: usize,
}

impl<S: Store> TokenBudgetBuilder<S> {
    pub(super) fn new(store: S, policy: &str, limit: TokenLimit) -> Self {
        Self {
            store,
            policy: policy.to_owned(),
            limit,
            clock: BootClock,
            on_outage: OnOutage::default(),
            reserve: Reserve::default(),
            margin: Margin::default(),
            idle_timeout: IDLE_TIMEOUT,
            streams_max: STREAMS_MAX,
        }
    }
}

impl<S: Store, C: LeaseClock + 'static> TokenBudgetBuilder<S, C> {
    /// Sets how many tokens are reserved for a stream. Default: learned for each key.
    pub fn reserve(self, reserve: Reserve) -> Self {
        Self { reserve, ..self }
    }

    /// Sets the idle timeout of a stream. The reservation of a stream without a debit or a heartbeat for this long is
    /// returned; its later debits go to the store. Default: 30 s.
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        Self { idle_timeout: timeout.max(Duration::from_millis(1)), ..self }
    }

    /// Sets the maximum number of open streams in this process; further ones are denied until another ends. Default:
    /// 65,536.
    pub fn streams_max(self, streams: usize) -> Self {
        Self { streams_max: streams, ..self }
    }

    /// Sets the fallback for debits beyond the reservation while the store does not respond. Default: fail closed.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        Self { on_outage: choice, ..self }
    }

    /// Sets the margin for clock errors of the store and the process.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// Sets the clock by which reservations expire.
    pub fn clock<D: LeaseClock>(self, clock: D) -> TokenBudgetBuilder<S, D> {
        let Self { store, policy, limit, on_outage, reserve, margin, idle_timeout, streams_max, .. } = self;
        TokenBudgetBuilder {
            store,
            policy,
            limit,
            clock,
            on_outage,
            reserve,
            margin,
            idle_timeout,
            streams_max,
        }
    }

    /// Builds the budget. Fails if the limit is not counted in windows, or if they are too short for a reservation.
    pub fn build(self) -> Result<TokenBudget<S, C>, BuildError> {
        let limit = self.limit.0?;
        Authority::new(limit, Term::Window)?;
        let set_aside = ScriptEncoding::of(&limit.uncrossed())?;
        if !set_aside.counts_units() {
            return Err(BuildError::NotLeasable);
        }
        let margin = self.margin.behind(self.clock.behind_max());
        if margin.deadline(Timestamp::EPOCH, limit.period()) == Timestamp::EPOCH {
            return Err(BuildError::LeaseTooShort(limit.period()));
        }
        let shared =
            SharedLimiter::builder(self.store, &self.policy, limit).on_outage(self.on_outage).build()?;
        let learners = Learners::new(self.reserve);
        let ledger = Ledger::new(shared, set_aside, self.clock, margin, learners);
        Ok(TokenBudget::new(ledger.bounded(self.streams_max, self.idle_timeout)))
    }
}
