//! One measurement of the backend: the mean latency of calls that all met the same ceiling.

use super::Sample;
use super::raised::Raised;
use crate::time::nanos;

/// Smallest number of calls that shows how latencies vary.
const BATCH_MIN: u32 = 8;
/// Largest number of calls, or half of what is in flight, that is waited for: the remaining noise is averaged over
/// rounds.
const BATCH_ENOUGH: u32 = 40;
/// Target precision of a mean: its standard error as a fraction of it.
const ERROR_AIM: f64 = 0.03;
/// Gain of the newest batch in the running estimate of how latencies vary.
const SPREAD_GAIN: f64 = 0.25;
/// Approximate number of calls in the recent mean latency: this many, or this fraction of those in flight.
const LATELY_MIN: f64 = 8.0;
const LATELY_PART: f64 = 1.0 / 3.0;
/// Largest multiple of the recent latency that a call counts for: one that hangs is no step.
const LATELY_MOST: f64 = 3.0;
/// Distance, in logarithms, of the recent latency from the mean of a batch during which something changed, beyond three
/// times its error; and above the usual latency to end the batch at once.
const APART: f64 = 0.08;
const ALARM: f64 = 0.3;
/// Initial value of that estimate, and its minimum: no backend is as steady as it looks for a moment.
const SPREAD_FIRST: f64 = 0.1;
const SPREAD_MIN: f64 = 0.000_5;

/// Gathers completions after a change of the ceiling.
///
/// Work that was admitted before the change met the old ceiling, so as many completions as were in flight are skipped
/// first; acting on them would be acting on the same information again and again. Then a batch is averaged, the longer
/// the more latencies vary: one sample far below the mean must not become the no-load latency.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Completions to skip.
    passing: u32,
    /// Calls in flight on this node when the last completed call was admitted.
    in_flight: u32,
    /// The limit under which that call was admitted.
    allowed: u32,
    raised: Raised,
    /// The squared deviation of latencies as a part of their squared mean, over the last batches.
    spread: f64,
    lately: f64,
    /// A short round only needs a fraction of those in flight.
    brief: bool,
    /// The usual latency, in nanoseconds, and how far rounds deviate from it.
    usual: Option<(f64, f64)>,
    batch: Batch,
}

/// Focus of the next round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    /// A coarse look is enough.
    pub(super) brief: bool,
    /// The usual latency, in nanoseconds, and how far rounds deviate from it in logarithms: a much larger deviation
    /// ends the round at once.
    pub(super) usual: Option<(f64, f64)>,
}

/// Result of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The mean latency in nanoseconds, if any call was done.
    pub(super) latency: Option<f64>,
    /// The standard error of that as a part of it.
    pub(super) error: f64,
    /// The latency of the last few calls, to see the effect of a step in the middle of the batch.
    pub(super) lately: f64,
    /// `true` if something changed in the middle of the batch, so that its mean is neither that before nor that after.
    pub(super) mixed: bool,
    /// `true` if it was cut short since latency is far above the usual.
    pub(super) alarm: bool,
    /// Largest fraction of the limit that was in flight.
    pub(super) used: f64,
    /// Fraction of the calls that was dropped.
    pub(super) dropped: f64,
    /// Number of dropped calls.
    pub(super) drops: u32,
    /// `true` if all calls met less than half of the limit.
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

    /// Restarts after the ceiling was multiplied by `times`. Calls that met the same ceiling need not be skipped.
    pub(super) fn restart(&mut self, times: f64, wish: Wish) {
        self.passing = if times == 1.0 { 0 } else { (f64::from(self.in_flight) * times.max(1.0)) as u32 };
        self.raised = Raised::moved(times, self.allowed, self.in_flight);
        // Only completed calls report how many are in flight. Without any, no more are than may be.
        self.in_flight = (f64::from(self.in_flight) * times.min(1.0)) as u32;
        self.brief = wish.brief;
        self.usual = wish.usual;
        self.batch = Batch::default();
    }

    /// Records a successful call. Returns the result of the round, if this ends it.
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

    /// Returns the random deviation of the recent latency.
    fn lately_error(&self) -> f64 {
        libm::sqrt(self.spread / (2.0 * self.lately_of()))
    }

    fn alarmed(&self) -> bool {
        self.usual.is_some_and(|(usual, noise)| {
            let doubt = 3.0 * noise.max(self.lately_error());
            self.lately > usual * libm::exp(ALARM + doubt)
        })
    }

    /// Records a dropped call. Returns the result of the round, if this ends it.
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
        // One batch across a step varies without bound, and must not desensitize the next ones.
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
        // The maximum, not the mean: where work ends in waves, the first call admitted meets an empty backend, and is
        // soon one of many.
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
