//! `same-everywhere`: on random timelines the functions on the server decide as the rules do.

mod common;

use std::time::Duration;

use common::{Dice, builder, clear, form};
use throttlekit::rate::shared::SharedForm;
use throttlekit::rate::{Charge as Reference, Gcra, Mark, Need, Rule, Settle, SlidingWindow, State};
use throttlekit::store::{Charge, Charges, Outcome, Settlement, Store};
use throttlekit::{Cadence, Clock, Limit, ManualClock, Rate, Timestamp, Weekday};
use throttlekit_postgres::{Durability, PostgresStore};

const TIMELINES: u64 = 200;
const STEPS: u64 = 40;
const KEYS: u64 = 3;

fn limits() -> Vec<SharedForm> {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let month = |minutes| Cadence::Month { utc_offset_minutes: minutes };
    [
        Limit::gcra(Rate::per_second(3).burst(5)).unwrap(),
        Limit::gcra(Rate::per_minute(7)).unwrap(),
        Limit::gcra(Rate::per_second(1_000_001).burst(4)).unwrap(),
        Gcra::leaky_bucket(Rate::per_second(7), 2 * second).unwrap().into(),
        Limit::fixed_window(5, second).unwrap(),
        Limit::quota(9, Cadence::Every { length: minute, anchor: Timestamp::from_millis(12_345) }).unwrap(),
        Limit::quota(4, Cadence::Day { utc_offset_minutes: -210 }).unwrap(),
        Limit::quota(6, Cadence::Week { starts_on: Weekday::Sunday, utc_offset_minutes: 840 }).unwrap(),
        Limit::quota(5, month(-840)).unwrap(),
        Limit::quota(5, month(345)).unwrap(),
        Limit::sliding_window(7, second).unwrap(),
        SlidingWindow::new(9_007_199_254_740_991, minute, 1).unwrap().into(),
        SlidingWindow::new(5, Duration::from_micros(700), 7).unwrap().into(),
        Limit::sliding_log(6, second).unwrap(),
        Limit::sliding_log(12, minute).unwrap(),
    ]
    .map(form)
    .to_vec()
}

/// One world: a store and the rules beside it, on one clock.
struct World {
    dice: Dice,
    clock: ManualClock,
    store: PostgresStore,
    forms: Vec<SharedForm>,
    states: Vec<State>,
    settleable: Vec<(usize, u64, Mark)>,
    seed: u64,
}

/// One ask: of each charge its key's place, the key and the cost.
#[derive(Debug)]
struct Drawn {
    need: Need,
    charges: Vec<(usize, String, u64)>,
}

impl World {
    fn key(&self, slot: usize) -> String {
        format!("{}:{}:{}", self.seed, slot / KEYS as usize, slot % KEYS as usize)
    }

    fn form(&self, slot: usize) -> &SharedForm {
        &self.forms[slot / KEYS as usize]
    }

    /// Mostly on, by as much as matters to one of the limits; sometimes back.
    fn move_clock(&mut self) {
        let spans = [1, 1_000, 100_000, 700_000, 1_000_000, 30_000_000, 3_600_000_000, 86_400_000_000];
        let span = spans[self.dice.below(spans.len() as u64) as usize];
        let by = Duration::from_micros(self.dice.below(span) * self.dice.below(2));
        if self.dice.below(8) > 0 {
            return self.clock.advance(by);
        }
        let back = self.clock.now().as_nanos().saturating_sub(by.as_nanos() as u64);
        self.clock.set(Timestamp::from_nanos(back));
    }

    fn cost(&mut self, slot: usize) -> u64 {
        let units = self.form(slot).limit().units();
        match self.dice.below(8) {
            0 => 0,
            1 => units.saturating_add(self.dice.below(3)),
            2 => 1 + self.dice.below(units),
            _ => 1 + self.dice.below(2),
        }
    }

