//! `settle/word`: a charge settled on a word leaves what the full rule leaves, or, if that does not fit, no less.

use throttlekit_core::rate::word::{GcraWord, WORD_MAX, WORDS_END, WindowWord, WordRule};
use throttlekit_core::rate::{Limit, Mark, Rule, Settle, State, UNITS_MAX};
use throttlekit_core::{Cost, Decision, Timestamp};

use super::{Check, Invariant, ensure, limit, over_scenarios};
use crate::text::nanos;
use crate::trace::print_answer;
use crate::{Dice, Scenario, scenario};

pub(super) fn invariant() -> Invariant {
    let buggy =
        |bug: Bug| (bug.name(), over_scenarios(Scenario::roll, move |scenario| check(scenario, Some(bug))));
    Invariant {
        name: "settle/word",
        holds: over_scenarios(Scenario::roll, |scenario| check(scenario, None)),
        seeded: vec![
            buggy(Bug::RefundOfAnyWindow),
            buggy(Bug::RefundOfWhatRefilled),
            buggy(Bug::RefundOfAShaper),
            buggy(Bug::RefundTwice),
            buggy(Bug::RefundForgotten),
            buggy(Bug::RefundFromTheCap),
            buggy(Bug::CrossingToLimit),
            buggy(Bug::DebtStopsAtLimit),
            buggy(Bug::DebtForgotten),
        ],
    }
}

crate::bugs! {
    /// A bug in settling on a word.
    enum Bug {
        RefundOfAnyWindow: "A refund counts in whichever window it arrives.",
        RefundOfWhatRefilled: "A refund counts for what has been refilled since.",
        RefundOfAShaper: "A shaper refunds turns that have passed.",
        RefundTwice: "A refund counts twice.",
        RefundForgotten: "Refunds are ignored.",
        RefundFromTheCap: "A refund reduces a count that stopped at its maximum.",
        CrossingToLimit: "A charge that crosses the limit counts only up to it.",
        DebtStopsAtLimit: "What was used beyond the limit is not owed.",
        DebtForgotten: "What was used beyond the estimate is not charged.",
    }
}

