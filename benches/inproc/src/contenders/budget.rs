//! Our token budget without keys, debited by a few tokens at a time.

use std::time::Duration;

use throttlekit::clock::Clock;
use throttlekit::limiter::KeylessLimiter;
use throttlekit::{Limit, Limiter};

use super::{Check, consumed};
use crate::workloads::Stream;

/// More than any run debits.
const BUDGET: u64 = 1 << 40;
/// Longer than any run, as is the rest of the current window.
const WINDOW: Duration = Duration::from_secs(3_650 * 86_400);

/// Returns the tokens of a debit: one to eight.
#[inline(always)]
pub fn tokens(at: usize) -> u64 {
    (at as u64 & 7) + 1
}

struct Meter<C>(KeylessLimiter<C>);

/// Creates a budget that reads this clock.
pub fn meter<C: Clock + 'static>(clock: C) -> impl Check + 'static {
    let limit = Limit::token_budget(BUDGET, WINDOW).expect("a limit");
    Meter(Limiter::builder(limit).clock(clock).build_keyless().expect("a limiter"))
}

impl<C: Clock> Check for Meter<C> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check(((), tokens(at)))).allowed)
    }
}
