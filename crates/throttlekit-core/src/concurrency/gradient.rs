//! The gradient rule: the best ceiling is the throughput times the no-load latency.

use super::round::Seen;
use super::windowed_min::WindowedMin;

/// A dip goes down to this part of the best, so that nothing queues for a round and the no-load latency shows.
const DIP: f64 = 0.91;
/// A dip that shows the throughput is still the same goes further down by this.
const DEEPER: f64 = 0.8;
/// One move divides by no more than this: latency may have risen for another reason.
const CUT_MAX: f64 = 0.5;
/// How often in a row a dip goes deeper.
const DIPS_MAX: u32 = 8;
/// Rounds above the best between two dips.
const HOLDS: u32 = 3;
/// The no-load latency is the least of what this many dips showed.
const WINDOW: usize = 4;
/// How it grows while nothing queues, round after round: when that is sure, when it seems so, and at the start.
const SURE: [f64; 2] = [1.15, 1.5];
const SEEMS: [f64; 3] = [1.06, 1.2, 1.5];
const START: f64 = 1.5;
/// Which part of the headroom must be seen as a queue to be one.
const QUEUE: f64 = 0.6;

/// Holds the ceiling a little above the best, where throughput is all there is, and dips a little below it every few
/// rounds, where latency is the no-load latency. Their product is the best ceiling, by Little's law.
///
/// In a fixed point with the no-load latency alone, a ceiling that is always above the best takes the queue for
/// load-free and runs away; the dips are why this one does not. Both are averaged over as many rounds as their
/// noise demands, in logarithms, so that noise pushes neither up nor down. What strays further than noise can is a
/// step, and replaces the average.
#[derive(Clone, Debug)]
pub(super) struct Gradient {
    headroom: f64,
    phase: Phase,
    /// Rounds held since the last dip, and rounds grown in a row.
    held: u32,
    grown: usize,
    starting: bool,
    /// Of the ceiling over the latency.
    throughput: Mean,
    alone: Mean,
    no_load: WindowedMin<WINDOW>,
}

// Hold => Dip | Hold; Dip => Dip | Hold.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Hold,
    /// Below the best, from this level; because throughput fell, or as a routine.
    Dip { from: f64, alarm: bool, depth: u32 },
}

/// A round in logarithms.
#[derive(Clone, Copy)]
struct Look {
    level: f64,
    latency: f64,
    throughput: f64,
    error: f64,
}

impl Gradient {
    pub(super) fn new(headroom: f64) -> Self {
        Self {
            headroom,
            phase: Phase::Hold,
            held: 0,
            grown: 0,
            starting: true,
            throughput: Mean::default(),
            alone: Mean::default(),
            no_load: WindowedMin::new(),
        }
    }

    /// Forgets how long work takes without a queue, and dips next to see.
    pub(super) fn recalibrate(&mut self) {
        self.held = HOLDS;
        self.alone.rounds = self.alone.rounds.min(1.0);
        self.no_load.clear();
    }

    /// Where to go from this limit.
    pub(super) fn next(&mut self, limit: f64, at_least: bool, seen: Seen) -> f64 {
        let phase = core::mem::take(&mut self.phase);
        let Some(latency) = seen.latency else { return limit * CUT_MAX };
        if seen.under_used {
            return limit;
        }
        let level = (limit * seen.used).max(1.0);
        if seen.dropped > 0.0 {
            return self.back_off(level, seen.dropped);
        }
        let (log, throughput) = (libm::log(latency), libm::log(level / latency));
        let look = Look { level, latency: log, throughput, error: seen.error.max(ERROR_MIN) };
        if self.alone.rounds == 0.0 {
            self.renew(look);
        }
        match phase {
            Phase::Hold => self.hold(limit, look),
            Phase::Dip { from, alarm, depth } => {
                if alarm && let Some(before) = seen.before {
                    // A step in the middle of a round is only half seen; who left last saw all of it.
                    self.throughput.at = self.throughput.at.min(libm::log(from / before));
                }
                let deeper = (depth < DIPS_MAX && !at_least).then_some(depth + 1);
                self.dipped(look, from, alarm, deeper)
            }
        }
    }

    /// Drops say that there is too much, and nothing of how long work takes.
    fn back_off(&mut self, level: f64, dropped: f64) -> f64 {
        self.throughput.rounds = 0.0;
        self.starting = false;
        level * (0.9 * (1.0 - dropped)).max(CUT_MAX)
    }

