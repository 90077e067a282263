//! The gradient rule: the best ceiling is the throughput times the no-load latency.

use super::round::{Seen, Wish};

/// A dip goes down to this part of the best, so that nothing queues for a round and the no-load latency shows.
const DIP: f64 = 0.91;
const DIP_MOST: f64 = 0.75;
/// Factor by which a dip that surely shows unchanged throughput goes further down, and how often.
const DEEPER: f64 = 0.8;
const DEEPER_MAX: u32 = 4;
/// Largest cut of one move: latency may have risen for another reason.
const CUT_MAX: f64 = 0.5;
/// Rounds above the best between two dips.
const HOLDS: u32 = 4;
/// A move that is smaller, in logarithms, is not made: it would cost the calls that must pass after it.
const STAY: f64 = 0.04;
/// Growth factors while nothing queues, round after round: when that is sure, when it seems so, and at the start.
const SURE: [f64; 3] = [1.15, 1.5, 1.25];
const SEEMS: [f64; 3] = [1.06, 1.2, 1.5];
const START: f64 = 1.5;
/// Fraction of the headroom that must appear as a queue to count as one.
const QUEUE: f64 = 0.6;
/// In noise that hides a queue of the headroom's size, dips are judged by their cost: averaged over this many, which
/// fraction of the possible cost is all and which is none, the growth factor if it was all, and the initial value.
const LOST_DIPS: f64 = 3.0;
const LOST_ALL: f64 = 0.9;
const LOST_NONE: f64 = 0.2;
const LOST_GROWTH: f64 = 1.2;
const LOST_FIRST: f64 = 0.5;
/// Fewer drops than this are no sign of load: every backend fails now and then.
const DROPS_TOLERATED: f64 = 0.05;

/// Holds the ceiling a little above the best, where throughput is at its maximum, and dips a little below it every few
/// rounds, where latency is the no-load latency. Their product is the best ceiling, by Little's law.
///
/// In a fixed point with the no-load latency alone, a ceiling that is always above the best takes the queue for
/// load-free and runs away; the dips prevent this. Both are averaged over as many rounds as their noise demands, in
/// logarithms, so that noise pushes neither up nor down. A deviation beyond noise is a step, and is tested before it is
/// accepted: never down twice without having seen that it helped.
#[derive(Clone, Debug)]
pub(super) struct Gradient {
    headroom: f64,
    phase: Phase,
    /// Rounds held since the last dip, and rounds grown in a row.
    held: u32,
    grown: usize,
    /// The level and latency from which it grew last.
    grew: Option<(f64, f64)>,
    starting: bool,
    /// Mean of the ceiling over the latency.
    throughput: Mean,
    alone: Mean,
    noise: Noise,
    /// Fraction of the possible throughput cost of a dip that it did cost, over the last dips: all of it if nothing
    /// queued before either.
    lost: f64,
}

// Hold => Hold | Dip | Doubt; Dip => Hold; Doubt => Hold | Cut; Cut => Hold.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Hold,
    /// A little below the best, at regular intervals, from this level.
    Dip { from: f64, deeper: u32 },
    /// Halfway down after latency rose at this level.
    Doubt { from: f64 },
    /// Down to a candidate for the new best, from where latency was this, and before that from `back`.
    Cut { back: f64, from: f64, latency: f64 },
}

