//! One look at the backend: the mean latency of calls that all met the same ceiling.

use super::Sample;
use crate::time::nanos;

/// Fewer than this many say nothing of how latencies vary.
const BATCH_MIN: u32 = 8;
/// More than this many are never waited for.
const BATCH_MAX: u32 = 256;
/// How exact a mean should be: its standard error as a part of it.
const ERROR_AIM: f64 = 0.025;
/// How much of the newest batch enters the running idea of how latencies vary.
const SPREAD_GAIN: f64 = 0.25;

/// Gathers completions after a change of the ceiling.
///
/// What was admitted before the change still met the old one, so as many completions as were in flight pass by first.
/// Then a batch is averaged: the more latencies vary, the longer it is, so that noise is not taken for a queue.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Completions to let pass.
    passing: u32,
    /// In flight on this node when the last call that was done was let in.
    in_flight: u32,
    /// The squared deviation of latencies as a part of their squared mean, over the last batches.
    spread: f64,
    whole: Batch,
    part: Batch,
    tail: u32,
    leaving: Batch,
}

#[derive(Clone, Debug, Default)]
struct Batch {
    done: u32,
    dropped: u32,
    under_used: u32,
    used: f64,
    sum: f64,
    squares: f64,
}

/// What a round has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The mean latency in nanoseconds, if any call was done.
    pub(super) latency: Option<f64>,
    /// The mean latency of the last that met the level before.
    pub(super) before: Option<f64>,
    /// The standard error of that as a part of it.
    pub(super) error: f64,
    /// Which part of what was allowed was in flight.
    pub(super) used: f64,
    /// Which part of the calls was dropped.
    pub(super) dropped: f64,
    /// Whether most calls met less than half of what was allowed.
    pub(super) under_used: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self {
            passing: 0,
            in_flight: 0,
            spread: 0.1,
            whole: Batch::default(),
            part: Batch::default(),
            tail: 0,
            leaving: Batch::default(),
        }
    }
}

impl Round {
    /// Lets pass what met the old ceiling, which the new one is so many times.
    pub(super) fn restart(&mut self, times: f64) {
        self.passing = (f64::from(self.in_flight) * times.max(1.0)) as u32;
        self.tail = (self.passing / 4).max(8);
        self.leaving = Batch::default();
        self.whole = Batch::default();
        self.part = Batch::default();
    }

    /// A call was done. What the round has seen, if this ends it.
    pub(super) fn success(&mut self, sample: Sample) -> Option<Seen> {
        self.in_flight = sample.in_flight;
        if self.passes() {
            if self.passing < self.tail {
                self.leaving.add(sample);
            }
            return None;
        }
        self.part.add(sample);
        self.close()
    }

    /// A call was dropped.
    pub(super) fn dropped(&mut self) -> Option<Seen> {
        if self.passes() {
            return None;
        }
        self.part.dropped += 1;
        self.close()
    }

    fn passes(&mut self) -> bool {
        let passes = self.passing > 0;
        self.passing = self.passing.saturating_sub(1);
        passes
    }

    fn close(&mut self) -> Option<Seen> {
        if self.part.calls() < BATCH_MIN.max(self.in_flight / 4) {
            return None;
        }
        self.whole.join(&self.part);
        self.part = Batch::default();
        let spread = self.whole.spread().max(self.spread);
        let aim = ((spread / (ERROR_AIM * ERROR_AIM)) as u32).min(32.max(self.in_flight / 2));
        if self.whole.calls() < aim.min(BATCH_MAX) {
            return None;
        }
        let mut seen = self.whole.seen(spread);
        seen.before = (self.leaving.done >= 4).then(|| self.leaving.mean());
        self.leaving = Batch::default();
        self.spread += (self.whole.spread() - self.spread) * SPREAD_GAIN;
        self.whole = Batch::default();
        Some(seen)
    }
}

impl Batch {
    fn add(&mut self, sample: Sample) {
        let latency = nanos(sample.latency) as f64;
        self.done += 1;
        self.sum += latency;
        self.squares += latency * latency;
        self.used += f64::from(sample.in_flight) / f64::from(sample.allowed.max(1));
        self.under_used += u32::from(2 * u64::from(sample.in_flight) < u64::from(sample.allowed));
    }

    fn calls(&self) -> u32 {
        self.done + self.dropped
    }

    fn join(&mut self, other: &Self) {
        self.done += other.done;
        self.dropped += other.dropped;
        self.under_used += other.under_used;
        self.used += other.used;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.done)
    }

    fn spread(&self) -> f64 {
        if self.done < 2 {
            return 0.0;
        }
        let mean = self.mean();
        (self.squares / f64::from(self.done) / (mean * mean) - 1.0).max(0.0)
    }

    fn seen(&self, spread: f64) -> Seen {
        let done = f64::from(self.done.max(1));
        Seen {
            latency: (self.done > 0).then(|| self.mean()),
            before: None,
            error: libm::sqrt(spread / done),
            used: if self.done > 0 { (self.used / done).min(1.0) } else { 1.0 },
            dropped: f64::from(self.dropped) / f64::from(self.done + self.dropped),
            under_used: 2 * self.under_used > self.done,
        }
    }
}
