//! Lease requests to a store, and its responses.

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Authority, Epoch, Loan, Return, ReturnId, Term, Want};
use throttlekit_core::rate::shared::ScriptEncoding;

use super::StoreError;

/// One limit × one key × a desired number of units.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'a> {
    /// The key as the store keeps it, from a [`KeySpace`](super::KeySpace).
    pub key: &'a str,
    /// The limit.
    pub form: &'a ScriptEncoding,
    /// Lifetime of the units. The store need not know it; the response has it.
    pub term: Term,
    /// Number of units.
    pub want: Want,
}

/// The response to one [`LeaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// Time of the response, by the store's clock.
    pub now: Timestamp,
    /// The loan.
    pub loan: Loan,
}

/// Units that were lent and not spent, to be returned. Counts once, whatever the network does.
#[derive(Clone, Copy, Debug)]
pub struct LeaseReturn<'a> {
    /// The key as the store keeps it.
    pub key: &'a str,
    /// The limit: a window.
    pub form: &'a ScriptEncoding,
    /// The name of this return.
    pub id: ReturnId,
    /// Number of units, and their window.
    pub back: Return,
}

impl Leased {
    /// Creates the response of a store that found a state of these numbers at `now` and charged `granted` units to it.
    ///
    /// The rule computes the response; the store only ran its mirror. If the two disagree, its state is not ours.
    pub fn of(
        ask: &LeaseRequest<'_>,
        numbers: &[i64],
        now: Timestamp,
        granted: u64,
    ) -> Result<Self, StoreError> {
        let state = ask.form.state(numbers).ok_or_else(|| StoreError::bad_state(ask.key))?;
        let mut loan = ask.authority()?.look(&state, ask.want, now);
        if loan.granted != granted {
            return Err(StoreError::bad_state(format_args!(
                "{}: the response of the store is inconsistent with the limit",
                ask.key
            )));
        }
        let ends = ask.form.stored_end(numbers).filter(|end| *end > now);
        if let (Some(end), Some(lives)) = (ends, loan.lives)
            && end.since(now) < lives
        {
            // The limit was given longer windows. Units expire with the store's, and are not returned to any.
            (loan.lives, loan.epoch) = (Some(end.since(now)), Epoch::NONE);
        }
        Ok(Self { now, loan })
    }
}

impl LeaseRequest<'_> {
    /// Returns the rule that decides, or why this limit does not lend.
    pub fn authority(&self) -> Result<Authority, StoreError> {
        if !self.form.counts_units() {
            return Err(StoreError::misconfigured(
                "this limit cannot be leased: its units are too many or too fine",
            ));
        }
        Authority::new(*self.form.limit(), self.term).map_err(StoreError::misconfigured)
    }
}

impl LeaseReturn<'_> {
    /// Returns whether it has units, and a window that they came from. Others have no effect.
    pub fn says_something(&self) -> bool {
        self.back.units > 0 && self.back.epoch != Epoch::NONE
    }

    /// Returns the rule that takes it back, or why this limit does not.
    pub fn authority(&self) -> Result<Authority, StoreError> {
        Authority::new(*self.form.limit(), Term::Window).map_err(StoreError::misconfigured)
    }
}

/// Requests without those whose limits do not lend, which are rejected before anything is charged.
#[derive(Clone, Debug)]
pub struct Lendable<'a> {
    /// The requests for the store.
    pub asks: Vec<LeaseRequest<'a>>,
    refusals: Vec<Option<StoreError>>,
}

impl<'a> Lendable<'a> {
    /// Selects the requests whose limits lend.
    pub fn of(asks: &[LeaseRequest<'a>]) -> Self {
        let refusals: Vec<_> = asks.iter().map(|ask| ask.authority().err()).collect();
        let fit = asks.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_none());
        Self { asks: fit.map(|(ask, _)| *ask).collect(), refusals }
    }

    /// Returns the responses to all requests, in order, from those to [`asks`](Self::asks).
    pub fn answers(self, lent: Vec<Result<Leased, StoreError>>) -> Vec<Result<Leased, StoreError>> {
        let mut lent = lent.into_iter();
        let mut next = || {
            lent.next().unwrap_or_else(|| Err(StoreError::bad_state("the store returned too few results")))
        };
        self.refusals.into_iter().map(|refusal| refusal.map_or_else(&mut next, Err)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throttlekit_core::rate::Limit;

    use super::*;

    /// Windows of ten seconds became windows of a minute during one of the former.
    #[test]
    fn units_die_with_the_window_that_the_store_still_counts_in() {
        let minute = Limit::fixed_window(100, Duration::from_secs(60)).unwrap();
        let form = ScriptEncoding::of(&minute).unwrap();
        let want = Want { wants: 10, least: 1, share: 1 };
        let ask = LeaseRequest { key: "k", form: &form, term: Term::Window, want };
        let lent = |end: i64, now| Leased::of(&ask, &[end * 1_000_000, 5], Timestamp::from_millis(now), 10);

        let changed = lent(610, 606_000).unwrap().loan;
        assert_eq!((changed.lives, changed.epoch), (Some(Duration::from_secs(4)), Epoch::NONE));
        let unchanged = lent(660, 606_000).unwrap().loan;
        assert_eq!((unchanged.lives, unchanged.epoch), (Some(Duration::from_secs(54)), Epoch(10)));
        let over = lent(600, 606_000).unwrap().loan;
        assert_eq!(over.lives, Some(Duration::from_secs(54)), "a window that is over says nothing");
    }
}