/// A round in logarithms, but for the level.
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
            grew: None,
            starting: true,
            throughput: Mean::default(),
            alone: Mean::default(),
            noise: Noise::default(),
            lost: LOST_FIRST,
        }
    }

    /// Resumes from a limit that another rule has set.
    pub(super) fn resumed(headroom: f64) -> Self {
        Self { starting: false, ..Self::new(headroom) }
    }

    /// Checks whether the limit is still rising for the first time.
    pub(super) fn is_starting(&self) -> bool {
        self.starting
    }

    /// Returns the latency without a queue, in nanoseconds, if known.
    pub(super) fn alone(&self) -> Option<f64> {
        (self.alone.rounds > 0.0).then(|| libm::exp(self.alone.at))
    }

    /// Resets the latency without a queue, and dips next to measure it.
    pub(super) fn recalibrate(&mut self) {
        self.held = HOLDS;
        self.alone.rounds = self.alone.rounds.min(1.0);
    }

    /// Returns the next limit.
    pub(super) fn next(&mut self, limit: f64, seen: Seen) -> f64 {
        let phase = core::mem::take(&mut self.phase);
        let Some(latency) = seen.latency else { return limit * CUT_MAX };
        if seen.under_used {
            return limit;
        }
        let level = (limit * seen.used).max(1.0);
        if seen.dropped > DROPS_TOLERATED && seen.drops > 1 {
            return self.back_off(level, seen.dropped);
        }
        let (log, throughput) = (libm::log(latency), libm::log(level / latency));
        let error = self.noise.with(seen.error.max(ERROR_MIN));
        let look = Look { level, latency: log, throughput, error };
        if self.alone.rounds == 0.0 {
            self.alone.add(look.latency, look.error);
        }
        if seen.alarm {
            return self.doubt(look, self.alone.at, look.latency);
        }
        if seen.mixed && !matches!(phase, Phase::Hold) {
            self.phase = phase;
            return limit;
        }
        match phase {
            Phase::Hold => self.hold(limit, look, libm::log(seen.lately), seen.mixed),
            Phase::Dip { from, deeper } => self.dipped(look, from, deeper),
            Phase::Doubt { from } => self.doubted(look, from),
            Phase::Cut { back, from, latency } => self.cut(look, back, from, latency),
        }
    }

    /// Returns what to look for next: roughly why latency rose, or whether it does.
    pub(super) fn wish(&self) -> Wish {
        let brief = matches!(self.phase, Phase::Doubt { .. } | Phase::Cut { .. });
        let known = !self.starting && !brief && self.grew.is_none() && self.alone.rounds > 0.0;
        let usual =
            known.then(|| (libm::exp(self.alone.at + self.headroom), libm::sqrt(self.noise.variance)));
        Wish { brief, usual }
    }

    /// Reduces the limit after drops. They indicate overload, and nothing about latency.
    fn back_off(&mut self, level: f64, dropped: f64) -> f64 {
        self.throughput.rounds = 0.0;
        self.starting = false;
        level * (0.9 * (1.0 - dropped)).max(CUT_MAX)
    }

    fn hold(&mut self, limit: f64, look: Look, lately: f64, mixed: bool) -> f64 {
        let strays = self.throughput.strays(look.throughput, look.error);
        let rises = lately > look.latency;
        if mixed && !rises {
            return limit;
        }
        if look.latency < self.alone.at && self.alone.strays(look.latency, look.error) {
            self.renew(look);
            self.throughput.set(look.throughput);
            return self.dip(look.level, DEEPER * look.level);
        }
        if self.throughput.rounds > 0.0 {
            self.noise.take(look.throughput - self.throughput.at, look.error);
        }
        if strays && look.throughput < self.throughput.at {
            let usual = libm::log(look.level) - self.throughput.at;
            return self.doubt(look, usual, lately);
        }
        if mixed {
            return limit;
        }
        self.throughput.take(look.throughput, look.error, strays);
        // Faster than ever is no capacity for more, but maybe the beginning of faster work.
        if look.latency < self.alone.at - STEP_MIN - 1.5 * look.error {
            return limit;
        }
        let grew = self.grew;
        if let Some(pace) = self.pace(look) {
            return (limit * pace).max(limit + 1.0);
        }
        self.starting = false;
        self.grown = 0;
        self.held += 1;
        if self.held > HOLDS {
            return self.dip(look.level, self.below_best(look.error));
        }
        let to = self.above_best();
        if let Some((level, _)) = grew {
            // The level it grew from was measured a round ago, and was not too much.
            return to.max(level).min(limit);
        }
        if to < 0.8 * limit {
            // A move smaller than the noise cannot be verified, and so is taken in small steps.
            let shows = libm::log(limit / to) > PROVES * look.error;
            return if shows { self.cut_to_best(look, limit) } else { DIP * limit };
        }
        if libm::log(to / limit).abs() < STAY { limit } else { to }
    }

    /// Returns the growth factor, if nothing queues although the ceiling should be above the best.
    fn pace(&mut self, look: Look) -> Option<f64> {
        let queue = look.latency - self.alone.at;
        let doubt = look.error * libm::sqrt(1.0 + 1.0 / self.alone.rounds);
        let sure = queue < (self.headroom / 2.0).min(self.headroom - 1.6 * doubt);
        let seems = libm::log(look.level / self.best()) < QUEUE * self.headroom;
        let helped = self.grew.map(|(level, latency)| {
            let most = (libm::log(look.level / level) / 2.0).max(self.headroom / 2.0);
            look.latency - latency < if self.starting { most } else { most.min(self.headroom / 2.0 + doubt) }
        });
        let free = helped.unwrap_or(sure || seems || self.starting);
        if !free {
            self.grew = None;
            return None;
        }
        let pace = match (self.starting, sure) {
            (true, _) => START,
            (false, true) => SURE[self.grown.min(SURE.len() - 1)],
            (false, false) => SEEMS[self.grown.min(SEEMS.len() - 1)],
        };
        if queue < self.headroom && (self.starting || self.grown > 1) {
            self.alone.add(look.latency, look.error);
        }
        self.grew = Some((look.level, look.latency));
        self.throughput.rounds = 0.0;
        self.held = 0;
        self.grown += 1;
        Some(pace)
    }

    /// Evaluates a dip: it shows the no-load latency, if nothing has changed.
    fn dipped(&mut self, look: Look, from: f64, deeper: u32) -> f64 {
        let strays = self.alone.strays(look.latency, look.error);
        if look.throughput > self.throughput.at && self.throughput.strays(look.throughput, look.error) {
            // Less in flight and more done: work has become faster, and the best is where it was.
            self.renew(look);
            self.throughput.rounds = 0.0;
            return from;
        }
        let (went, lost) = (libm::log(from / look.level), self.throughput.at - look.throughput);
        if deeper == 0 {
            self.lost += (lost / went - self.lost) / LOST_DIPS;
        }
        let saturated = lost < went / 5.0 && (went > SHOWS * look.error || self.lost < LOST_NONE);
        if deeper < DEEPER_MAX && saturated {
            self.phase = Phase::Dip { from: look.level, deeper: deeper + 1 };
            return DEEPER * look.level;
        }
        if deeper == 0 && strays && look.latency > self.alone.at {
            return self.doubt(look, self.alone.at, look.latency);
        }
        self.alone.take(look.latency, look.error, strays || deeper > 0);
        if deeper > 0 {
            self.lost = LOST_FIRST;
        }
        if self.lost > LOST_ALL && look.error > self.headroom / 2.0 {
            self.lost = LOST_FIRST;
            return (LOST_GROWTH * from).max(self.above_best());
        }
        self.above_best()
    }

    fn dip(&mut self, from: f64, to: f64) -> f64 {
        self.phase = Phase::Dip { from, deeper: 0 };
        self.held = 0;
        to.clamp(from * CUT_MAX, from * DIP)
    }

    /// Handles lower throughput. Goes halfway down to what would undo it: a queue shrinks as much, a transient passes.
    fn doubt(&mut self, look: Look, usual: f64, lately: f64) -> f64 {
        self.phase = Phase::Doubt { from: look.level };
        self.starting = false;
        self.grew = None;
        self.grown = 0;
        self.held = 0;
        let half = libm::exp((usual - look.latency.max(lately)) / 2.0);
        look.level * half.clamp(CUT_MAX, DIP)
    }

    /// If latency is what it was without a queue, that was transient. Else there is a queue, or work is slower: goes to
    /// where there would be no queue, to test.
    fn doubted(&mut self, look: Look, from: f64) -> f64 {
        let went = libm::log(from / look.level);
        if look.latency - self.alone.at < (2.0 * look.error).max(went / 2.0) {
            return from;
        }
        self.throughput.set(look.throughput);
        self.cut_to_best(look, from)
    }

    /// Latency must have fallen as much as the ceiling, or there is less of a queue than it seemed, or none at all:
    /// then work is slower, and the ceiling goes back up.
    fn cut(&mut self, look: Look, back: f64, from: f64, latency: f64) -> f64 {
        let (went, fell) = (libm::log(from / look.level), latency - look.latency);
        let shows = went > PROVES * look.error;
        if !shows || look.latency - self.alone.at < self.headroom + (2.0 * look.error).max(went / 2.0) {
            return self.hold(look.level, look, look.latency, false);
        }
        if fell < went / 3.0 {
            self.renew(look);
            self.throughput.rounds = 0.0;
            return back;
        }
        if fell < 0.8 * went {
            self.renew(look);
            return self.above_best();
        }
        self.throughput.set(look.throughput);
        self.cut_to_best(look, back)
    }

    fn cut_to_best(&mut self, look: Look, back: f64) -> f64 {
        self.phase = Phase::Cut { back, from: look.level, latency: look.latency };
        self.above_best().clamp(look.level * CUT_MAX, look.level * DIP)
    }

    fn best(&self) -> f64 {
        libm::exp(self.throughput.at + self.alone.at)
    }

    /// The more uncertainty there is, the higher: too much in flight costs some latency, too little is work not done.
    fn above_best(&self) -> f64 {
        let doubt = libm::sqrt(self.noise.variance / self.alone.rounds.max(1.0));
        (1.0 + self.headroom + doubt.min(self.headroom / 2.0)) * self.best()
    }

    /// The larger the noise, the deeper, for the dip to show.
    fn below_best(&self, error: f64) -> f64 {
        self.best() * DIP.min(1.0 - 1.5 * error).max(DIP_MOST)
    }

    fn renew(&mut self, look: Look) {
        self.alone.set(look.latency);
    }
}

