//! `throttle`: calls are shed by the formula, a full backend gets what it can handle and not much more, and
//! critical calls are shed last.
//!
//! A check is a function of the throttle under test; the same one runs on the production throttle and on
//! those with a seeded bug.

use std::time::Duration;

use throttlekit::overload::Criticality;
use throttlekit::rate::Timestamp;
use throttlekit_core::overload::Throttle;

use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs::Found;

const K: f64 = 2.0;
const WINDOW: Duration = Duration::from_secs(10);
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// Probabilities nearer than this to the random number may be decided either way: the blend of two windows is
/// in 2²⁰ths.
const FINENESS: f64 = 0.000_1;

/// The description of a failure.
type Check = Result<(), String>;

/// Sheds calls.
pub trait Sheds {
    /// Returns `true` if a call may be sent.
    fn admit(&mut self, spared: u32, dice: u32, now: Timestamp) -> bool;
    /// Records a call that the backend accepted.
    fn accept(&mut self, now: Timestamp);
}

impl Sheds for Throttle {
    fn admit(&mut self, spared: u32, dice: u32, now: Timestamp) -> bool {
        Throttle::admit(self, Criticality::thousandths(spared), dice, now)
    }
    fn accept(&mut self, now: Timestamp) {
        Throttle::accept(self, now);
    }
}

/// Creates the production throttle, with K 2 over ten seconds.
pub fn shipped() -> Throttle {
    Throttle::new((K * 1_000.0) as u32, WINDOW).expect("a throttle")
}

/// The load of a backend of fixed capacity from a client with more demand.
#[derive(Clone, Copy, Debug)]
pub struct Convergence {
    /// Demand divided by capacity.
    pub overload: f64,
    /// Accepted calls divided by capacity.
    pub accepted: f64,
    /// Sent calls divided by accepted ones.
    pub sent: f64,
}

/// Runs the checks of one throttle. Returns the convergence and the violations.
pub fn examine<S: Sheds>(histories: u64, make: impl Fn() -> S) -> (Vec<Convergence>, Vec<String>) {
    let mut violations: Vec<String> =
        (0..histories).filter_map(|seed| check_formula(&mut make(), seed).err()).take(3).collect();
    let runs: Vec<_> = [0.5, 1.0, 2.0, 5.0, 20.0].map(|load| converge(&mut make(), load)).into();
    violations.extend(runs.iter().filter_map(|run| run.check().err()));
    violations.extend(check_priorities(&mut make()).err());
    violations.extend(check_recovery(&mut make()).err());
    (runs, violations)
}

/// Searches for the seeded bugs with the same checks.
pub fn find_seeded(histories: u64) -> Found {
    Found::all(|bug: Bug| !examine(histories, || Seeded::new(bug)).1.is_empty())
}

/// Checks that every decision over a random history is that of the formula, recomputed from all events.
fn check_formula(throttle: &mut dyn Sheds, seed: u64) -> Check {
    let mut dice = Dice::new(seed);
    let (mut now, mut latest) = (NOON, Timestamp::EPOCH);
    let (mut requests, mut accepts): (Vec<Timestamp>, Vec<Timestamp>) = (Vec::new(), Vec::new());
    let healthy = dice.between(0, 100);
    for _ in 0..300 {
        now = match dice.below(40) {
            0 => Timestamp::from_nanos(now.as_nanos() - dice.below(20_000_000_000)),
            1 => now + Duration::from_millis(dice.below(30_000)),
            _ => now + Duration::from_millis(dice.below(100)),
        };
        latest = latest.max(now);
        let spared = dice.pick(&[0, 0, 500, 1_000]);
        let shed =
            formula(blend(&requests, latest), blend(&accepts, latest)) * f64::from(1_000 - spared) / 1_000.0;
        let rolled = dice.roll() as u32;
        let admitted = throttle.admit(spared, rolled, now);
        requests.push(latest);
        let rolled = f64::from(rolled) / 2f64.powi(32);
        if (rolled - shed).abs() > FINENESS && admitted != (rolled >= shed) {
            return Err(format!("history {seed}: sheds {shed:.4}, dice {rolled:.4}, admitted {admitted}"));
        }
        if admitted && dice.below(100) < healthy {
            throttle.accept(now);
            accepts.push(latest);
        }
    }
    Ok(())
}

fn formula(requests: f64, accepts: f64) -> f64 {
    ((requests - K * accepts) / (requests + 1.0)).max(0.0)
}

/// Returns the events in this window, and the part of those in the previous one that is not covered yet.
fn blend(events: &[Timestamp], now: Timestamp) -> f64 {
    let length = WINDOW.as_nanos() as u64;
    let window = now.as_nanos() / length;
    let part = 1.0 - (now.as_nanos() % length) as f64 / length as f64;
    let count = |of: u64| events.iter().filter(|at| at.as_nanos() / length == of).count() as f64;
    count(window) + count(window - 1) * part
}

