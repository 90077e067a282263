//! The sum of charges that are older than any limit still counts.

use std::collections::VecDeque;

/// Number of parts of the counted period; the sum is too high by at most one of them.
const PARTS: u64 = 32;

#[derive(Default)]
pub(crate) struct ForgottenCharges {
    /// Units charged before everything that still counts.
    pub(crate) charged: u128,
    /// Totals charged by time, in µs of the store's clock.
    marks: VecDeque<(u64, u128)>,
}

impl ForgottenCharges {
    /// Records the total charged up to `now`, and discards totals that no limit counts any more: older than `longest`.
    pub(crate) fn keep(&mut self, (now, longest): (u64, u64), charged: u128) {
        if self.marks.back().is_none_or(|(at, _)| now >= at.saturating_add(longest / PARTS).max(at + 1)) {
            self.marks.push_back((now, charged));
        }
        while let Some((_, charged)) = self.marks.front().filter(|(at, _)| at.saturating_add(longest) < now) {
            self.charged = *charged;
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_losses_older_than_the_longest_window_are_dropped() {
        let mut past = ForgottenCharges::default();
        for second in 0..1_000 {
            past.keep((second, 100), second.into());
            assert!(past.charged <= second.saturating_sub(100).into(), "too much is forgotten");
            assert!(past.charged + 105 >= second.into(), "hardly anything too much is kept");
            assert!(past.marks.len() <= PARTS as usize + 3);
        }
    }

    #[test]
    fn a_longer_limit_added_later_does_not_see_dropped_losses() {
        let mut past = ForgottenCharges::default();
        (0..100).for_each(|second| past.keep((second, 10), second.into()));
        let behind = past.charged;
        (100..150).for_each(|second| past.keep((second, 1_000), second.into()));
        assert_eq!(past.charged, behind);
    }
}
