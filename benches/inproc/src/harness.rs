//! One thread: all contenders in turn, many short batches, medians.

use crate::contenders::Contender;
use crate::os;
use crate::workloads::Stream;

/// The duration of one batch.
const BATCH_NS: f64 = 2_500_000.0;
/// Batches are whole multiples of this, so that contenders with several keys per call end evenly.
pub const GRAIN: usize = 16;
/// The minimum number of batches for a result.
const BATCHES_MIN: usize = 5;
/// The number of requests whose keys are brought into the cache at a time; the timer's cost is negligible
/// over so many checks.
const TOUCHED: usize = 2_048;
/// The distance of the starts of two rounds in the stream.
const STRIDE: usize = 99_991 * GRAIN;

/// The order of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A plain loop: the processor overlaps neighboring checks.
    Throughput,
    /// A fence before every call: the latency of one request, about 9 ns of fence included.
    Isolated,
    /// Two threads at once, wall time divided by the checks of both.
    Together,
}

impl View {
    /// The views of one thread.
    pub const ALONE: [Self; 2] = [Self::Throughput, Self::Isolated];

    /// Returns its name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Isolated => "isolated",
            Self::Together => "two threads",
        }
    }
}

/// Nanoseconds per check, one number per batch.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Adds a batch.
    pub fn push(&mut self, ns: f64) {
        self.0.push(ns);
    }

    /// Returns the number of batches.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the median; NaN with too few batches.
    pub fn median(&self) -> f64 {
        if self.len() < BATCHES_MIN { f64::NAN } else { median(&self.0) }
    }

    /// Returns the minimum.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }
}

impl<'a> FromIterator<&'a Sample> for Sample {
    fn from_iter<I: IntoIterator<Item = &'a Self>>(samples: I) -> Self {
        Self(samples.into_iter().flat_map(|sample| &sample.0).copied().collect())
    }
}

/// Returns the median of those that are numbers; NaN when none is.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = numbers.iter().copied().filter(|number| number.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// Measures every contender in both views of one thread. The order rotates from round to round.
pub fn alone(contenders: &[Contender], stream: &Stream, warm: usize, rounds: usize) -> Vec<[Sample; 2]> {
    let sizes: Vec<[usize; 2]> =
        contenders.iter().map(|c| View::ALONE.map(|v| batch_size(c, stream, v))).collect();
    let mut samples = vec![[Sample::default(), Sample::default()]; contenders.len()];
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            let who = (round + turn) % contenders.len();
            for (view, size) in sizes[who].iter().enumerate() {
                let from = round * STRIDE;
                contenders[who].run(stream, from, warm, false);
                let ns = timed(&contenders[who], stream, from + warm, *size, View::ALONE[view]);
                samples[who][view].push(ns / *size as f64);
            }
        }
    }
    samples
}

/// Returns the number of checks that fill a batch of `BATCH_NS`.
fn batch_size(contender: &Contender, stream: &Stream, view: View) -> usize {
    const PROBE: usize = 1 << 14;
    contender.run(stream, 0, PROBE, false);
    let ns = timed(contender, stream, PROBE, PROBE, view) / PROBE as f64;
    ((BATCH_NS / ns) as usize).next_multiple_of(TOUCHED)
}

/// Returns the processor time of `count` checks, a multiple of [`TOUCHED`] or less than it.
fn timed(contender: &Contender, stream: &Stream, from: usize, count: usize, view: View) -> f64 {
    let mut ns = 0;
    for from in (from..from + count).step_by(TOUCHED) {
        let count = count.min(TOUCHED);
        stream.touch(from, count);
        let start = os::thread_cpu_ns();
        contender.run(stream, from, count, view == View::Isolated);
        ns += os::thread_cpu_ns() - start;
    }
    ns as f64
}