    fn hold(&mut self, limit: f64, look: Look) -> f64 {
        let strays = self.throughput.strays(look.throughput, look.error);
        if look.latency < self.no_load() && self.alone.strays(look.latency, look.error) {
            self.renew(look);
            self.throughput.set(look.throughput);
            return self.dip(look.level, false, 0, DIP * look.level);
        }
        let fell = strays && look.throughput < self.throughput.at;
        self.throughput.take(look.throughput, look.error, strays);
        if fell {
            self.starting = false;
            return self.dip(look.level, true, 0, DIP * self.best());
        }
        if let Some(pace) = self.pace(look) {
            return (limit * pace).max(limit + 1.0);
        }
        self.starting = false;
        self.grown = 0;
        self.held += 1;
        if self.held > HOLDS {
            return self.dip(look.level, false, 0, DIP * self.best());
        }
        self.above_best()
    }

    /// By how much to grow, if nothing queues although the ceiling should be above the best.
    fn pace(&mut self, look: Look) -> Option<f64> {
        let queue = look.latency - self.no_load();
        let doubt = look.error * libm::sqrt(1.0 + 1.0 / self.alone.rounds);
        let sure = queue < (self.headroom / 2.0).min(self.headroom - 1.6 * doubt);
        let seems = libm::log(look.level / self.best()) < QUEUE * self.headroom;
        let free = if self.starting { queue < self.headroom + 2.0 * doubt } else { sure || seems };
        if !free {
            return None;
        }
        let pace = match (self.starting, sure) {
            (true, _) => START,
            (false, true) => SURE[self.grown.min(SURE.len() - 1)],
            (false, false) => SEEMS[self.grown.min(SEEMS.len() - 1)],
        };
        if self.starting || self.grown > 1 {
            self.learn(look);
        }
        self.throughput.rounds = 0.0;
        self.held = 0;
        self.grown += 1;
        Some(pace)
    }

    /// What a dip showed. Three things can have happened: nothing queues, and this is the no-load latency; throughput
    /// is what it was, so there still is a queue; or both have changed, and the next dip will tell.
    fn dipped(&mut self, look: Look, from: f64, alarm: bool, deeper: Option<u32>) -> f64 {
        let lost = self.throughput.at - look.throughput;
        let strays = self.alone.strays(look.latency, look.error);
        let slower = strays && look.latency > self.no_load();
        if lost < 0.0 && self.throughput.strays(look.throughput, look.error) {
            // Less in flight and more done: work has become faster, and the best is where it was.
            self.renew(look);
            self.throughput.rounds = 0.0;
            return from;
        }
        if let Some(depth) = deeper {
            if lost < 0.035 || (slower && alarm && lost < 0.14 + 2.0 * look.error) {
                return self.dip(look.level, alarm, depth, DEEPER * look.level);
            }
            if slower && !alarm {
                self.throughput.set(look.throughput);
                return self.dip(look.level, true, depth, DIP * self.best());
            }
        }
        if strays {
            self.renew(look);
        } else {
            self.learn(look);
        }
        self.above_best()
    }

    fn dip(&mut self, from: f64, alarm: bool, depth: u32, to: f64) -> f64 {
        self.phase = Phase::Dip { from, alarm, depth };
        self.held = 0;
        to.clamp(from * CUT_MAX, from * DIP)
    }

    fn best(&self) -> f64 {
        libm::exp(self.throughput.at + self.no_load())
    }

    fn above_best(&self) -> f64 {
        (1.0 + self.headroom) * self.best()
    }

    fn no_load(&self) -> f64 {
        self.no_load.min().unwrap_or(self.alone.at)
    }

    /// The mean plus its standard error enters the window: the least of several would else lie below the mean.
    fn learn(&mut self, look: Look) {
        self.alone.add(look.latency, look.error);
        self.no_load.push(self.alone.at + look.error / libm::sqrt(self.alone.rounds));
    }

    fn renew(&mut self, look: Look) {
        self.no_load.clear();
        self.alone = Mean::default();
        self.learn(look);
    }
}

/// No mean is more exact than this.
const ERROR_MIN: f64 = 0.01;
/// What differs by less is no step, however exact the means are.
const STEP_MIN: f64 = 0.03;

/// A mean of logarithms over the last rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    at: f64,
    rounds: f64,
}

impl Mean {
    /// The larger the error of one round, the more rounds are averaged.
    fn add(&mut self, value: f64, error: f64) {
        let most = (error * error / 0.000_8).clamp(4.0, 64.0);
        self.rounds = (self.rounds + 1.0).min(most);
        self.at += (value - self.at) / self.rounds;
    }

    fn set(&mut self, value: f64) {
        *self = Self { at: value, rounds: 1.0 };
    }

    fn take(&mut self, value: f64, error: f64, strays: bool) {
        if strays { self.set(value) } else { self.add(value, error) }
    }

    /// Whether a value lies further away than three standard errors of the difference.
    fn strays(&self, value: f64, error: f64) -> bool {
        let noise = 3.0 * error * libm::sqrt(1.0 + 1.0 / self.rounds.max(1.0));
        self.rounds > 0.0 && (value - self.at).abs() > STEP_MIN + noise
    }
}
