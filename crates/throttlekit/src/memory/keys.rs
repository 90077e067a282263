//! The keys of one limit: in words if the rule allows it, otherwise in a map of states.

use throttlekit_core::rate::word::{GcraWord, WORDS_END, WindowWord, WordForm, WordRule};
use throttlekit_core::rate::{Limit, Mark, Rule, Settle};
use throttlekit_core::{Decision, Forecast, Timestamp};

use super::budget::Capacity;
use super::cell::Cell;
use super::key_memory::KeyMemory;
use super::table::{HeldCell, WordTable};
use super::wide::{Locked, WideMap};
use crate::Guarantee;
use crate::allowed::Allowed;
use crate::clock::Clock;

/// Returns the word form of a limit, if it has one and the clock shows a time that words can represent. A limiter built
/// in a year beyond that keeps full states.
pub(crate) fn word_form(limit: &Limit, now: Timestamp) -> Option<WordForm> {
    if now < WORDS_END { WordForm::of(limit) } else { None }
}

/// The keys of one limit. Tagged explicitly: the first test of a check is then one comparison.
#[repr(u8)]
pub(crate) enum Keys {
    Gcra(WordTable<GcraWord>, Limit),
    Window(WordTable<WindowWord>, Limit),
    Wide(WideMap),
}

/// One key, held so that several limits decide as one atomic group.
pub(crate) enum HeldKey<'a> {
    Gcra(&'a GcraWord, HeldCell<'a>),
    Window(&'a WindowWord, HeldCell<'a>),
    Wide(&'a Limit, Locked<'a>),
}

/// The likely cell of a key whose limit has words.
pub(crate) struct AtHome<'a> {
    rule: RuleOfWords<'a>,
    cell: &'a Cell,
    key: u64,
}

/// The held word of a key that is known and has its cell at home, as nearly all have. It has no other case, so a call
/// over few limits keeps it in registers. Released when dropped, as it was found unless it was charged.
pub(crate) struct HeldWord<'a> {
    rule: RuleOfWords<'a>,
    cell: &'a Cell,
    word: u64,
}