fn check(scenario: &Scenario, bug: Option<Bug>) -> Check {
    let limit = limit(&scenario.spec);
    let mut dice = scenario.dice();
    match &limit {
        Limit::Gcra(rule) => match GcraWord::new(rule) {
            Some(word) => Both::new(limit, word, bug).play(scenario, &mut dice),
            None => Ok(()),
        },
        Limit::Window(rule) => match WindowWord::new(rule) {
            Some(word) => Both::new(limit, word, bug).play(scenario, &mut dice),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// A full rule and a rule on words, over the same requests.
struct Both<R> {
    limit: Limit,
    state: State,
    rule: R,
    word: u64,
    bug: Option<Bug>,
    /// Set while everything ever owed fits the word. After that the word may owe more, never less.
    fits: bool,
    open: Vec<(Mark, Cost)>,
}

impl<R: WordRule> Both<R> {
    fn new(limit: Limit, rule: R, bug: Option<Bug>) -> Self {
        Self { limit, state: State::default(), rule, word: 0, bug, fits: true, open: Vec::new() }
    }

    fn play(mut self, scenario: &Scenario, dice: &mut Dice) -> Check {
        for (now, cost) in scenario.asks().take_while(|(now, _)| *now < WORDS_END) {
            self.ask(cost, now)?;
            if dice.once_in(3) {
                continue;
            }
            self.settle(dice, now)?;
            ensure(self.word <= WORD_MAX, || format!("settled at {now}: the word {} is a lock", self.word))?;
            let later = now + scenario::roll_wait(dice, &scenario.spec);
            for (cost, at) in [(0, now), (1, now), (cost, now), (self.limit.units(), now), (cost, later)] {
                self.compare(cost, at)?;
            }
        }
        Ok(())
    }

    /// Makes a request on both, and charges both if the word allows it.
    fn ask(&mut self, cost: Cost, now: Timestamp) -> Check {
        let decision = self.compare(cost, now)?;
        let (full, word) = (self.limit.mark(&self.state, now), self.rule.mark(self.word, now));
        ensure(full == word, || format!("charged at {now}: the mark is {word:?}, not {full:?}"))?;
        if decision.allowed && cost > 0 {
            self.limit.charge(&mut self.state, cost, now);
            self.word = self.charged(cost, now);
            self.open.push((word, cost));
            self.note();
        }
        Ok(())
    }

    fn charged(&self, cost: Cost, now: Timestamp) -> u64 {
        let floor = self.rule.floor(now);
        let left = self.rule.decide(self.word, 0, now).remaining;
        let counted = if self.bug == Some(Bug::CrossingToLimit) { cost.min(left) } else { cost };
        self.rule.next(self.word, floor, counted).unwrap_or(self.word)
    }

    /// Settles a random open charge.
    fn settle(&mut self, dice: &mut Dice, now: Timestamp) -> Check {
        if self.open.is_empty() {
            return Ok(());
        }
        let (mark, cost) = self.open.swap_remove(dice.below(self.open.len() as u64) as usize);
        let far = cost.saturating_add(dice.any_size(u64::MAX));
        let actual = dice.pick(&[0, 0, cost / 2, cost - 1, cost, cost + 1, 2 * cost, far]);
        let before = self.word;
        self.limit.settle(&mut self.state, mark, cost, actual, now);
        self.word = self.settled(mark, cost, actual, now);
        self.note();
        let ordered = if actual > cost { self.word >= before } else { self.word <= before };
        ensure(ordered, || {
            format!("{actual} of {cost} used, settled at {now}: {before} became {}", self.word)
        })
    }

    fn settled(&self, mark: Mark, charged: Cost, actual: Cost, now: Timestamp) -> u64 {
        let Self { rule, word, .. } = self;
        if actual >= charged {
            let left = rule.decide(*word, 0, now).remaining;
            return match self.bug {
                Some(Bug::DebtForgotten) => *word,
                Some(Bug::DebtStopsAtLimit) => rule.owe(*word, (actual - charged).min(left), now),
                _ => rule.settle(*word, mark, charged, actual, now),
            };
        }
        let back = charged - actual;
        match self.bug {
            Some(Bug::RefundForgotten) => *word,
            Some(Bug::RefundTwice) => rule.refund(rule.refund(*word, mark, back, now), mark, back, now),
            Some(Bug::RefundOfAnyWindow) if self.is_window() => {
                rule.refund(*word, rule.mark(*word, now), back, now)
            }
            Some(Bug::RefundOfWhatRefilled) if !self.is_window() => {
                rule.refund(*word, Mark(u64::MAX), back, now)
            }
            Some(Bug::RefundOfAShaper) => self.refund_of_a_shaper(mark, back, now),
            Some(Bug::RefundFromTheCap) if self.is_window() => self.refund_from_the_cap(mark, back),
            _ => rule.settle(*word, mark, charged, actual, now),
        }
    }

    /// Computes the refund of a bucket that ignores turns.
    fn refund_of_a_shaper(&self, mark: Mark, back: Cost, now: Timestamp) -> u64 {
        let next = self.rule.refund(self.word, mark, back, now);
        let one = self.rule.owe(self.word, 1, now) - self.word.max(self.rule.floor(now));
        if next == self.word { self.word.saturating_sub(one) } else { next }
    }

    /// Computes the refund of a count that ignores the cap.
    fn refund_from_the_cap(&self, mark: Mark, back: Cost) -> u64 {
        let next = self.word.saturating_sub(back);
        if self.rule.mark(next, Timestamp::EPOCH) == mark { next } else { self.word }
    }

    fn is_window(&self) -> bool {
        matches!(self.limit, Limit::Window(_))
    }

    /// Updates whether the full state fits a word: ticks up to the end of words, or the bits that the windows up to it
    /// leave.
    fn note(&mut self) {
        self.fits &= match &self.state {
            State::Count(count) => {
                let windows = WORDS_END.as_nanos() / nanos(self.limit.period()) + 2;
                let bits = windows.leading_zeros() - 1;
                count.used < (WORD_MAX >> (63 - bits)).min(UNITS_MAX)
            }
            state => self.limit.idle_at(state) <= WORDS_END,
        };
    }

    /// Returns the decision of the word, which must be that of the full rule, or no more than that.
    fn compare(&self, cost: Cost, now: Timestamp) -> Result<Decision, String> {
        let want = self.limit.decide(&self.state, cost, now);
        let got = self.rule.decide(self.word, cost, now);
        let no_more = got.allowed <= want.allowed && got.remaining <= want.remaining;
        let right = if self.fits { got == want } else { no_more };
        ensure(right, || {
            let (want, got) = (print_answer(&want), print_answer(&got));
            format!("{cost} at {now}:\n  full {want}\n  word {got}")
        })?;
        Ok(got)
    }
}
