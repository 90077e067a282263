//! Several limits that decide as one atomic group.

use throttlekit_core::rate::{Limit, Mark, Need, Verdict};
use throttlekit_core::{Decision, Forecast, Timestamp};

use crate::Call;
use crate::hash::KeyHash;
use crate::memory::{Capacity, HeldKey, KeyMemory, Keys};

/// Maximum number of limits of one limiter.
pub(super) const LIMITS_MAX: usize = 16;

/// A limit of a builder.
#[derive(Clone, Debug)]
pub(super) struct LimitEntry {
    /// `None` for the first.
    pub(super) name: Option<Box<str>>,
    /// Index of the call's key that it counts by.
    pub(super) key: usize,
    pub(super) limit: Limit,
}

/// Two to [`LIMITS_MAX`] limits.
pub(super) struct Several {
    need: Need,
    limits: Box<[OneOfSeveral]>,
}

struct OneOfSeveral {
    name: Option<Box<str>>,
    key: usize,
    keys: Keys,
}

/// The part of a call that one limit decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Fingerprint of the key.
    key: u64,
    cost: u64,
}

/// The parts of a call, by limit.
pub(super) type Parts = [Part; LIMITS_MAX];

/// Position of the charge of one limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Position {
    limit: usize,
    part: Part,
    mark: Mark,
}

impl Several {
    /// Creates the limits, each with this capacity.
    pub(super) fn new(limits: Vec<LimitEntry>, need: Need, capacity: Capacity, now: Timestamp) -> Self {
        let one = |LimitEntry { name, key, limit }| OneOfSeveral {
            name,
            key,
            keys: Keys::new(limit, capacity, now),
        };
        Self { need, limits: limits.into_iter().map(one).collect() }
    }

    /// Returns the part of a call for each limit; a key that several limits share is hashed once.
    pub(super) fn parts(&self, call: &Call<'_>, hash: &impl KeyHash) -> Parts {
        self.first_parts(call, hash)
    }

    /// Returns the parts of the first `N` limits.
    #[inline]
    fn first_parts<const N: usize>(&self, call: &Call<'_>, hash: &impl KeyHash) -> [Part; N] {
        let mut parts = [Part::default(); N];
        for (i, limit) in self.limits.iter().take(N).enumerate() {
            let before = self.limits[..i].iter().position(|before| before.key == limit.key);
            let key = match before {
                Some(before) => parts[before].key,
                None => hash.fingerprint(call.key_at(limit.key)),
            };
            parts[i] = Part { key, cost: call.units_at(i) };
        }
        parts
    }

