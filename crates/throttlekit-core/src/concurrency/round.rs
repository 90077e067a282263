//! One look at the backend: the mean latency of calls that all met the same ceiling.

use super::Sample;
use super::raised::Raised;
use crate::time::nanos;

/// Fewer calls than this say nothing of how latencies vary.
const BATCH_MIN: u32 = 8;
/// More calls than this, or half of what is in flight, are never waited for: what is left of the noise is averaged
/// over rounds.
const BATCH_ENOUGH: u32 = 40;
/// How exact a mean should be: its standard error as a part of it.
const ERROR_AIM: f64 = 0.03;
/// How much of the newest batch enters the running idea of how latencies vary.
const SPREAD_GAIN: f64 = 0.25;
/// Of how many calls the latency of now is the mean, more or less: of so many, or of this part of those in flight.
const LATELY_MIN: f64 = 8.0;
const LATELY_PART: f64 = 1.0 / 3.0;
/// A call says at most this many times the latency of now: one that hangs is no step.
const LATELY_MOST: f64 = 3.0;
/// By how much, in logarithms, the latency of now lies off the mean of a batch that something happened in, beyond
/// three times its error; and above what is usual to end the batch at once.
const APART: f64 = 0.08;
const ALARM: f64 = 0.3;
/// What that idea begins with, and its least: no backend is as steady as it looks for a moment.
const SPREAD_FIRST: f64 = 0.1;
const SPREAD_MIN: f64 = 0.000_5;

/// Gathers completions after a change of the ceiling.
///
/// What was let in before the change met the old ceiling, so as many completions as were in flight pass by first; to
/// act on them would be to act on the same news again and again. Then a batch is averaged, the longer the more
/// latencies vary: one sample far below the mean must not become the no-load latency.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Completions to let pass.
    passing: u32,
    /// In flight on this node when the call was let in that was done last.
    in_flight: u32,
    /// The limit under which that call was admitted.
    allowed: u32,
    raised: Raised,
    /// The squared deviation of latencies as a part of their squared mean, over the last batches.
    spread: f64,
    lately: f64,
    /// Who asks for less is content with a part of those in flight.
    brief: bool,
    /// The latency that is usual, in nanoseconds, and how far rounds stray from it.
    usual: Option<(f64, f64)>,
    batch: Batch,
}

/// What to look for in the next round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    /// A coarse look is enough.
    pub(super) brief: bool,
    /// The latency that is usual, in nanoseconds, and how far rounds stray from it in logarithms: much more ends the
    /// round at once.
    pub(super) usual: Option<(f64, f64)>,
}

/// What a round has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The mean latency in nanoseconds, if any call was done.
    pub(super) latency: Option<f64>,
    /// The standard error of that as a part of it.
    pub(super) error: f64,
    /// The latency of the last few calls, for who must know what came of a step in the middle of the batch.
    pub(super) lately: f64,
    /// Whether something happened in the middle of the batch, so that its mean is neither of before nor of after.
    pub(super) mixed: bool,
    /// Whether it was cut short since latency is far above what is usual.
    pub(super) alarm: bool,
    /// Which part of what was allowed was in flight, at most.
    pub(super) used: f64,
    /// Which part of the calls was dropped.
    pub(super) dropped: f64,
    /// How many that was.
    pub(super) drops: u32,
    /// Whether all calls met less than half of what was allowed.
    pub(super) under_used: bool,
}

impl Round {
    pub(super) fn new() -> Self {
        Self {
            passing: 0,
            in_flight: 0,
            allowed: 0,
            raised: Raised::default(),
            spread: SPREAD_FIRST,
            lately: 0.0,
            brief: false,
            usual: None,
            batch: Batch::default(),
        }
    }

    /// Begins anew after the ceiling was multiplied by `times`. What met the same ceiling need not pass.
    pub(super) fn restart(&mut self, times: f64, wish: Wish) {
        self.passing = if times == 1.0 { 0 } else { (f64::from(self.in_flight) * times.max(1.0)) as u32 };
        self.raised = Raised::moved(times, self.allowed, self.in_flight);
        // Only calls that are done say how many are in flight. Where none is any more, no more are than may be.
        self.in_flight = (f64::from(self.in_flight) * times.min(1.0)) as u32;
        self.brief = wish.brief;
        self.usual = wish.usual;
        self.batch = Batch::default();
    }