#[derive(Clone, Copy)]
enum RuleOfWords<'a> {
    Gcra(&'a GcraWord),
    Window(&'a WindowWord),
}

impl Keys {
    pub(crate) fn new(limit: Limit, capacity: Capacity, now: Timestamp) -> Self {
        match word_form(&limit, now) {
            Some(WordForm::Gcra(rule)) => Self::Gcra(WordTable::new(rule, capacity), limit),
            Some(WordForm::Window(rule)) => Self::Window(WordTable::new(rule, capacity), limit),
            None => Self::Wide(WideMap::new(limit, capacity)),
        }
    }

    pub(crate) fn limit(&self) -> &Limit {
        match self {
            Self::Gcra(_, limit) | Self::Window(_, limit) => limit,
            Self::Wide(map) => map.limit(),
        }
    }

    #[inline(always)]
    pub(crate) fn check(&self, key: u64, cost: u64, clock: &impl Clock) -> Decision {
        match self {
            Self::Gcra(table, _) => table.check(key, cost, clock),
            _ => self.check_at(key, cost, clock.now()),
        }
    }

    /// The same at `now`. Separate, so that the common path stays short.
    #[inline(never)]
    pub(crate) fn check_at(&self, key: u64, cost: u64, now: Timestamp) -> Decision {
        match self {
            Self::Gcra(table, _) => table.check(key, cost, &At(now)),
            Self::Window(table, _) => table.check(key, cost, &At(now)),
            Self::Wide(map) => map.lock(key).check(cost, now),
        }
    }

    /// Checks a request and charges it if allowed, with the charge position, so that it can be settled later.
    #[inline(never)]
    pub(crate) fn check_marked(&self, key: u64, cost: u64, now: Timestamp) -> (Decision, Mark) {
        match self {
            Self::Gcra(table, _) => table.check_marked(key, cost, now),
            Self::Window(table, _) => table.check_marked(key, cost, now),
            Self::Wide(map) => {
                let mut locked = map.lock(key);
                let mark = map.limit().mark(&locked.state(now), now);
                (locked.check(cost, now), mark)
            }
        }
    }

    /// Checks up to [`BATCH`](super::BATCH) requests at one instant, in order. Returns their number.
    #[inline]
    pub(crate) fn check_batch(
        &self,
        requests: impl Iterator<Item = (u64, u64)>,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> usize {
        match self {
            Self::Gcra(table, _) => table.check_batch(requests, now, decisions),
            Self::Window(table, _) => table.check_batch(requests, now, decisions),
            Self::Wide(map) => {
                let before = decisions.len();
                decisions.extend(requests.map(|(key, cost)| map.lock(key).check(cost, now)));
                decisions.len() - before
            }
        }
    }

    pub(crate) fn peek(&self, key: u64, now: Timestamp) -> Decision {
        match self {
            Self::Gcra(table, _) => table.rule().peek(table.word(key), now),
            Self::Window(table, _) => table.rule().peek(table.word(key), now),
            Self::Wide(map) => map.limit().peek(&map.lock(key).state(now), now),
        }
    }

    pub(crate) fn forecast(&self, key: u64, cost: u64, now: Timestamp) -> Forecast {
        match self {
            Self::Gcra(table, _) => table.rule().forecast(table.word(key), cost, now),
            Self::Window(table, _) => table.rule().forecast(table.word(key), cost, now),
            Self::Wide(map) => map.limit().forecast(&map.lock(key).state(now), cost, now),
        }
    }

    pub(crate) fn reset(&self, key: u64) {
        match self {
            Self::Gcra(table, _) => table.forgive(key),
            Self::Window(table, _) => table.forgive(key),
            Self::Wide(map) => map.remove(key),
        }
    }

    /// Replaces what a charge at position `mark` took by what was used.
    ///
    /// Usage beyond it is charged, also to a key that is not known here. Unused units go back to a key that is still
    /// known; one that is not had no usage left, or is estimated, and estimates are not lowered. A reset in between
    /// cleared the charge: settle none from before it.
    pub(crate) fn settle(&self, key: u64, mark: Mark, charged: u64, actual: u64, now: Timestamp) {
        match actual.checked_sub(charged) {
            Some(0) => {}
            Some(beyond) => self.owe(key, beyond, now),
            None => self.refund(key, mark, charged - actual, now),
        }
    }

    fn refund(&self, key: u64, mark: Mark, units: u64, now: Timestamp) {
        match self {
            Self::Gcra(table, _) => table.refund(key, mark, units, now),
            Self::Window(table, _) => table.refund(key, mark, units, now),
            Self::Wide(map) => map.lock(key).refund(mark, units, now),
        }
    }

    fn owe(&self, key: u64, units: u64, now: Timestamp) {
        match self {
            Self::Gcra(table, _) => table.owe(key, units, now),
            Self::Window(table, _) => table.owe(key, units, now),
            Self::Wide(map) => map.lock(key).change(now, |limit, state| limit.owe(state, units, now)),
        }
    }

    /// Returns how full the memory is. Scans every key.
    pub(crate) fn memory(&self, now: Timestamp) -> KeyMemory {
        match self {
            Self::Gcra(table, _) => table.memory(now),
            Self::Window(table, _) => table.memory(now),
            Self::Wide(map) => map.memory(now),
        }
    }

    /// Finds the likely cell of a key, so that it is fetched while the clock is read. `None` if the limit has no words,
    /// or lets requests wait their turn.
    #[inline(always)]
    pub(crate) fn at_home(&self, key: u64) -> Option<AtHome<'_>> {
        let (rule, cell) = match self {
            Self::Gcra(table, _) if !table.rule().waits() => {
                (RuleOfWords::Gcra(table.rule()), table.at_home(key))
            }
            Self::Window(table, _) => (RuleOfWords::Window(table.rule()), table.at_home(key)),
            _ => return None,
        };
        Some(AtHome { rule, cell, key })
    }

    #[inline(always)]
    pub(crate) fn hold(&self, key: u64, now: Timestamp) -> HeldKey<'_> {
        match self {
            Self::Gcra(table, _) => HeldKey::Gcra(table.rule(), table.hold(key, now)),
            Self::Window(table, _) => HeldKey::Window(table.rule(), table.hold(key, now)),
            Self::Wide(map) => HeldKey::Wide(map.limit(), map.lock(key)),
        }
    }
}