    /// Checks a call over all limits, and charges all that allow it, or none. Adds the positions of the charges to
    /// `positions`, if there are any to keep.
    ///
    /// The keys are held, in the order of the limits, while it decides; a call that needs one of them waits those few
    /// instructions. No two calls hold them in different orders, so they never wait for each other.
    pub(super) fn check(
        &self,
        call: &Call<'_>,
        hash: &impl KeyHash,
        now: Timestamp,
        positions: Option<&mut Vec<Position>>,
    ) -> Verdict {
        macro_rules! by_number {
            ($($number:literal)*) => {
                match self.limits.len() {
                    $($number => self.check_each::<$number, _>(call, hash, now, positions),)*
                    _ => self.check_each::<LIMITS_MAX, _>(call, hash, now, positions),
                }
            };
        }
        by_number!(2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    }

    /// Checks a call over `N` limits: a constant number keeps the held keys off the heap. Not inlined, so that each `N`
    /// has a stack frame of its own size.
    #[inline(never)]
    fn check_each<const N: usize, H: KeyHash>(
        &self,
        call: &Call<'_>,
        hash: &H,
        now: Timestamp,
        positions: Option<&mut Vec<Position>>,
    ) -> Verdict {
        let parts: [Part; N] = self.first_parts(call, hash);
        let mut held: [HeldKey<'_>; N] = std::array::from_fn(|i| self.limits[i].keys.hold(parts[i].key, now));
        let decisions: [Decision; N] = std::array::from_fn(|i| held[i].decide(parts[i].cost, now));
        let verdict = self.need.judge(&decisions);
        if !verdict.decision.allowed {
            return verdict;
        }
        if let Some(positions) = positions {
            let charged = (0..N).filter(|&i| decisions[i].allowed);
            positions.extend(charged.map(|limit| Position {
                limit,
                part: parts[limit],
                mark: held[limit].mark(now),
            }));
        }
        let charged = held.iter_mut().zip(&parts).zip(&decisions).filter(|(_, decision)| decision.allowed);
        charged.for_each(|((held, part), _)| held.charge(part.cost, now));
        verdict
    }

    /// Replaces the charged cost by the actual cost, at each limit that was charged.
    pub(super) fn settle(&self, positions: &[Position], actual: u64, now: Timestamp) {
        for Position { limit, part, mark } in positions {
            if let Some(limit) = self.limits.get(*limit) {
                limit.keys.settle(part.key, *mark, part.cost, actual, now);
            }
        }
    }

    /// Returns what each key has left on its limit.
    pub(super) fn peek_each(&self, parts: &Parts, now: Timestamp) -> Vec<Decision> {
        self.limits.iter().zip(parts).map(|(limit, part)| limit.keys.peek(part.key, now)).collect()
    }

    /// Combines what each key has left.
    pub(super) fn peek(&self, parts: &Parts, now: Timestamp) -> Decision {
        self.need.judge(&self.peek_each(parts, now)).decision
    }

    /// Forecasts by the limit with the least to spend if all must allow, by the one with the most if any may.
    pub(super) fn forecast(&self, parts: &Parts, now: Timestamp) -> Forecast {
        let each = || {
            self.limits.iter().zip(parts).map(|(limit, part)| limit.keys.forecast(part.key, part.cost, now))
        };
        let by_units = |forecast: &Forecast| forecast.spendable_now;
        let binding = match self.need {
            Need::All => each().min_by_key(by_units).map(|least| {
                let full_at = each().map(|forecast| forecast.full_at).max();
                Forecast { full_at: full_at.unwrap_or(least.full_at), ..least }
            }),
            Need::Any => each().max_by_key(by_units),
        };
        binding.unwrap_or(Forecast { spendable_now: 0, next_replenish_at: now, full_at: now })
    }

    /// Forgets the keys of a call, where it has one for the limit.
    pub(super) fn reset(&self, call: &Call<'_>, parts: &Parts) {
        let named = self.limits.iter().zip(parts).filter(|(limit, _)| limit.key < call.key_count());
        named.for_each(|(limit, part)| limit.keys.reset(part.key));
    }

    /// Returns how full the memory of all limits is.
    pub(super) fn memory(&self, now: Timestamp) -> KeyMemory {
        self.limits.iter().map(|limit| limit.keys.memory(now)).fold(KeyMemory::default(), KeyMemory::plus)
    }

    pub(super) fn limit(&self, index: usize) -> Option<&Limit> {
        self.limits.get(index).map(|limit| limit.keys.limit())
    }

    pub(super) fn name(&self, index: usize) -> Option<&str> {
        self.limits.get(index)?.name.as_deref()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use throttlekit_core::rate::{LimitCharge, Rate, State};

    use super::*;
    use crate::Limiter;
    use crate::clock::{Clock, ManualClock};
    use crate::limiter::LimiterBuilder;

    const MINUTE: Duration = Duration::from_secs(60);
    const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    /// One limit of each kind of state, and a budget.
    fn limits() -> [Limit; 5] {
        [
            Limit::gcra(Rate::per_minute(10)),
            Limit::fixed_window(12, MINUTE),
            Limit::token_budget(9, MINUTE),
            Limit::sliding_window(11, MINUTE),
            Limit::sliding_log(10, MINUTE),
        ]
        .map(|limit| limit.expect("a valid limit"))
    }

    fn builder(limits: &[Limit]) -> LimiterBuilder<ManualClock> {
        let builder = Limiter::builder(limits[0]).clock(ManualClock::at(NOON));
        limits.iter().enumerate().skip(1).fold(builder, |builder, (index, limit)| {
            builder.limit_by(index % 2, &format!("limit-{index}"), *limit)
        })
    }

    /// Calls by keys that limits share and do not share, over time, at all numbers of limits, of all and of any.
    #[test]
    fn several_limits_decide_as_their_rules_do() {
        let calls =
            [(0, "a", 3), (1, "b", 1), (0, "a", 7), (5, "a", 2), (0, "b", 12), (30, "b", 4), (40, "a", 9)];
        for number in 2..=LIMITS_MAX {
            let limits: Vec<Limit> = limits().into_iter().cycle().take(number).collect();
            for need in [Need::All, Need::Any] {
                let clock = ManualClock::at(NOON);
                let builder = builder(&limits).clock(clock.clone());
                let limiter = if need == Need::Any { builder.any() } else { builder }.build().unwrap();
                let mut states = [("a", vec![State::Fresh; number]), ("b", vec![State::Fresh; number])];
                let mut org = vec![State::Fresh; number];
                for (wait, key, cost) in calls {
                    clock.advance(Duration::from_secs(wait));
                    let own = states.iter_mut().find(|(name, _)| *name == key).map(|(_, own)| own);
                    let both = own.unwrap().iter_mut().zip(&mut org).enumerate();
                    let state = both.map(|(index, (own, org))| if index % 2 == 0 { own } else { org });
                    let charges = state.zip(&limits).map(|(state, limit)| LimitCharge { limit, state, cost });
                    let want = need.check(&mut charges.collect::<Vec<_>>(), clock.now());
                    let got = limiter.check_binding(Call::by(key).and(&["org"]).cost(cost));
                    assert_eq!(got, (want.decision, want.binding), "{number} limits, {need:?}");
                }
            }
        }
    }

    #[test]
    fn a_settled_charge_is_settled_on_every_limit_that_was_charged() {
        for (any, left) in [(false, [9, 11]), (true, [10, 11])] {
            let [rate, window, ..] = limits();
            let builder = builder(&[rate, window]);
            let limiter = if any { builder.any() } else { builder }.build().unwrap();
            let call = Call::by("alice").and(&["acme"]);
            let (_, charged) = limiter.charge(call.cost(if any { 12 } else { 5 }));
            limiter.settle(charged.unwrap(), 1);
            let remaining: Vec<u64> = limiter.peek_each(call).iter().map(|left| left.remaining).collect();
            assert_eq!(remaining, left, "any: {any}");
            assert!(limiter.charge(call.cost(20)).1.is_none());
        }
    }

    #[test]
    fn a_reset_forgets_the_keys_that_the_call_has() {
        let [rate, window, ..] = limits();
        let limiter = builder(&[rate, window]).build().unwrap();
        let call = Call::by("alice").and(&["acme"]);
        let left = || limiter.peek_each(call).iter().map(|left| left.remaining).collect::<Vec<_>>();
        limiter.check(call.cost(5));
        limiter.reset("alice");
        assert_eq!(left(), [10, 7]);
        assert_eq!((limiter.peek(call).remaining, limiter.forecast(call).spendable_now), (7, 7));
        limiter.reset(call);
        assert_eq!(left(), [10, 12]);
    }
}
