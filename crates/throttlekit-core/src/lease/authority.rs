//! The authority: the side that keeps the limit.

use alloc::vec::Vec;
use core::time::Duration;

use super::Want;
use crate::rate::{Limit, LimitError, Mark, Rule, Settle, State};
use crate::{Cost, Decision, Timestamp};

/// Lifetime of lent units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// Until the window from which they were taken ends. Guarantee `lease-coupled`: at most the limit per window.
    Window,
    /// For this duration: for limits that refill at a pace. Guarantee `lease-rolling`.
    Rolling(Duration),
    /// Until they are spent, in any window. Guarantee `lease-carry`.
    Carry,
}

/// A limit that lends parts of itself. Pure: all it remembers of a key is in the state.
///
/// ```
/// use throttlekit_core::lease::{Authority, Term, Want};
/// use throttlekit_core::rate::{Limit, State};
/// use throttlekit_core::Timestamp;
/// use core::time::Duration;
///
/// let minute = Limit::fixed_window(100, Duration::from_secs(60))?;
/// let authority = Authority::new(minute, Term::Window)?;
/// let mut key = State::default();
///
/// let ten_past = Timestamp::from_millis(10_000);
/// let loan = authority.lend(&mut key, Want { wants: 80, least: 1, share: 1 }, ten_past);
/// assert_eq!((loan.granted, loan.lives), (80, Some(Duration::from_secs(50))));
/// // What is left is lent, though it is less than was asked for.
/// assert_eq!(authority.lend(&mut key, Want { wants: 80, least: 1, share: 1 }, ten_past).granted, 20);
/// # Ok::<(), throttlekit_core::rate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    limit: Limit,
    term: Term,
}

/// The window from which units were lent. Limits without windows have one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Epoch of units of no window of their limit, e.g. after the limit was changed. They are never returned.
    pub const NONE: Self = Self(u64::MAX);
}

/// Response of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loan {
    /// Units lent: zero, if fewer than the least were left.
    pub granted: Cost,
    /// The window they belong to.
    pub epoch: Epoch,
    /// Lifetime counted from the authority's instant; `None` if they never expire.
    pub lives: Option<Duration>,
    /// Decision of the limit after that: what is left, or when the least is available.
    pub decision: Decision,
}

/// ID of a return, so that it counts once no matter how often it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReturnId(pub u128);

/// Units that were lent and not spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Return {
    /// The window they were taken from.
    pub epoch: Epoch,
    /// Number of units.
    pub units: Cost,
}

