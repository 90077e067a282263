//! A random schedule of callers that wait for one key of a limiter, and the checks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use throttlekit_conformance::Dice;
use throttlekit_conformance::check::{Check, ensure};
use throttlekit_core::Timestamp;
use throttlekit_core::rate::{Limit, Rate, Rule, State};
use throttlekit_core::turn::{BY_AGE_EVERY, Departure, HEARTBEAT, STALLED_AFTER};

use super::{Part, Turns, Who};

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const STEPS: u64 = 60;
const WAITERS_MAX: usize = 14;
const RUNTIMES: usize = 3;
const CLASSES: u64 = 3;
/// Polls in one schedule: far more than it needs.
const POLLS_MAX: u32 = 50_000;

/// Runs the schedule of a seed, and checks one part of the guarantee.
pub fn play<T: Turns>(seed: u64, part: Part, make: &dyn Fn() -> T) -> Check {
    let mut scenario = Scenario::new(seed, part, make);
    for _ in 0..STEPS {
        scenario.step()?;
    }
    scenario.finish()
}

/// A caller in the queue.
#[derive(Clone, Debug)]
struct Waiter {
    class: u8,
    cost: u64,
    runtime: usize,
    seen_at: Timestamp,
    wakes_at: Timestamp,
    not_before: Timestamp,
    /// The end of the request in flight.
    request: Option<Timestamp>,
    /// Number of waiters when it joined, itself included.
    depth: u64,
    /// Turns that ended before it joined.
    ended_before: u64,
    /// `false` once it gave no sign of life for too long.
    was_live: bool,
}

struct Scenario<'a, T> {
    turns: T,
    make: &'a dyn Fn() -> T,
    part: Part,
    dice: Dice,
    now: Timestamp,
    limit: Limit,
    state: State,
    burst: u64,
    waiters: BTreeMap<Who, Waiter>,
    notified: BTreeSet<Who>,
    stopped_until: [Timestamp; RUNTIMES],
    arrived: Who,
    /// Turns that ended.
    ended: u64,
    /// Turns that ended since the last one by age.
    since_age: u32,
    polls: u32,
}

impl<'a, T: Turns> Scenario<'a, T> {
    fn new(seed: u64, part: Part, make: &'a dyn Fn() -> T) -> Self {
        let mut dice = Dice::new(seed);
        let (rate, burst) = (dice.pick(&[2, 5, 20, 100]), dice.between(1, 4));
        let limit = Limit::gcra(Rate::per_second(rate).burst(burst)).expect("a valid limit");
        Self {
            turns: make(),
            make,
            part,
            dice,
            now: START,
            limit,
            state: State::default(),
            burst,
            waiters: BTreeMap::new(),
            notified: BTreeSet::new(),
            stopped_until: [START; RUNTIMES],
            arrived: 0,
            ended: 0,
            since_age: 0,
            polls: 0,
        }
    }

    fn step(&mut self) -> Check {
        match self.dice.below(20) {
            0..9 if self.waiters.len() < WAITERS_MAX => self.arrive()?,
            9..12 => self.cancel()?,
            12 => self.stop(),
            13..17 => {
                let pause = Duration::from_millis(self.dice.between(1, 60));
                self.run_until(self.now + pause)?;
            }
            17 => {
                let pause = Duration::from_millis(self.dice.between(100, 2_500));
                self.run_until(self.now + pause)?;
            }
            _ => {
                let next = self.next_event().unwrap_or(self.now);
                self.run_until(next)?;
            }
        }
        self.run_until(self.now)
    }

    /// Sends a caller's request if no other waits, and joins the queue if denied.
    fn arrive(&mut self) -> Check {
        let who = self.arrived;
        self.arrived += 1;
        let (class, cost) = (self.dice.below(CLASSES) as u8, self.dice.between(1, self.burst));
        let mut not_before = self.now;
        if self.waiters.is_empty() {
            self.turns = (self.make)();
            (self.ended, self.since_age) = (0, 0);
            let decision = self.limit.check(&mut self.state, cost, self.now);
            if decision.allowed {
                return Ok(());
            }
            not_before = self.now + decision.retry_after.wait().unwrap_or_default();
        }
        let runtime = self.running();
        let waiter = Waiter {
            class,
            cost,
            runtime,
            seen_at: self.now,
            wakes_at: self.now,
            not_before,
            request: None,
            depth: self.waiters.len() as u64 + 1,
            ended_before: self.ended,
            was_live: true,
        };
        self.waiters.insert(who, waiter);
        self.change(who, |turns, now| turns.join(who, class, now))
    }

    fn cancel(&mut self) -> Check {
        let Some(who) = self.any() else { return Ok(()) };
        self.leave(who, Departure::GaveUp)
    }

