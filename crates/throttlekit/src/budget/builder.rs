//! What can be chosen.

use std::time::Duration;

use throttlekit_core::learn::Reservation;
use throttlekit_core::lease::{Authority, Margin, Term};
use throttlekit_core::rate::shared::SharedForm;
use throttlekit_core::rate::{Limit, LimitError};
use throttlekit_core::{Cost, Timestamp};

use super::TokenBudget;
use super::learners::Learners;
use super::ledger::Ledger;
use crate::store::Store;
use crate::{BootClock, LeaseClock, OnOutage, SharedLimiter};

const SILENCE_MAX: Duration = Duration::from_secs(30);
const STREAMS_MAX: usize = 65_536;

/// How many keys have a learner unless chosen otherwise: 2.5 MiB where all of them do.
pub(super) const LEARNERS_MAX: usize = 16_384;

/// How many tokens are set aside for a stream. Default: learned for each key, with 16,384 learners.
///
/// A number that is learned is a wish. At most a quarter of the budget is set aside for a stream, one part in 32
/// where the key has no learner of its own, and less where less is left; a stream is denied only while less than the wish
/// and less than a twentieth of the budget is left. A key with a learner of its own is set aside no more than its streams
/// produce before the window ends. So whatever was learned, all but a twentieth of a budget can be used.
#[derive(Clone, Debug)]
pub enum Reserve {
    /// This many for each, all or none: at least one, and at most the whole budget.
    Fixed(Cost),
    /// As many as one learner for all keys says. Each key's streams change what is set aside for all others.
    Learned(Reservation),
    /// As many as a learner of the key's own says. No key changes what is set aside for another.
    PerKey {
        /// The learner that each key begins with.
        fresh: Reservation,
        /// The most learners that are kept. In a full table keys with many streams stay, and a key without a learner
        /// is set aside what `fresh` says.
        keys_max: usize,
    },
}

impl Default for Reserve {
    fn default() -> Self {
        Self::PerKey { fresh: Reservation::default(), keys_max: LEARNERS_MAX }
    }
}

/// Describes a [`TokenBudget`].
#[derive(Debug)]
pub struct BudgetBuilder<S, C = BootClock> {
    store: S,
    policy: String,
    limit: Result<Limit, LimitError>,
    clock: C,
    on_outage: OnOutage,
    reserve: Reserve,
    margin: Margin,
    silence_max: Duration,
    streams_max: usize,
}

impl<S: Store> BudgetBuilder<S> {
    pub(super) fn new(store: S, policy: &str, limit: Result<Limit, LimitError>) -> Self {
        Self {
            store,
            policy: policy.to_owned(),
            limit,
            clock: BootClock,
            on_outage: OnOutage::default(),
            reserve: Reserve::default(),
            margin: Margin::default(),
            silence_max: SILENCE_MAX,
            streams_max: STREAMS_MAX,
        }
    }
}

impl<S: Store, C: LeaseClock + 'static> BudgetBuilder<S, C> {
    /// Sets how many tokens are set aside for a stream. Default: learned for each key.
    pub fn reserve(self, reserve: Reserve) -> Self {
        Self { reserve, ..self }
    }

    /// A stream without a debit or a heartbeat for so long has what is set aside for it given to others. Its later
    /// debits go to the store. Unless chosen, half a minute.
    pub fn silence_max(self, silence: Duration) -> Self {
        Self { silence_max: silence.max(Duration::from_millis(1)), ..self }
    }

    /// How many streams this process holds open; one more is denied until another ends. Unless chosen, 65,536.
    pub fn streams_max(self, streams: usize) -> Self {
        Self { streams_max: streams, ..self }
    }

    /// What to answer while the store does not, beyond what is set aside. Unless chosen, refusals.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        Self { on_outage: choice, ..self }
    }

    /// What the clocks of store and process may be wrong by.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// The clock by which what is set aside dies.
    pub fn clock<D: LeaseClock>(self, clock: D) -> BudgetBuilder<S, D> {
        let Self { store, policy, limit, on_outage, reserve, margin, silence_max, streams_max, .. } = self;
        BudgetBuilder { store, policy, limit, clock, on_outage, reserve, margin, silence_max, streams_max }
    }

    /// The budget, or why the limit cannot be one: it has to be counted in windows, which are long enough for
    /// something to be set aside in them.
    pub fn build(self) -> Result<TokenBudget<S, C>, LimitError> {
        let limit = self.limit?;
        Authority::new(limit, Term::Window)?;
        let set_aside = SharedForm::of(&limit.uncrossed())?;
        if !set_aside.counts_units() {
            return Err(LimitError::NotLeasable);
        }
        let margin = self.margin.behind(self.clock.behind_max());
        if margin.deadline(Timestamp::EPOCH, limit.period()) == Timestamp::EPOCH {
            return Err(LimitError::LeaseTooShort(limit.period()));
        }
        let shared = SharedLimiter::new(self.store, &self.policy, limit)?.on_outage(self.on_outage);
        let learners = Learners::new(self.reserve);
        let ledger = Ledger::new(shared, set_aside, self.clock, margin, learners);
        Ok(TokenBudget::new(ledger.bounded(self.streams_max, self.silence_max)))
    }
}