impl<'a> AtHome<'a> {
    /// Holds the word. `None` if the cell is not the key's, or held: then the key has to be [held](Keys::hold) wherever
    /// it is.
    #[inline(always)]
    pub(crate) fn hold(self) -> Option<HeldWord<'a>> {
        let Self { rule, cell, key } = self;
        Some(HeldWord { rule, cell, word: cell.hold_for(key)? })
    }
}

impl HeldWord<'_> {
    /// Returns the word of a key without debt.
    #[inline(always)]
    pub(crate) fn floor(&self, now: Timestamp) -> u64 {
        match self.rule {
            RuleOfWords::Gcra(rule) => rule.floor(now),
            RuleOfWords::Window(rule) => rule.floor(now),
        }
    }

    /// Returns the word after a request, if that is allowed. Nothing may cross the edge of a budget.
    #[inline(always)]
    pub(crate) fn next(&self, floor: u64, cost: u64) -> Option<u64> {
        match self.rule {
            RuleOfWords::Gcra(rule) => rule.next(self.word, floor, cost),
            RuleOfWords::Window(rule) => rule.next_whole(self.word, floor, cost),
        }
    }

    /// Returns the decision on a request for which there is no next word.
    #[cold]
    #[inline(never)]
    pub(crate) fn denied(&self, cost: u64, now: Timestamp) -> Decision {
        match self.rule {
            RuleOfWords::Gcra(rule) => rule.decide(self.word, cost, now),
            RuleOfWords::Window(rule) => rule.decide_whole(self.word, cost, now),
        }
    }

    /// Returns the decision on a request that leads to the word `next`.
    #[inline(always)]
    pub(crate) fn allowed(&self, next: u64, floor: u64) -> Allowed {
        let (limit, (remaining, reset_at)) = match self.rule {
            RuleOfWords::Gcra(rule) => (rule.limit(), rule.left(next, floor)),
            RuleOfWords::Window(rule) => (rule.limit(), rule.left(next, floor)),
        };
        Allowed { limit, remaining, reset_at }
    }

    /// Charges the request that leads to the word `next`. Returns the charge position.
    #[inline(always)]
    pub(crate) fn charge(mut self, next: u64, cost: u64, now: Timestamp) -> Mark {
        if cost > 0 {
            self.word = next;
        }
        match self.rule {
            RuleOfWords::Gcra(rule) => rule.mark_of(next, now),
            RuleOfWords::Window(rule) => rule.mark_of(next, now),
        }
    }
}

impl Drop for HeldWord<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cell.release(self.word);
    }
}