impl Authority {
    /// Lends from `limit` for `term`. Windows lend for a window or forever, smooth rates for a time or forever.
    pub fn new(limit: Limit, term: Term) -> Result<Self, LimitError> {
        let fits = match (&limit, term) {
            (Limit::Window(_), Term::Window | Term::Carry) => true,
            (Limit::Gcra(rule), Term::Rolling(_) | Term::Carry) => !rule.shapes(),
            _ => false,
        };
        if fits { Ok(Self { limit, term }) } else { Err(LimitError::NotLeasable) }
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the lifetime of the units it lends.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Returns how many units beyond the limit lending may admit in a window or interval: no more than `nodes` hold at
    /// `held_max` each, and where units live for a time no more than refill in it, for any number of nodes.
    pub fn beyond(&self, nodes: u64, held_max: Cost) -> Cost {
        let held = nodes.saturating_mul(held_max);
        match (self.term, &self.limit) {
            (Term::Window, _) => 0,
            (Term::Rolling(hold), Limit::Gcra(rule)) => held.min(rule.units_in(hold)),
            _ => held,
        }
    }

    /// Returns the response to `want` at `now`, lending nothing.
    pub fn look(&self, state: &State, want: Want, now: Timestamp) -> Loan {
        let left = self.limit.decide(state, 0, now);
        let least = want.least.max(1);
        let part = left.remaining.div_ceil(want.share.max(1)).max(least);
        let units = want.wants.max(least).min(part).min(left.remaining);
        let granted = if units >= least { units } else { self.beyond_the_edge(left.remaining, least) };
        let decision = self.limit.decide(state, if granted == 0 { least } else { granted }, now);
        let (epoch, lives) = match self.term {
            Term::Window => (self.epoch(state, now), Some(left.reset_at.since(now))),
            Term::Rolling(hold) => (Epoch::default(), Some(hold)),
            Term::Carry => (self.epoch(state, now), None),
        };
        Loan { granted, epoch, lives, decision }
    }

    /// Returns the units to lend where fewer than the least are left.
    fn beyond_the_edge(&self, left: Cost, least: Cost) -> Cost {
        let crosses = matches!(&self.limit, Limit::Window(rule) if rule.is_budget());
        if crosses && left > 0 && least <= self.limit.cost_max() { least } else { 0 }
    }

    /// Responds to `want` at `now`, and charges what it lends.
    pub fn lend(&self, state: &mut State, want: Want, now: Timestamp) -> Loan {
        let loan = self.look(state, want, now);
        self.limit.charge(state, loan.granted, now);
        loan
    }

    /// Takes units back into the window they came from, while it lasts.
    ///
    /// Only under [`Term::Window`]. Units lent by a smooth rate lapse instead: if returned, they could be lent a second
    /// time within the hold time of the first.
    pub fn take_back(&self, state: &mut State, back: Return, now: Timestamp) {
        if self.term == Term::Window {
            self.limit.refund(state, Mark(back.epoch.0), back.units, now);
        }
    }

    fn epoch(&self, state: &State, now: Timestamp) -> Epoch {
        match &self.limit {
            Limit::Window(_) => Epoch(self.limit.mark(state, now).0),
            _ => Epoch::default(),
        }
    }
}

/// State that an authority keeps for one key: the limit's state, and the returns it has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account {
    /// The limit's state.
    pub state: State,
    /// Returns counted in the key's window. Those of other windows have no effect.
    counted: (Epoch, Vec<ReturnId>),
}

impl Account {
    /// [`Authority::lend`] on this account.
    pub fn lend(&mut self, authority: &Authority, want: Want, now: Timestamp) -> Loan {
        authority.lend(&mut self.state, want, now)
    }