    fn stop(&mut self) {
        let (runtime, ms) = (self.dice.below(RUNTIMES as u64) as usize, self.dice.between(100, 5_000));
        self.stopped_until[runtime] = self.now + Duration::from_millis(ms);
    }

    /// Advances the time and processes all events until then.
    fn run_until(&mut self, end: Timestamp) -> Check {
        loop {
            while let Some(who) = self.due() {
                self.polls += 1;
                ensure(self.polls < POLLS_MAX, || {
                    format!("{} wait and are never admitted", self.waiters.len())
                })?;
                self.poll(who)?;
            }
            self.check_at_rest()?;
            match self.next_event().filter(|next| *next <= end) {
                Some(next) => self.advance(next),
                None => break,
            }
        }
        self.advance(end);
        Ok(())
    }

    fn advance(&mut self, to: Timestamp) {
        self.now = self.now.max(to);
        let now = self.now;
        let stalled = self.waiters.values_mut().filter(|waiter| now.since(waiter.seen_at) >= STALLED_AFTER);
        stalled.for_each(|waiter| waiter.was_live = false);
    }

    /// Runs on until all callers were admitted.
    fn finish(&mut self) -> Check {
        while let Some(next) = self.next_event() {
            self.run_until(next)?;
        }
        Ok(())
    }

    /// Returns a waiter whose runtime runs and that has something to do now.
    fn due(&mut self) -> Option<Who> {
        let due = |(who, waiter): &(&Who, &Waiter)| {
            let runs = self.stopped_until[waiter.runtime] <= self.now;
            runs && (self.notified.contains(who) || waiter.wakes_at <= self.now)
        };
        let due: Vec<Who> = self.waiters.iter().filter(due).map(|(who, _)| *who).collect();
        if due.is_empty() { None } else { Some(self.dice.pick(&due)) }
    }

    /// Returns when the next waiter has something to do.
    fn next_event(&self) -> Option<Timestamp> {
        let wakes = self.waiters.iter().map(|(who, waiter)| {
            let wakes_at = if self.notified.contains(who) { self.now } else { waiter.wakes_at };
            wakes_at.max(self.stopped_until[waiter.runtime])
        });
        wakes.min().map(|next| next.max(self.now))
    }

    /// Polls a waiter.
    fn poll(&mut self, who: Who) -> Check {
        self.notified.remove(&who);
        let now = self.now;
        self.with(who, |waiter| (waiter.seen_at, waiter.wakes_at) = (now, now + HEARTBEAT));
        self.change(who, |turns, now| turns.see(who, now))?;
        match self.waiters[&who].request {
            Some(end) if end <= now => self.answer(who),
            Some(end) => {
                self.with(who, |waiter| waiter.wakes_at = waiter.wakes_at.min(end));
                Ok(())
            }
            None if now >= self.waiters[&who].not_before && self.turns.request(who) => self.request(who),
            None => {
                self.with(who, |waiter| {
                    if waiter.not_before > now {
                        waiter.wakes_at = waiter.wakes_at.min(waiter.not_before);
                    }
                });
                Ok(())
            }
        }
    }

    fn request(&mut self, who: Who) -> Check {
        self.check_order(who)?;
        let beside = self.waiters.values().any(|waiter| waiter.was_live && waiter.request.is_some());
        self.judge(Part::OneRequest, !beside, || format!("{who} requests beside another"))?;
        let takes = if self.dice.once_in(2) { 0 } else { self.dice.between(1, 40) };
        let end = self.now + Duration::from_millis(takes);
        self.with(who, |waiter| {
            waiter.request = Some(end);
            waiter.wakes_at = waiter.wakes_at.min(end);
        });
        if takes == 0 { self.answer(who) } else { Ok(()) }
    }

    /// Lets the limiter decide.
    fn answer(&mut self, who: Who) -> Check {
        let cost = self.waiters[&who].cost;
        self.with(who, |waiter| waiter.request = None);
        let decision = self.limit.check(&mut self.state, cost, self.now);
        if decision.allowed {
            return self.leave(who, Departure::Admitted);
        }
        let random = self.dice.roll();
        let Some(pause) = self.turns.pause(who, decision.retry_after, random) else {
            return self.leave(who, Departure::GaveUp);
        };
        let exact = decision.retry_after.wait().unwrap_or_default();
        self.judge(Part::OneRequest, pause >= exact, || format!("{who} pauses for {pause:?} of {exact:?}"))?;
        let next = self.now + pause.max(Duration::from_millis(1));
        self.with(who, |waiter| (waiter.not_before, waiter.wakes_at) = (next, waiter.wakes_at.min(next)));
        self.change(who, |turns, now| turns.denied(who, now))
    }