/// No mean is more exact than this.
const ERROR_MIN: f64 = 0.01;
/// A mean over more rounds than this is older than it is exact.
const ROUNDS_MOST: f64 = 16.0;
/// Multiples of the error that a move must be for its effect to show in one round, and to show that work itself has
/// become slower: where calls share a backend, long ones from before a move end well after it.
const SHOWS: f64 = 4.0;
const PROVES: f64 = 6.0;
/// A smaller difference is no step, however exact the means are.
const STEP_MIN: f64 = 0.03;

/// Variation between rounds: more than calls vary within one where all calls of a period are slow.
#[derive(Clone, Copy, Debug, Default)]
struct Noise {
    variance: f64,
}

/// Gain of the newest round, and the largest multiple of the error that one round may contribute.
const NOISE_GAIN: f64 = 0.15;
const NOISE_MOST: f64 = 3.0;

impl Noise {
    fn with(self, error: f64) -> f64 {
        error.max(libm::sqrt(self.variance))
    }

    /// Limits the effect of a step, so that the next rounds stay sensitive.
    fn take(&mut self, off: f64, error: f64) {
        let off = off.abs().min(NOISE_MOST * error);
        self.variance += (off * off - self.variance) * NOISE_GAIN;
    }
}

/// A mean of logarithms over the last rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    at: f64,
    rounds: f64,
}

impl Mean {
    /// The larger the error of one round, the more rounds are averaged.
    fn add(&mut self, value: f64, error: f64) {
        let most = (error * error / 0.000_8).clamp(4.0, ROUNDS_MOST);
        self.rounds = (self.rounds + 1.0).min(most);
        self.at += (value - self.at) / self.rounds;
    }

    fn set(&mut self, value: f64) {
        *self = Self { at: value, rounds: 1.0 };
    }

    fn take(&mut self, value: f64, error: f64, strays: bool) {
        if strays { self.set(value) } else { self.add(value, error) }
    }

    /// Checks whether a value lies further away than three standard errors of the difference.
    fn strays(&self, value: f64, error: f64) -> bool {
        let noise = 3.0 * error * libm::sqrt(1.0 + 1.0 / self.rounds.max(1.0));
        self.rounds > 0.0 && (value - self.at).abs() > STEP_MIN + noise
    }
}