    /// A call was done. What the round has seen, if this ends it.
    pub(super) fn success(&mut self, sample: Sample) -> Option<Seen> {
        self.in_flight = sample.in_flight;
        self.allowed = sample.allowed;
        self.follow(nanos(sample.latency) as f64);
        let met = self.raised.is_met(sample.allowed);
        if self.passing == 0 && met {
            self.batch.add(sample);
            return self.close();
        }
        self.passing = self.passing.saturating_sub(1);
        if self.alarmed() {
            self.batch.add(sample);
            return Some(self.alarm());
        }
        None
    }

    fn follow(&mut self, latency: f64) {
        if self.lately == 0.0 {
            self.lately = latency;
        }
        self.lately += (latency.min(LATELY_MOST * self.lately) - self.lately) / self.lately_of();
    }

    fn lately_of(&self) -> f64 {
        LATELY_MIN.max(f64::from(self.in_flight) * LATELY_PART)
    }

    /// By how much the latency of now may stray by chance.
    fn lately_error(&self) -> f64 {
        libm::sqrt(self.spread / (2.0 * self.lately_of()))
    }

    fn alarmed(&self) -> bool {
        self.usual.is_some_and(|(usual, noise)| {
            let doubt = 3.0 * noise.max(self.lately_error());
            self.lately > usual * libm::exp(ALARM + doubt)
        })
    }

    /// A call was dropped. What the round has seen, if this ends it.
    pub(super) fn dropped(&mut self) -> Option<Seen> {
        if self.passing == 0 {
            self.batch.dropped += 1;
            return self.close();
        }
        self.passing -= 1;
        None
    }

    fn close(&mut self) -> Option<Seen> {
        if self.alarmed() {
            return Some(self.alarm());
        }
        let calls = self.batch.done + self.batch.dropped;
        // Calls that came in one burst leave in one: of a small part of them all may have waited, or none.
        let part = if self.brief { self.in_flight / 4 } else { self.in_flight - self.in_flight / 3 };
        if calls < BATCH_MIN.max(part) {
            return None;
        }
        // One batch across a step varies without bound, and must not make the next ones blind.
        let varies = self.batch.spread().clamp(SPREAD_MIN, 2.0 * self.spread);
        let spread = self.spread.max(varies);
        let wanted = spread / (ERROR_AIM * ERROR_AIM);
        if f64::from(calls) < wanted && calls < BATCH_ENOUGH {
            return None;
        }
        self.spread += (varies - self.spread) * SPREAD_GAIN;
        Some(self.end(spread))
    }

    fn end(&mut self, spread: f64) -> Seen {
        let mut seen = self.batch.seen(spread, self.lately);
        let apart = seen.latency.map_or(0.0, |mean| libm::log(self.lately / mean).abs());
        seen.mixed = apart > APART + 3.0 * self.lately_error();
        self.batch = Batch::default();
        seen
    }

    fn alarm(&mut self) -> Seen {
        let seen = self.end(self.spread);
        Seen { latency: Some(self.lately), alarm: true, ..seen }
    }
}

/// Sums over calls.
#[derive(Clone, Debug, Default)]
struct Batch {
    done: u32,
    dropped: u32,
    used: f64,
    latency: f64,
    squares: f64,
}

impl Batch {
    fn add(&mut self, sample: Sample) {
        let latency = nanos(sample.latency) as f64;
        self.done += 1;
        self.latency += latency;
        self.squares += latency * latency;
        // The most, not the mean: where work ends in waves, whoever is let in first meets an empty backend, and is soon
        // one of many.
        self.used = self.used.max(f64::from(sample.in_flight) / f64::from(sample.allowed.max(1)));
    }

    fn mean(&self) -> f64 {
        self.latency / f64::from(self.done)
    }

    fn spread(&self) -> f64 {
        if self.done < 2 {
            return 0.0;
        }
        let mean = self.mean();
        (self.squares / f64::from(self.done) / (mean * mean) - 1.0).max(0.0)
    }

    fn seen(&self, spread: f64, lately: f64) -> Seen {
        let done = f64::from(self.done.max(1));
        Seen {
            latency: (self.done > 0).then(|| self.mean()),
            error: libm::sqrt(spread / done),
            lately,
            mixed: false,
            alarm: false,
            used: if self.done > 0 { self.used.min(1.0) } else { 1.0 },
            dropped: f64::from(self.dropped) / f64::from(self.done + self.dropped),
            drops: self.dropped,
            under_used: self.done > 0 && self.used < 0.5,
        }
    }
}