    fn leave(&mut self, who: Who, departure: Departure) -> Check {
        let ends = self.turns.has_turn(who);
        self.waiters.remove(&who);
        self.notified.remove(&who);
        self.change(who, |turns, now| turns.leave(who, departure, now))?;
        if ends {
            self.ended += 1;
            let repeated = self.goes_by_age() && departure == Departure::GaveUp;
            self.since_age = if repeated { self.since_age } else { (self.since_age + 1) % BY_AGE_EVERY };
        }
        self.check_starvation()
    }

    /// Changes the turns. A waiter that gets the turn by it has to be notified.
    fn change(&mut self, by: Who, change: impl FnOnce(&mut T, Timestamp) -> Option<Who>) -> Check {
        let before = self.holder();
        let called = change(&mut self.turns, self.now);
        let after = self.holder();
        self.notified.extend(called.filter(|called| self.waiters.contains_key(called)));
        let new = after.filter(|after| Some(*after) != before && *after != by);
        let told = new.is_none_or(|new| called == Some(new));
        self.judge(Part::HandOver, told, || format!("{new:?} has the turn and is not notified"))?;
        let (kept, waiting) = (self.turns.waiting(), self.waiters.len());
        self.judge(Part::HandOver, kept == waiting, || format!("{kept} are kept, and {waiting} wait"))
    }

    /// Checks that a waiter that begins a request comes first of those that are live.
    fn check_order(&self, who: Who) -> Check {
        let own = &self.waiters[&who];
        let live = || {
            let live = |(_, waiter): &(&Who, &Waiter)| self.now.since(waiter.seen_at) < STALLED_AFTER;
            self.waiters.iter().filter(live)
        };
        let overtaken = live().find(|(other, waiter)| **other < who && waiter.class == own.class);
        self.judge(Part::Order, overtaken.is_none(), || format!("{who} overtakes {overtaken:?}"))?;
        let oldest = live().next().map(|(other, _)| *other);
        if self.goes_by_age() {
            self.judge(Part::Starvation, oldest == Some(who), || {
                format!("{who} has a turn that goes by age, to {oldest:?}")
            })
        } else {
            let urgent = live().find(|(_, waiter)| waiter.class < own.class);
            self.judge(Part::Order, urgent.is_none(), || format!("{who} is served before {urgent:?}"))
        }
    }

    fn check_starvation(&self) -> Check {
        let bound = |waiter: &Waiter| u64::from(BY_AGE_EVERY) * waiter.depth;
        let starves = |waiter: &Waiter| waiter.was_live && self.ended - waiter.ended_before >= bound(waiter);
        let starved = self.waiters.iter().find(|(_, waiter)| starves(waiter));
        self.judge(Part::Starvation, starved.is_none(), || format!("after {} turns: {starved:?}", self.ended))
    }

    /// Checks that a live waiter has the turn, after all due events.
    fn check_at_rest(&self) -> Check {
        let active = |waiter: &Waiter| self.stopped_until[waiter.runtime] <= self.now;
        if !self.waiters.values().any(active) {
            return Ok(());
        }
        let holder = self.holder().and_then(|holder| self.waiters.get(&holder));
        self.judge(Part::HandOver, holder.is_some(), || "nobody has the turn".into())?;
        let unseen = holder.map(|holder| self.now.since(holder.seen_at)).unwrap_or_default();
        let late = || format!("the turn is with one who was not seen for {unseen:?}");
        self.judge(Part::Stalled, unseen < STALLED_AFTER + HEARTBEAT, late)
    }

    fn goes_by_age(&self) -> bool {
        self.since_age == BY_AGE_EVERY - 1
    }

    fn holder(&self) -> Option<Who> {
        self.waiters.keys().copied().find(|who| self.turns.has_turn(*who))
    }

    fn any(&mut self) -> Option<Who> {
        let all: Vec<Who> = self.waiters.keys().copied().collect();
        if all.is_empty() { None } else { Some(self.dice.pick(&all)) }
    }

    /// Returns a runtime that runs, if there is one: a stopped runtime starts no call.
    fn running(&mut self) -> usize {
        let runs = (0..RUNTIMES).filter(|runtime| self.stopped_until[*runtime] <= self.now);
        let runs: Vec<usize> = runs.collect();
        if runs.is_empty() {
            self.stopped_until[0] = self.now;
            return 0;
        }
        self.dice.pick(&runs)
    }

    fn with(&mut self, who: Who, change: impl FnOnce(&mut Waiter)) {
        if let Some(waiter) = self.waiters.get_mut(&who) {
            change(waiter);
        }
    }

    fn judge(&self, part: Part, holds: bool, story: impl FnOnce() -> String) -> Check {
        ensure(holds || self.part != part, || format!("at {:?}: {}", self.now.since(START), story()))
    }
}