    fn slots(&mut self, most: u64) -> Vec<usize> {
        let mut slots = Vec::new();
        for _ in 0..1 + self.dice.below(most) {
            let slot = self.dice.below(self.states.len() as u64) as usize;
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        slots
    }

    /// Half of them of one ask with one charge, which the server answers by a way of its own.
    fn draw_asks(&mut self) -> Vec<Drawn> {
        let (asks, charges) = if self.dice.below(2) == 0 { (1, 1) } else { (1 + self.dice.below(4), 4) };
        let draw = |_| {
            let need = if self.dice.below(3) == 0 { Need::Any } else { Need::All };
            let slots = self.slots(charges);
            Drawn { need, charges: slots.into_iter().map(|s| (s, self.key(s), self.cost(s))).collect() }
        };
        (0..asks).map(draw).collect()
    }

    fn charges<'a>(&'a self, ask: &'a Drawn) -> Vec<Charge<'a>> {
        ask.charges.iter().map(|(s, key, cost)| Charge { key, form: self.form(*s), cost: *cost }).collect()
    }

    async fn admit(&mut self) {
        let asks = self.draw_asks();
        let charges: Vec<Vec<Charge<'_>>> = asks.iter().map(|ask| self.charges(ask)).collect();
        let flight: Vec<_> =
            asks.iter().zip(&charges).map(|(ask, charges)| Charges { need: ask.need, charges }).collect();
        let answer = self.store.admit(&flight).await;
        let outcomes = answer.unwrap_or_else(|error| panic!("{error} {}", self.about(&asks)));
        for (ask, outcome) in asks.iter().zip(&outcomes) {
            self.compare(ask, outcome);
        }
    }

    /// Lets the rules answer the same ask, and charges them.
    fn compare(&mut self, ask: &Drawn, outcome: &Outcome) {
        let (about, now) = (self.about(ask), self.clock.now());
        let limits: Vec<Limit> = ask.charges.iter().map(|(slot, ..)| *self.form(*slot).limit()).collect();
        let mut states: Vec<State> =
            ask.charges.iter().map(|(slot, ..)| self.states[*slot].clone()).collect();
        for (i, (_, _, cost)) in ask.charges.iter().enumerate() {
            assert_eq!(outcome.decisions[i], limits[i].decide(&states[i], *cost, now), "{about}");
            assert_eq!(outcome.marks[i], limits[i].mark(&states[i], now), "{about}");
        }
        let each = ask.charges.iter().zip(&limits).zip(&mut states);
        let mut each: Vec<_> =
            each.map(|(((_, _, cost), limit), state)| Reference { limit, state, cost: *cost }).collect();
        assert_eq!(outcome.verdict, ask.need.check(&mut each, now), "{about}");
        assert_eq!(outcome.now, now);
        for (i, ((slot, _, cost), state)) in ask.charges.iter().zip(states).enumerate() {
            self.states[*slot] = state;
            if outcome.verdict.decision.allowed && outcome.decisions[i].allowed {
                self.settleable.push((*slot, *cost, outcome.marks[i]));
            }
        }
    }

    async fn settle(&mut self) {
        let mut all = Vec::new();
        for _ in 0..1 + self.dice.below(3) {
            if self.settleable.is_empty() {
                break;
            }
            let at = self.dice.below(self.settleable.len() as u64) as usize;
            let (slot, charged, mark) = self.settleable.swap_remove(at);
            let actual = match self.dice.below(4) {
                0 => 0,
                1 => self.dice.roll() >> 8,
                _ => self.dice.below(charged.saturating_add(4)),
            };
            all.push((slot, self.key(slot), charged, mark, actual));
        }
        let settlements: Vec<_> = all
            .iter()
            .map(|(slot, key, charged, mark, actual)| Settlement {
                key,
                form: self.form(*slot),
                mark: *mark,
                charged: *charged,
                actual: *actual,
            })
            .collect();
        self.store.settle(&settlements).await.unwrap_or_else(|e| panic!("{e} {}", self.about(&all)));
        let now = self.clock.now();
        for (slot, _, charged, mark, actual) in all {
            let limit = *self.form(slot).limit();
            limit.settle(&mut self.states[slot], mark, charged, actual, now);
        }
    }

    async fn peek(&mut self) {
        let slots = self.slots(5);
        let keys: Vec<_> = slots.iter().map(|s| self.key(*s)).collect();
        let charges: Vec<_> =
            slots.iter().zip(&keys).map(|(s, key)| Charge { key, form: self.form(*s), cost: 1 }).collect();
        let sight = self.store.peek(&charges).await.unwrap();
        let now = self.clock.now();
        for (slot, state) in slots.iter().zip(&sight.states) {
            let limit = self.form(*slot).limit();
            for at in [now, now + Duration::from_millis(400), now + Duration::from_secs(100)] {
                let (theirs, ours) = (limit.peek(state, at), limit.peek(&self.states[*slot], at));
                assert_eq!(theirs, ours, "{} {:?}", self.about(slot), self.states[*slot]);
            }
        }
    }

    fn about(&self, what: &impl std::fmt::Debug) -> String {
        format!("timeline {} at {}: {what:?}", self.seed, self.clock.now())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_everywhere_the_server_decides_as_the_rules_do() {
    let schema = "tk_test_same";
    clear(schema).await;
    let clock = ManualClock::default();
    let store =
        builder(schema).durability(Durability::Unlogged).clock(clock.clone()).connect().await.unwrap();
    for seed in 0..TIMELINES {
        let mut dice = Dice(seed);
        // Some begin at the epoch, where local time lies before it.
        let start = [0, 1_000_000, 951_700_000_000_000, 1_900_000_000_000_000][dice.below(4) as usize];
        clock.set(Timestamp::from_nanos((start + dice.below(86_400_000_000)) * 1_000));
        let all = limits();
        let first = dice.below(all.len() as u64) as usize;
        let forms: Vec<_> = all.iter().cycle().skip(first).take(3).cloned().collect();
        let states = vec![State::Fresh; forms.len() * KEYS as usize];
        let (clock, store) = (clock.clone(), store.clone());
        let mut world = World { dice, clock, store, forms, states, settleable: Vec::new(), seed };
        for _ in 0..STEPS {
            world.move_clock();
            match world.dice.below(10) {
                0 => world.settle().await,
                1 => world.peek().await,
                _ => world.admit().await,
            }
        }
    }
}