    /// [`Authority::take_back`], once for each ID.
    pub fn take_back(&mut self, authority: &Authority, id: ReturnId, back: Return, now: Timestamp) {
        // The window that was last charged, whatever the clock shows. A late return of an earlier window must not clear
        // the record of counted returns of this one.
        if back.epoch != authority.epoch(&self.state, Timestamp::EPOCH) {
            return;
        }
        if self.counted.0 != back.epoch {
            self.counted = (back.epoch, Vec::new());
        }
        if !self.counted.1.contains(&id) {
            self.counted.1.push(id);
            authority.take_back(&mut self.state, back, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;

    const WANT_8: Want = Want { wants: 8, least: 1, share: 1 };

    fn window(limit: u64) -> Authority {
        Authority::new(Limit::fixed_window(limit, Duration::from_secs(10)).unwrap(), Term::Window).unwrap()
    }

    #[test]
    fn at_most_what_is_left_is_leased_and_a_denial_has_a_retry_after() {
        let (authority, mut state, now) = (window(10), State::default(), Timestamp::from_millis(4_000));
        let granted = [0; 3].map(|_| authority.lend(&mut state, WANT_8, now).granted);
        assert_eq!(granted, [8, 2, 0]);
        let refused = authority.look(&state, WANT_8, now);
        assert_eq!(refused.decision.retry_after.wait_ms(), Some(6_000));
    }

    #[test]
    fn less_than_the_minimum_is_not_leased() {
        let (authority, mut state, now) = (window(10), State::default(), Timestamp::EPOCH);
        authority.lend(&mut state, WANT_8, now);
        let (before, want) = (state.clone(), Want { least: 3, ..WANT_8 });
        assert_eq!(authority.lend(&mut state, want, now).granted, 0);
        assert_eq!(state, before);
    }

    #[test]
    fn a_budget_lends_the_least_across_its_edge_and_no_more() {
        let limit = Limit::token_budget(10, Duration::from_secs(10)).unwrap();
        let authority = Authority::new(limit, Term::Window).unwrap();
        let (mut state, now) = (State::default(), Timestamp::EPOCH);
        let want = Want { wants: 8, least: 3, share: 1 };
        assert_eq!([0; 3].map(|_| authority.lend(&mut state, want, now).granted), [8, 3, 0]);
        let too_many = Want { least: crate::rate::BUDGET_MAX + 1, ..want };
        assert_eq!(
            authority.lend(&mut State::default(), too_many, now).granted,
            0,
            "no store counts as many"
        );
    }

    #[test]
    fn the_last_units_go_round() {
        let (authority, mut state) = (window(100), State::default());
        let want = Want { wants: 100, least: 1, share: 4 };
        let granted = [0; 5].map(|_| authority.lend(&mut state, want, Timestamp::EPOCH).granted);
        assert_eq!(granted, [25, 19, 14, 11, 8]);
    }

    #[test]
    fn a_return_counts_once_and_only_in_its_window() {
        let (authority, mut account) = (window(10), Account::default());
        let loan = account.lend(&authority, WANT_8, Timestamp::EPOCH);
        let back = Return { epoch: loan.epoch, units: 5 };
        for _ in 0..3 {
            account.take_back(&authority, ReturnId(1), back, Timestamp::EPOCH);
        }
        assert_eq!(authority.look(&account.state, WANT_8, Timestamp::EPOCH).granted, 7);

        let later = Timestamp::from_millis(10_000);
        account.lend(&authority, WANT_8, later);
        account.take_back(&authority, ReturnId(2), back, later);
        assert_eq!(authority.look(&account.state, WANT_8, later).granted, 2);
    }

    #[test]
    fn a_late_message_of_an_earlier_window_does_not_let_a_return_count_twice() {
        let (authority, mut account) = (window(10), Account::default());
        let old = account.lend(&authority, WANT_8, Timestamp::EPOCH);
        let later = Timestamp::from_millis(10_000);
        let new = account.lend(&authority, WANT_8, later);
        for (id, epoch) in [(2, new.epoch), (1, old.epoch), (2, new.epoch)] {
            account.take_back(&authority, ReturnId(id), Return { epoch, units: 3 }, later);
        }
        assert_eq!(authority.look(&account.state, WANT_8, later).granted, 5);
    }

    #[test]
    fn units_leased_from_a_smooth_rate_expire() {
        let limit = Limit::gcra(Rate::per_second(1).burst(5)).unwrap();
        let authority = Authority::new(limit, Term::Rolling(Duration::from_secs(10))).unwrap();
        let mut state = State::default();
        let loan = authority.lend(&mut state, WANT_8, Timestamp::EPOCH);
        assert_eq!((loan.granted, loan.lives), (5, Some(Duration::from_secs(10))));
        authority.take_back(&mut state, Return { epoch: loan.epoch, units: 5 }, Timestamp::EPOCH);
        assert_eq!(authority.look(&state, WANT_8, Timestamp::EPOCH).granted, 0);
    }

    #[test]
    fn rules_that_cannot_lend_say_so() {
        let shaper = Limit::leaky_bucket(Rate::per_second(1), Duration::from_secs(5)).unwrap();
        let log = Limit::sliding_log(10, Duration::from_secs(5)).unwrap();
        for (limit, term) in [(shaper, Term::Carry), (log, Term::Window)] {
            assert_eq!(Authority::new(limit, term), Err(LimitError::NotLeasable));
        }
    }
}