/// Runs a minute against a backend that handles a hundred calls per second.
fn converge(throttle: &mut dyn Sheds, overload: f64) -> Convergence {
    const CAPACITY: u64 = 100;
    let mut dice = Dice::new(9);
    let (mut sent, mut accepted) = (0_u64, 0_u64);
    let wanted = (overload * CAPACITY as f64) as u64;
    for second in 0..60 {
        let mut taken = 0;
        for call in 0..wanted {
            let now =
                NOON + Duration::from_secs(second) + Duration::from_nanos(1_000_000_000 / wanted * call);
            if !throttle.admit(0, dice.roll() as u32, now) {
                continue;
            }
            // After two windows its behavior has settled.
            let counts = u64::from(second >= 20);
            sent += counts;
            // Spread over the second, like a backend's capacity.
            if taken < CAPACITY * (call + 1) / wanted + 1 && taken < CAPACITY {
                taken += 1;
                accepted += counts;
                throttle.accept(now);
            }
        }
    }
    let capacity = (CAPACITY * 40) as f64 * overload.min(1.0);
    Convergence { overload, accepted: accepted as f64 / capacity, sent: sent as f64 / accepted.max(1) as f64 }
}

impl Convergence {
    /// Checks that the backend is kept busy, and gets at most K times its capacity, within a twentieth.
    fn check(&self) -> Check {
        let busy = self.accepted > 0.95 && self.accepted <= 1.001;
        let spared = self.sent <= K * 1.05 && (self.overload > 1.0 || self.sent < 1.05);
        if busy && spared { Ok(()) } else { Err(format!("does not converge: {self:?}")) }
    }
}

/// Checks that, of calls to a backend that accepts none, all ordinary ones are shed in the end, half of those
/// with half protection, and no critical one.
fn check_priorities(throttle: &mut dyn Sheds) -> Check {
    let mut dice = Dice::new(3);
    let mut shed = [0_u32; 3];
    for call in 0..30_000_usize {
        let spared = [0, 500, 1_000][call % 3];
        shed[call % 3] += u32::from(!throttle.admit(spared, dice.roll() as u32, NOON));
    }
    match shed {
        [9_900..=10_000, 4_800..5_200, 0] => Ok(()),
        _ => Err(format!("of ten thousand calls of each criticality shed {shed:?}")),
    }
}

/// Checks that events are forgotten after two windows, and not before.
fn check_recovery(throttle: &mut dyn Sheds) -> Check {
    (0..1_000).for_each(|_| _ = throttle.admit(0, u32::MAX, NOON));
    let within = throttle.admit(0, 1 << 31, NOON + WINDOW + WINDOW / 2);
    let after = throttle.admit(0, 1, NOON + 2 * WINDOW + WINDOW);
    if !within && after {
        Ok(())
    } else {
        Err(format!("half a window later {within}, two windows later {after}"))
    }
}

throttlekit_conformance::bugs! {
    /// A bug of a throttle.
    pub enum Bug {
        ShedNotCounted: "Requests that are shed are not counted.",
        AcceptsTwice: "An accepted request counts twice.",
        NoMultiple: "Accepted requests are not multiplied by K.",
        PriorityReversed: "Critical requests are shed first.",
        NeverForgets: "Earlier windows are never forgotten.",
        ForgetsAtTheBoundary: "The previous window is forgotten when a window begins.",
        TimeGoesBack: "A clock that steps back starts an earlier window.",
        ShedsAllOrNone: "Every request is shed as soon as any is.",
    }
}

/// The formula in floats, with one bug.
struct Seeded {
    bug: Bug,
    latest: Timestamp,
    /// Requests and accepts, of this window and of the one before.
    current: [f64; 2],
    previous: [f64; 2],
}

impl Seeded {
    fn new(bug: Bug) -> Self {
        Self { bug, latest: Timestamp::EPOCH, current: [0.0; 2], previous: [0.0; 2] }
    }

    fn go_on(&mut self, now: Timestamp) {
        let window = |at: Timestamp| at.as_nanos() / WINDOW.as_nanos() as u64;
        let (was, is) = (window(self.latest), window(now));
        if is > was || (is < was && self.bug == Bug::TimeGoesBack) {
            let keep = is == was + 1 && self.bug != Bug::ForgetsAtTheBoundary;
            let all = [self.current[0] + self.previous[0], self.current[1] + self.previous[1]];
            self.previous = match self.bug {
                Bug::NeverForgets => all,
                _ if keep => self.current,
                _ => [0.0; 2],
            };
            self.current = [0.0; 2];
        }
        self.latest = if self.bug == Bug::TimeGoesBack { now } else { self.latest.max(now) };
    }

    fn blended(&self, which: usize) -> f64 {
        let length = WINDOW.as_nanos() as u64;
        let part = 1.0 - (self.latest.as_nanos() % length) as f64 / length as f64;
        let part = if self.bug == Bug::NeverForgets { 1.0 } else { part };
        self.current[which] + self.previous[which] * part
    }
}

impl Sheds for Seeded {
    fn admit(&mut self, spared: u32, dice: u32, now: Timestamp) -> bool {
        self.go_on(now);
        let (requests, accepts) = (self.blended(0), self.blended(1));
        let accepts = if self.bug == Bug::NoMultiple { accepts / K } else { accepts };
        let spared = if self.bug == Bug::PriorityReversed { 1_000 - spared } else { spared };
        let mut shed = formula(requests, accepts) * f64::from(1_000 - spared) / 1_000.0;
        if self.bug == Bug::ShedsAllOrNone && shed > 0.0 {
            shed = 1.0;
        }
        let admitted = f64::from(dice) / 2f64.powi(32) >= shed;
        if admitted || self.bug != Bug::ShedNotCounted {
            self.current[0] += 1.0;
        }
        admitted
    }

    fn accept(&mut self, now: Timestamp) {
        self.go_on(now);
        self.current[1] += if self.bug == Bug::AcceptsTwice { 2.0 } else { 1.0 };
    }
}
