//! Learned reservations: the number of tokens that a call without a cost reserves.
//!
//! The library's learners choose it, one for each key and class of a policy. They decide nothing: the budgets do, and
//! hold for any reservation.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::budget::{Reservation, ReservationOptions, Reserve};
use throttlekit::clock::{BootClock, Clock};
use throttlekit::hash::{KeyHash, SecretHash};
use throttlekit::internals::{Learners, Mutex};
use throttlekit::rate::{Rule, State, Timestamp};
use throttlekit::store::Want;
use throttlekit::{Admission, Axis, Limit};

use super::{CostHint, PolicyCall};
use crate::policy::LearnSpec;

/// Maximum number of learners of a policy: 2.5 MiB if all of them are in use.
const LEARNERS_MAX: usize = 16_384;

/// The learners of a policy, and the tokens that work holds here.
pub(super) struct Reservations {
    learners: Learners,
    hash: SecretHash,
    /// Reserved tokens that are not used yet, by the key of the budget. An entry for each key with admitted work.
    held: Mutex<HashMap<u64, u64>>,
    /// Nanoseconds by which the clock of the store, whose windows end, was ahead of this machine's at the last call.
    ahead: AtomicI64,
}

/// The budgets that calls reserve tokens of.
pub(super) struct TokenBudgets {
    limits: Box<[Limit]>,
    /// Index of the key that the first one counts by.
    by: usize,
}

/// The reservation to make for a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Tokens to reserve.
    pub(super) tokens: u64,
    /// Fewest tokens that are worth a start.
    least: u64,
    /// Of these, the tokens of the input.
    input: u64,
    learner: u64,
    holder: u64,
}

/// The reservation of admitted work. Dropped with the work.
pub(super) struct Reserved {
    reservations: Arc<Reservations>,
    wanted: Wanted,
    since: Timestamp,
    /// Tokens that are not used yet.
    left: AtomicU64,
    /// Nanoseconds until the last debit. 0 for work that does not debit while it runs: it has no throughput.
    lasted: AtomicU64,
}

impl TokenBudgets {
    pub(super) fn new(limits: impl IntoIterator<Item = Limit>, by: usize) -> Self {
        Self { limits: limits.into_iter().collect(), by }
    }

    /// Returns the smallest budget.
    fn least(&self) -> u64 {
        self.limits.iter().map(Limit::units).min().unwrap_or(0)
    }

    /// Returns the time until the first of their windows ends.
    fn window_left(&self, now: Timestamp) -> Option<Duration> {
        let left = |limit: &Limit| limit.decide(&State::default(), 0, now).reset_at.since(now);
        self.limits.iter().map(left).min()
    }
}

impl Reservations {
    pub(super) fn new(spec: &LearnSpec) -> Result<Self, String> {
        let options = ReservationOptions { max: spec.tokens_max(), ..ReservationOptions::default() };
        let fresh = Reservation::new(options).map_err(|error| error.to_string())?;
        let learners = Learners::new(Reserve::PerKey { fresh, keys_max: LEARNERS_MAX });
        let (hash, held, ahead) = (SecretHash::random(), Mutex::default(), AtomicI64::new(0));
        Ok(Self { learners, hash, held, ahead })
    }

    /// Returns what to reserve for a call at `now`, by the clock of the store.
    pub(super) fn wanted(
        &self,
        ask: &PolicyCall<'_>,
        hint: &CostHint<'_>,
        budgets: &TokenBudgets,
        now: Timestamp,
    ) -> Wanted {
        self.note_clock(now);
        let learner = self.hash.fingerprint(&joined(ask.key, hint.class));
        let holder = self.hash.fingerprint(ask.key_at(budgets.by));
        let budget = budgets.least();
        let Want { wants, least, .. } = self.learners.want(learner, None, budget, budgets.window_left(now));
        let output = hint.max_tokens.map_or(wants, |max| wants.min(max));
        let tokens = |output: u64| hint.input_tokens.saturating_add(output).max(1);
        // More than the whole budget is never left; an input that is larger is denied as such.
        let most = tokens(output).min(budget.max(tokens(least.min(output))));
        Wanted { tokens: most, least: tokens(least.min(output)), input: hint.input_tokens, learner, holder }
    }

    /// Records that work was admitted with this reservation.
    pub(super) fn hold(self: &Arc<Self>, wanted: Wanted, tokens: u64) -> Reserved {
        *self.held.lock().entry(wanted.holder).or_default() += tokens;
        Reserved {
            reservations: self.clone(),
            wanted,
            since: self.now(),
            left: AtomicU64::new(tokens),
            lasted: AtomicU64::new(0),
        }
    }

    /// Checks whether a denied call might be allowed when work of this instance ends, before the window does.
    pub(super) fn may_be_returned(&self, wanted: &Wanted, denied: &Admission) -> bool {
        let held = self.held_by(wanted.holder);
        let Some(left) = left_of_budgets(denied) else { return false };
        held > 0 && held.saturating_add(left) >= wanted.least
    }

    fn note_clock(&self, now: Timestamp) {
        let ahead = i128::from(now.as_nanos()) - i128::from(BootClock.now().as_nanos());
        self.ahead.store(i64::try_from(ahead).unwrap_or(0), Relaxed);
    }

    /// Returns the approximate time of the store.
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(BootClock.now().as_nanos().saturating_add_signed(self.ahead.load(Relaxed)))
    }

    fn held_by(&self, holder: u64) -> u64 {
        self.held.lock().get(&holder).copied().unwrap_or(0)
    }

    fn let_go(&self, holder: u64, tokens: u64) {
        let mut held = self.held.lock();
        if let Some(all) = held.get_mut(&holder) {
            *all = all.saturating_sub(tokens);
            if *all == 0 {
                held.remove(&holder);
            }
        }
    }
}

