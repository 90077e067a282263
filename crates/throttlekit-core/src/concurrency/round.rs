//! One look at the backend: the mean latency of calls that all met the same ceiling.

use super::Sample;
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
    /// Completions to let pass, and the first of them that count as the last look at the old ceiling.
    passing: u32,
    last_look: u32,
    /// In flight on this node when the call was let in that was done last.
    in_flight: u32,
    /// The squared deviation of latencies as a part of their squared mean, over the last batches.
    spread: f64,
    leaving: Batch,
    batch: Batch,
}

/// What a round has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The mean latency in nanoseconds, if any call was done.
    pub(super) latency: Option<f64>,
    /// The standard error of that as a part of it.
    pub(super) error: f64,
    /// The mean latency of the last calls that met the ceiling before.
    pub(super) before: Option<f64>,
    /// Which part of what was allowed was in flight.
    pub(super) used: f64,
    /// Which part of the calls was dropped.
    pub(super) dropped: f64,
    /// Whether most calls met less than half of what was allowed.
    pub(super) under_used: bool,
}

impl Round {
    pub(super) fn new() -> Self {
        let (leaving, batch) = (Batch::default(), Batch::default());
        Self { passing: 0, last_look: 0, in_flight: 0, spread: SPREAD_FIRST, leaving, batch }
    }

    /// Begins anew after the ceiling was multiplied by `times`.
    pub(super) fn restart(&mut self, times: f64) {
        self.passing = (f64::from(self.in_flight) * times.max(1.0)) as u32;
        self.last_look = (self.passing / 4).max(BATCH_MIN);
        self.leaving = Batch::default();
        self.batch = Batch::default();
    }

    /// A call was done. What the round has seen, if this ends it.
    pub(super) fn success(&mut self, sample: Sample) -> Option<Seen> {
        self.in_flight = sample.in_flight;
        if self.passing == 0 {
            self.batch.add(sample);
            return self.close();
        }
        self.passing -= 1;
        if self.passing < self.last_look {
            self.leaving.add(sample);
        }
        None
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
        let calls = self.batch.done + self.batch.dropped;
        // Calls that came in one burst leave in one: of a small part of them all may have waited, or none.
        if calls < BATCH_MIN.max(self.in_flight - self.in_flight / 3) {
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
        let before = (self.leaving.done >= BATCH_MIN / 2).then(|| self.leaving.mean());
        let seen = self.batch.seen(spread, before);
        self.batch = Batch::default();
        self.leaving = Batch::default();
        Some(seen)
    }
}

/// Sums over calls.
#[derive(Clone, Debug, Default)]
struct Batch {
    done: u32,
    dropped: u32,
    under_used: u32,
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
        self.used += f64::from(sample.in_flight) / f64::from(sample.allowed.max(1));
        self.under_used += u32::from(2 * u64::from(sample.in_flight) < u64::from(sample.allowed));
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

    fn seen(&self, spread: f64, before: Option<f64>) -> Seen {
        let done = f64::from(self.done.max(1));
        Seen {
            latency: (self.done > 0).then(|| self.mean()),
            error: libm::sqrt(spread / done),
            before,
            used: if self.done > 0 { (self.used / done).min(1.0) } else { 1.0 },
            dropped: f64::from(self.dropped) / f64::from(self.done + self.dropped),
            under_used: 2 * self.under_used > self.done,
        }
    }
}
