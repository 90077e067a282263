//! Idempotent debits: they count once, however often they arrive.
//!
//! A stream has one debit in flight at a time, and numbers them upwards. So a store keeps of each stream only the last
//! number and the state it found then: the same number again gets the same response, and charges nothing.

use std::time::Duration;

use throttlekit_core::rate::{Limit, Need, Rule, State, UNITS_MAX};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::{Charge, Charges, Outcome, StoreError};

/// Default time for which a debit is remembered: longer than a caller keeps retrying.
pub const REMEMBER_DEFAULT: Duration = Duration::from_secs(60);
/// Maximum time for which a debit is remembered.
pub const REMEMBER_MAX: Duration = Duration::from_secs(86_400);

/// Idempotency key of one debit of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DebitId {
    /// The stream, by a number that no other stream has: 128 random bits, for example.
    pub stream: u128,
    /// Number of the debit, which rises from debit to debit of the stream; at most 2⁵³ − 1.
    pub number: u64,
}

/// A charge with an idempotency key, against a window or a token budget.
#[derive(Clone, Copy, Debug)]
pub struct Debit<'a> {
    /// The charge.
    pub charge: Charge<'a>,
    /// Its idempotency key among those of the key.
    pub id: DebitId,
    /// Time for which the idempotency key is remembered, whether the window lasts or not; at most [`REMEMBER_MAX`]. A
    /// repeat that arrives later is charged.
    pub remember: Duration,
}

/// The response to one [`Debit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debited {
    /// The outcome.
    pub outcome: Outcome,
    /// True if it was returned before, and nothing was charged now.
    pub repeated: bool,
}

/// Record of a stream in a store: its last debit, and the state that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastDebit {
    /// The debit's number.
    pub number: u64,
    /// u64 of the debit.
    pub cost: u64,
    /// Time of the debit, by the store's clock.
    pub now: Timestamp,
    /// The key's state before.
    pub state: State,
    /// True if it was charged.
    pub admitted: bool,
}

impl Debit<'_> {
    /// Checks whether a store can count it once, and returns what to do otherwise.
    pub fn check(&self) -> Result<(), StoreError> {
        if !matches!(self.charge.form.limit(), Limit::Window(_)) {
            return Err(StoreError::misconfigured(
                "only windows and token budgets support debits with an idempotency key: check this limit \
                 without one",
            ));
        }
        if self.id.number > UNITS_MAX {
            return Err(StoreError::misconfigured(
                "the number of a debit is at most 2^53 - 1: start another stream",
            ));
        }
        Ok(())
    }

    /// Returns how long the idempotency key is remembered.
    pub fn remembered(&self) -> Duration {
        self.remember.clamp(Duration::from_millis(1), REMEMBER_MAX)
    }

    /// Returns the cost, in a number that every engine keeps: costs beyond the limit's maximum get the same response.
    pub fn cost(&self) -> u64 {
        self.charge.cost.min(self.charge.form.limit().cost_max() + 1)
    }

    /// Compares this debit with the stream's last one, if that is still remembered: returns its response if it is the
    /// same, an error if it is a later one, `None` if this one is new.
    pub fn repeats(&self, last: Option<&LastDebit>) -> Result<Option<Debited>, StoreError> {
        match last {
            Some(last) if last.number > self.id.number => Err(StoreError::Stale(self.id.number)),
            Some(last) if last.number == self.id.number => self.answer(last, true).map(Some),
            _ => Ok(None),
        }
    }

    /// Computes the response to a debit that found this state, by the rule, as it does the first time. If the limit has
    /// changed since, what was charged stays charged, and what was denied stays denied.
    pub fn answer(&self, found: &LastDebit, repeated: bool) -> Result<Debited, StoreError> {
        let charge = Charge { cost: found.cost, ..self.charge };
        let ask = Charges { need: Need::All, charges: &[charge] };
        let today = charge.form.limit().decide(&found.state, found.cost, found.now).allowed;
        let admitted = if repeated { today } else { found.admitted };
        let mut outcome = Outcome::of(&ask, std::slice::from_ref(&found.state), found.now, admitted)?;
        if today != found.admitted {
            let decision = found.retold(charge.form.limit());
            outcome.verdict.decision = decision;
            outcome.decisions = vec![decision];
        }
        Ok(Debited { outcome, repeated })
    }
}