impl Wanted {
    /// Returns the smaller reservation to try after a denial: what is left of the budgets, if that is worth a start.
    pub(super) fn smaller(&self, denied: &Admission) -> Option<u64> {
        left_of_budgets(denied).filter(|left| (self.least..self.tokens).contains(left))
    }
}

impl Reserved {
    /// Records a debit after which this many reserved tokens are left.
    pub(super) fn debited(&self, left: u64) {
        let lasted = self.reservations.now().since(self.since).as_nanos();
        self.lasted.store(u64::try_from(lasted).unwrap_or(u64::MAX), Relaxed);
        // A debit is never concurrent with another of the same work.
        let before = self.left.swap(left, Relaxed);
        self.reservations.let_go(self.wanted.holder, before.saturating_sub(left));
    }

    /// Checks whether other work of the key holds tokens, which it may return.
    pub(super) fn others_hold(&self) -> bool {
        self.reservations.held_by(self.wanted.holder) > self.left.load(Relaxed)
    }

    /// Learns from work that used this many tokens in all.
    pub(super) fn learn(&self, used: u64) {
        let output = used.saturating_sub(self.wanted.input);
        let lasted = Duration::from_nanos(self.lasted.load(Relaxed));
        self.reservations.learners.observe(self.wanted.learner, None, output, lasted);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.reservations.let_go(self.wanted.holder, self.left.load(Relaxed));
    }
}

/// Returns what is left of the budgets, if they denied the call.
fn left_of_budgets(denied: &Admission) -> Option<u64> {
    let axes = denied.axes();
    axes.get(Axis::Cost).filter(|_| axes.denied_by() == Some(Axis::Cost)).map(|decision| decision.remaining)
}

/// Joins a key and a class such that no other pair gives the same bytes.
fn joined(key: &[u8], class: &str) -> Vec<u8> {
    [&(key.len() as u64).to_be_bytes(), key, class.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 100_000;
    const MINUTE: Duration = Duration::from_secs(60);

    fn budgets() -> TokenBudgets {
        TokenBudgets::new([Limit::token_budget(BUDGET, MINUTE).unwrap()], 0)
    }

    fn ask(key: &str) -> PolicyCall<'_> {
        PolicyCall { policy: "chat", key: key.as_bytes(), others: &[], cost: 1 }
    }

    fn learned(reservations: &Arc<Reservations>, key: &str, hint: CostHint<'_>, used: &[u64]) {
        for used in used {
            let wanted = reservations.wanted(&ask(key), &hint, &budgets(), Timestamp::EPOCH);
            reservations.hold(wanted, wanted.tokens).learn(*used);
        }
    }

    fn wants(reservations: &Reservations, key: &str, hint: CostHint<'_>) -> u64 {
        reservations.wanted(&ask(key), &hint, &budgets(), Timestamp::EPOCH).tokens
    }

    #[test]
    fn each_key_and_class_learns_from_its_own_work() {
        let reservations = Arc::new(Reservations::new(&LearnSpec::default()).unwrap());
        let of = |class| CostHint { class, ..CostHint::default() };
        let fresh = wants(&reservations, "acme", of("small"));
        assert_eq!(fresh, 2_048, "half of the default maximum, and less than one part in 32 of the budget");
        learned(&reservations, "acme", of("small"), &[100; 200]);
        assert!(wants(&reservations, "acme", of("small")) <= 100);
        for (key, class) in [("acme", "large"), ("acme", ""), ("other", "small"), ("acmes", "mall")] {
            assert_eq!(wants(&reservations, key, of(class)), fresh, "{key} {class}");
        }
    }

    #[test]
    fn the_input_is_reserved_beyond_what_is_learned_and_a_maximum_caps_only_that() {
        let reservations = Arc::new(Reservations::new(&LearnSpec::default()).unwrap());
        let hint = |input_tokens, max_tokens| CostHint { input_tokens, max_tokens, class: "" };
        learned(&reservations, "acme", hint(1_000, None), &[1_100; 200]);
        let output = wants(&reservations, "acme", hint(0, None));
        assert!((90..=100).contains(&output), "{output}");
        assert_eq!(wants(&reservations, "acme", hint(3_000, None)), 3_000 + output);
        assert_eq!(wants(&reservations, "acme", hint(3_000, Some(7))), 3_007);
        assert_eq!(wants(&reservations, "acme", hint(0, Some(0))), 1, "an exhausted budget admits nothing");
        assert!(wants(&reservations, "acme", hint(BUDGET + 1, None)) > BUDGET, "it is never allowed");
        let all_but_one =
            reservations.wanted(&ask("acme"), &hint(BUDGET - 1, None), &budgets(), Timestamp::EPOCH);
        assert_eq!(all_but_one.tokens, BUDGET.max(all_but_one.least));
    }

    #[test]
    fn tokens_are_held_until_they_are_used_or_the_work_ends() {
        let reservations = Arc::new(Reservations::new(&LearnSpec::default()).unwrap());
        let wanted = reservations.wanted(&ask("acme"), &CostHint::default(), &budgets(), Timestamp::EPOCH);
        let first = reservations.hold(wanted, 100);
        assert!(!first.others_hold());
        let second = reservations.hold(wanted, 50);
        assert!(first.others_hold() && second.others_hold());
        first.debited(30);
        assert_eq!(reservations.held_by(wanted.holder), 80);
        second.debited(0);
        assert!(!first.others_hold() && second.others_hold());
        drop((first, second));
        assert!(reservations.held.lock().is_empty(), "no memory is kept for keys without work");
    }
}