impl HeldKey<'_> {
    pub(crate) fn decide(&self, cost: u64, now: Timestamp) -> Decision {
        match self {
            Self::Gcra(rule, cell) => rule.decide(cell.word(), cost, now),
            Self::Window(rule, cell) => rule.decide(cell.word(), cost, now),
            Self::Wide(limit, state) => limit.decide(&state.state(now), cost, now),
        }
    }

    /// The same where nothing may cross the edge of a budget: the whole cost must fit.
    #[inline(always)]
    pub(crate) fn decide_whole(&self, cost: u64, now: Timestamp) -> Decision {
        match self {
            Self::Gcra(rule, cell) => rule.decide(cell.word(), cost, now),
            Self::Window(rule, cell) => rule.decide_whole(cell.word(), cost, now),
            Self::Wide(limit, state) => limit.uncrossed().decide(&state.state(now), cost, now),
        }
    }

    /// Returns whether the key's state is an estimate.
    #[inline(always)]
    pub(crate) fn is_estimated(&self, now: Timestamp) -> bool {
        match self {
            Self::Gcra(rule, cell) => cell.is_estimated(rule.floor(now)),
            Self::Window(rule, cell) => cell.is_estimated(rule.floor(now)),
            Self::Wide(_, state) => state.is_estimated(now),
        }
    }

    /// Returns the guarantee of a decision on the key. An estimated key may be short by the whole estimate.
    #[cold]
    pub(crate) fn guarantee(&self, now: Timestamp) -> Guarantee {
        if !self.is_estimated(now) {
            return Guarantee::Exact;
        }
        let left = self.decide_whole(0, now);
        Guarantee::Bounded((left.limit - left.remaining).max(1))
    }

    /// Returns the position of a charge at `now`, so that it can be settled later. Call it before the charge.
    #[inline(always)]
    pub(crate) fn mark(&self, now: Timestamp) -> Mark {
        match self {
            Self::Gcra(rule, cell) => rule.mark(cell.word(), now),
            Self::Window(rule, cell) => rule.mark(cell.word(), now),
            Self::Wide(limit, state) => limit.mark(&state.state(now), now),
        }
    }

    /// Takes the cost of a request that `decide` allowed at the same instant.
    #[inline(always)]
    pub(crate) fn charge(&mut self, cost: u64, now: Timestamp) {
        match self {
            Self::Gcra(rule, cell) => cell.charge(*rule, cost, now),
            Self::Window(rule, cell) => cell.charge(*rule, cost, now),
            Self::Wide(_, state) => state.charge(cost, now),
        }
    }
}

/// A fixed clock, for requests that share one instant.
struct At(Timestamp);

impl Clock for At {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use throttlekit_core::rate::{Rate, State};

    use super::*;

    const KEY: u64 = 0x0BEE;
    const MINUTE: Duration = Duration::from_secs(60);

    fn start() -> Timestamp {
        Timestamp::from_nanos(1_700_000_040_000_000_000)
    }

    fn keys(limit: Limit) -> Keys {
        Keys::new(limit, Capacity::default(), start())
    }

    /// Rules with words and with full states.
    fn limits() -> [Limit; 5] {
        [
            Limit::gcra(Rate::per_minute(10)),
            Limit::fixed_window(10, MINUTE),
            Limit::token_budget(10, MINUTE),
            Limit::sliding_window(10, MINUTE),
            Limit::sliding_log(10, MINUTE),
        ]
        .map(|limit| limit.expect("a valid limit"))
    }

    fn charge(keys: &Keys, cost: u64, now: Timestamp) -> Mark {
        let mut held = keys.hold(KEY, now);
        let mark = held.mark(now);
        assert!(held.decide(cost, now).allowed);
        held.charge(cost, now);
        mark
    }

    #[test]
    fn a_settled_charge_leaves_what_the_rule_in_full_leaves() {
        for limit in limits() {
            let (keys, mut state) = (keys(limit), State::default());
            for (second, charged, actual) in [(0, 8, 3), (1, 5, 5), (9, 2, 1), (10, 1, 6), (59, 1, 0)] {
                let now = start() + Duration::from_secs(second);
                if !limit.decide(&state, charged, now).allowed {
                    continue;
                }
                let mark = charge(&keys, charged, now);
                assert_eq!(mark, limit.mark(&state, now), "{limit:?}");
                limit.charge(&mut state, charged, now);
                let later = now + Duration::from_secs(1);
                keys.settle(KEY, mark, charged, actual, later);
                limit.settle(&mut state, mark, charged, actual, later);
                assert_eq!(keys.peek(KEY, later), limit.peek(&state, later), "{limit:?} at {second}");
            }
        }
    }

