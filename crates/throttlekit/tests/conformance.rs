//! `same-everywhere`: the limiter in memory gives the same responses as the pure rules, field by field.

use throttlekit::clock::ManualClock;
use throttlekit::hash::SecretHash;
use throttlekit::rate::{Forecast, Timestamp};
use throttlekit::{Call, Decision, Limiter};
use throttlekit_conformance::Subject;

struct InMemory {
    limiter: Limiter<ManualClock, SecretHash>,
    clock: ManualClock,
}

impl InMemory {
    fn at(&self, now: Timestamp) -> &Limiter<ManualClock, SecretHash> {
        self.clock.set(now);
        &self.limiter
    }
}

impl Subject for InMemory {
    fn check(&mut self, key: &str, cost: u64, now: Timestamp) -> Decision {
        self.at(now).check(Call::by(key).cost(cost))
    }

    fn peek(&mut self, key: &str, now: Timestamp) -> Decision {
        self.at(now).peek(key)
    }

    fn forecast(&mut self, key: &str, cost: u64, now: Timestamp) -> Forecast {
        self.at(now).forecast(Call::by(key).cost(cost))
    }

    fn reset(&mut self, key: &str) {
        self.limiter.reset(key);
    }
}

#[test]
fn same_everywhere_in_memory() {
    throttlekit_conformance::suite(|limit, start| {
        let clock = ManualClock::at(start);
        let limiter = Limiter::builder(*limit).clock(clock.clone()).memory_budget(16 << 10).build().unwrap();
        InMemory { limiter, clock }
    });
}