impl LastDebit {
    /// Returns the first decision, in the numbers of a limit that would decide otherwise.
    fn retold(&self, limit: &Limit) -> Decision {
        let mut state = self.state.clone();
        if self.admitted {
            limit.charge(&mut state, self.cost, self.now);
        }
        let left = limit.decide(&state, 0, self.now);
        let wait = if self.admitted { Duration::ZERO } else { left.reset_at.since(self.now) };
        Decision { allowed: self.admitted, retry_after: Retry::after(wait), ..left }
    }
}

/// Debits without those that no store counts once, which are rejected before anything is charged.
#[derive(Clone, Debug)]
pub struct Countable<'a> {
    /// The debits for the store.
    pub debits: Vec<Debit<'a>>,
    refusals: Vec<Option<StoreError>>,
}

impl<'a> Countable<'a> {
    /// Selects the debits that can be counted once.
    pub fn of(debits: &[Debit<'a>]) -> Self {
        let refusals: Vec<_> = debits.iter().map(|debit| debit.check().err()).collect();
        let fit = debits.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_none());
        Self { debits: fit.map(|(debit, _)| *debit).collect(), refusals }
    }

    /// Returns the responses to all debits, in order, from those to [`debits`](Self::debits).
    pub fn answers(self, debited: Vec<Result<Debited, StoreError>>) -> Vec<Result<Debited, StoreError>> {
        let mut debited = debited.into_iter();
        let mut next = || {
            debited.next().unwrap_or_else(|| Err(StoreError::bad_state("the store returned too few results")))
        };
        self.refusals.into_iter().map(|refusal| refusal.map_or_else(&mut next, Err)).collect()
    }
}

#[cfg(test)]
mod tests {
    use throttlekit_core::rate::shared::ScriptEncoding;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    /// Half a minute into a window.
    const NOW: Timestamp = Timestamp::from_millis(1_700_000_010_000);

    /// A budget of `tokens`, of which `used` are used.
    fn budget(tokens: u64, used: u64) -> (ScriptEncoding, State) {
        let limit = Limit::token_budget(tokens, MINUTE).unwrap();
        let mut state = State::default();
        limit.charge(&mut state, used, NOW);
        (ScriptEncoding::of(&limit).unwrap(), state)
    }

    fn debit(form: &ScriptEncoding) -> Debit<'_> {
        let charge = Charge { key: "acme", form, cost: 100 };
        Debit { charge, id: DebitId { stream: 1, number: 1 }, remember: REMEMBER_DEFAULT }
    }

    #[test]
    fn a_repeated_debit_gets_the_same_response_after_a_budget_change() {
        // Of 1,000 tokens `used` were used when 100 were requested; then `tokens` became the budget.
        for (used, tokens, admitted, left, wait) in [
            (500, 400, true, 0, Duration::ZERO),
            (500, 800, true, 200, Duration::ZERO),
            (1_000, 2_000, false, 1_000, MINUTE / 2),
            (1_000, 900, false, 0, MINUTE / 2),
        ] {
            let (form, state) = budget(tokens, used);
            let last = LastDebit { number: 1, cost: 100, now: NOW, state, admitted };
            let Debited { outcome, repeated } = debit(&form).repeats(Some(&last)).unwrap().unwrap();
            let (reset_at, retry_after) = (NOW + MINUTE / 2, Retry::after(wait));
            let want = Decision { allowed: admitted, limit: tokens, remaining: left, reset_at, retry_after };
            assert!(repeated);
            assert_eq!((outcome.verdict.decision, &outcome.decisions[..]), (want, &[want][..]));
        }
    }

    #[test]
    fn a_store_that_disagrees_with_the_rule_the_first_time_is_not_believed() {
        let (form, state) = budget(1_000, 500);
        let found = LastDebit { number: 1, cost: 100, now: NOW, state, admitted: false };
        assert!(matches!(debit(&form).answer(&found, false), Err(StoreError::BadState(_))));
    }
}