    /// A check with a charge position is a check, and its position is that of the rule; known keys and new ones.
    #[test]
    fn a_marked_check_is_a_check_with_the_mark_of_the_rule() {
        for limit in limits() {
            let (marked, plain, mut state) = (keys(limit), keys(limit), State::default());
            for (second, cost) in [(0, 4), (1, 0), (2, 7), (2, 6), (3, 1), (61, 3), (61, 11), (130, 1)] {
                let now = start() + Duration::from_secs(second);
                let mark = limit.mark(&state, now);
                let (decision, left) = marked.check_marked(KEY, cost, now);
                assert_eq!(decision, plain.check_at(KEY, cost, now), "{limit:?} at {second}");
                assert_eq!(decision, limit.check(&mut state, cost, now), "{limit:?} at {second}");
                assert!(!decision.allowed || left == mark, "{limit:?} at {second}: {left:?}, not {mark:?}");
            }
        }
    }

    #[test]
    fn a_debit_that_crosses_the_limit_is_refunded_from_its_charge() {
        let keys = keys(Limit::token_budget(10, MINUTE).expect("a valid limit"));
        let mark = charge(&keys, 1_000, start());
        keys.settle(KEY, mark, 1_000, 500, start());
        assert!(!keys.peek(KEY, start()).allowed, "500 are used of ten");
        keys.settle(KEY, mark, 500, 4, start());
        assert_eq!(keys.peek(KEY, start()).remaining, 6);
    }

    #[test]
    fn a_refund_goes_into_no_later_window() {
        for limit in [Limit::fixed_window(10, MINUTE), Limit::token_budget(10, MINUTE)] {
            let keys = keys(limit.expect("a valid limit"));
            let mark = charge(&keys, 5, start());
            let next = start() + MINUTE;
            charge(&keys, 6, next);
            keys.settle(KEY, mark, 5, 0, next);
            assert_eq!(keys.peek(KEY, next).remaining, 4);
        }
    }

    #[test]
    fn an_unknown_key_gets_no_refund_and_is_charged_all_the_same() {
        for limit in limits() {
            let keys = keys(limit);
            let mark = charge(&keys, 5, start());
            keys.reset(KEY);
            let fresh = keys.peek(KEY, start());
            keys.settle(KEY, mark, 5, 0, start());
            assert_eq!((keys.peek(KEY, start()), keys.memory(start()).live_keys), (fresh, 0), "{limit:?}");
            keys.settle(KEY, mark, 5, 8, start());
            let owes = (keys.peek(KEY, start()).remaining, keys.memory(start()).live_keys);
            assert_eq!(owes, (7, 1), "{limit:?}");
            keys.settle(KEY, mark, 0, u64::MAX, start());
            assert!(!keys.peek(KEY, start()).allowed, "{limit:?}");
        }
    }

    /// Also with every cell taken by others.
    #[test]
    fn a_debt_is_charged_beyond_the_budget_too() {
        for limit in limits() {
            let keys = Keys::new(limit, Capacity { bytes: 1 << 10, ..Capacity::default() }, start());
            for other in 0..1_000_u64 {
                keys.settle(other.wrapping_mul(0x9E37_79B9_7F4A_7C15), Mark(0), 0, u64::MAX, start());
            }
            for round in 0..2 {
                keys.settle(KEY, Mark(0), 0, 10, start());
                assert!(!keys.peek(KEY, start()).allowed, "{limit:?} in round {round}");
            }
        }
    }

    /// Four threads charge three each and use one: what is left is what they used, to the unit.
    #[test]
    fn settlements_from_many_threads_lose_nothing() {
        const ROUNDS: u64 = 2_000;
        let hour = Duration::from_secs(3_600);
        for limit in [Limit::fixed_window(1 << 30, hour), Limit::gcra(Rate::per(1 << 30, hour))] {
            let keys = keys(limit.expect("a valid limit"));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..ROUNDS {
                            let mark = charge(&keys, 3, start());
                            keys.settle(KEY, mark, 3, 1, start());
                            assert!(keys.check_at(KEY, 1, start()).allowed);
                        }
                    });
                }
            });
            assert_eq!(keys.peek(KEY, start()).remaining, (1 << 30) - 4 * 2 * ROUNDS);
        }
    }
}
