//! The gradient rule: the best ceiling is the throughput times the no-load latency.

use super::round::{Seen, Wish};

/// A dip goes down to this part of the best, so that nothing queues for a round and the no-load latency shows.
const DIP: f64 = 0.91;
const DIP_MOST: f64 = 0.75;
/// A dip that surely shows the throughput is still the same goes further down by this, so often.
const DEEPER: f64 = 0.8;
const DEEPER_MAX: u32 = 4;
/// One move divides by no more than this: latency may have risen for another reason.
const CUT_MAX: f64 = 0.5;
/// Rounds above the best between two dips.
const HOLDS: u32 = 4;
/// A move that is smaller, in logarithms, is not worth the calls that must pass after it.
const STAY: f64 = 0.04;
/// How it grows while nothing queues, round after round: when that is sure, when it seems so, and at the start.
const SURE: [f64; 3] = [1.15, 1.5, 1.25];
const SEEMS: [f64; 3] = [1.06, 1.2, 1.5];
const START: f64 = 1.5;
/// Which part of the headroom must be seen as a queue to be one.
const QUEUE: f64 = 0.6;
/// In noise that hides a queue of the headroom's size, dips tell by what they cost: over so many of them, how much
/// of what they can is all and how much is none, how it grows if it was all, and what is thought before the first.
const LOST_DIPS: f64 = 3.0;
const LOST_ALL: f64 = 0.9;
const LOST_NONE: f64 = 0.2;
const LOST_GROWTH: f64 = 1.2;
const LOST_FIRST: f64 = 0.5;
/// Fewer drops than this are no sign of load: every backend fails now and then.
const DROPS_TOLERATED: f64 = 0.05;

/// Holds the ceiling a little above the best, where throughput is all there is, and dips a little below it every few
/// rounds, where latency is the no-load latency. Their product is the best ceiling, by Little's law.
///
/// In a fixed point with the no-load latency alone, a ceiling that is always above the best takes the queue for
/// load-free and runs away; the dips are why this one does not. Both are averaged over as many rounds as their
/// noise demands, in logarithms, so that noise pushes neither up nor down. What strays further than noise can is a
/// step, and is put to the test before it is believed: never down twice without having seen that it helped.
#[derive(Clone, Debug)]
pub(super) struct Gradient {
    headroom: f64,
    phase: Phase,
    /// Rounds held since the last dip, and rounds grown in a row.
    held: u32,
    grown: usize,
    /// From which level and latency it grew last.
    grew: Option<(f64, f64)>,
    starting: bool,
    /// Of the ceiling over the latency.
    throughput: Mean,
    alone: Mean,
    noise: Noise,
    /// Which part of the throughput that a dip could cost it did cost, over the last dips: all of it if nothing
    /// queued before either.
    lost: f64,
}

// Hold => Hold | Dip | Doubt; Dip => Hold; Doubt => Hold | Cut; Cut => Hold.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Hold,
    /// A little below the best, as a routine, from this level.
    Dip { from: f64, deeper: u32 },
    /// Half the way down since latency rose at this level.
    Doubt { from: f64 },
    /// Down to what may be the new best, from where latency was this, and before that from `back`.
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

    /// Goes on from a limit that was led to where it is.
    pub(super) fn resumed(headroom: f64) -> Self {
        Self { starting: false, ..Self::new(headroom) }
    }

    /// Whether the limit is still on its way up for the first time.
    pub(super) fn is_starting(&self) -> bool {
        self.starting
    }

    /// How long work takes without a queue, in nanoseconds, as far as that is known.
    pub(super) fn alone(&self) -> Option<f64> {
        (self.alone.rounds > 0.0).then(|| libm::exp(self.alone.at))
    }

    /// Forgets how long work takes without a queue, and dips next to see.
    pub(super) fn recalibrate(&mut self) {
        self.held = HOLDS;
        self.alone.rounds = self.alone.rounds.min(1.0);
    }

    /// Where to go from this limit.
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

    /// What to look for next: roughly for which reason latency rose, or whether it does.
    pub(super) fn wish(&self) -> Wish {
        let brief = matches!(self.phase, Phase::Doubt { .. } | Phase::Cut { .. });
        let known = !self.starting && !brief && self.grew.is_none() && self.alone.rounds > 0.0;
        let usual =
            known.then(|| (libm::exp(self.alone.at + self.headroom), libm::sqrt(self.noise.variance)));
        Wish { brief, usual }
    }

    /// Drops say that there is too much, and nothing of how long work takes.
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
        // Faster than ever is no room for more, but maybe the beginning of faster work.
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
            // What it grew from was seen a round ago, and not to be too much.
            return to.max(level).min(limit);
        }
        if to < 0.8 * limit {
            // Less than the noise shows cannot be verified, and so is taken in small steps.
            let shows = libm::log(limit / to) > PROVES * look.error;
            return if shows { self.cut_to_best(look, limit) } else { DIP * limit };
        }
        if libm::log(to / limit).abs() < STAY { limit } else { to }
    }

    /// By how much to grow, if nothing queues although the ceiling should be above the best.
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

    /// What a dip showed: the no-load latency, if nothing has changed.
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

    /// Throughput fell. Goes half of the way down that would undo it: a queue shrinks by as much, a moment passes.
    fn doubt(&mut self, look: Look, usual: f64, lately: f64) -> f64 {
        self.phase = Phase::Doubt { from: look.level };
        self.starting = false;
        self.grew = None;
        self.grown = 0;
        self.held = 0;
        let half = libm::exp((usual - look.latency.max(lately)) / 2.0);
        look.level * half.clamp(CUT_MAX, DIP)
    }

    /// If latency is what it was without a queue, that was but a moment. Else there is a queue, or work is slower: goes
    /// where there would be no queue, to see.
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

    /// The more doubt there is, the higher: too much in flight costs some latency, too little is work not done.
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
/// How many times the error a move must be for its effect to show in one round, and to prove that work itself has
/// become slower: where calls share a backend, long ones from before a move end well after it.
const SHOWS: f64 = 4.0;
const PROVES: f64 = 6.0;
/// What differs by less is no step, however exact the means are.
const STEP_MIN: f64 = 0.03;

/// How much rounds differ from each other: more than calls do within one where all calls of a while are slow.
#[derive(Clone, Copy, Debug, Default)]
struct Noise {
    variance: f64,
}

/// How much of the newest round enters it, and how many times the error one round may at most say.
const NOISE_GAIN: f64 = 0.15;
const NOISE_MOST: f64 = 3.0;

impl Noise {
    fn with(self, error: f64) -> f64 {
        error.max(libm::sqrt(self.variance))
    }

    /// A step must not make the next rounds blind.
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

    /// Whether a value lies further away than three standard errors of the difference.
    fn strays(&self, value: f64, error: f64) -> bool {
        let noise = 3.0 * error * libm::sqrt(1.0 + 1.0 / self.rounds.max(1.0));
        self.rounds > 0.0 && (value - self.at).abs() > STEP_MIN + noise
    }
}
