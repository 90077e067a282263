//! One thread: all contenders in turn, many short batches, medians.

use crate::contenders::Contender;
use crate::os;
use crate::workloads::Stream;

/// How long one batch runs.
const BATCH_NS: f64 = 2_500_000.0;
/// Batches are whole multiples of this, so that contenders which take several keys a call end evenly.
const GRAIN: usize = 16;
/// Fewer batches say nothing.
const BATCHES_MIN: usize = 5;
/// How far the starts of two rounds lie apart in the stream.
const STRIDE: usize = 99_991 * GRAIN;

/// How checks follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A plain loop: the processor overlaps neighbouring checks.
    Throughput,
    /// A fence before every call: what one request sees, about 9 ns of fence included.
    Isolated,
    /// Two threads at once, wall time over the checks of both.
    Together,
}

impl View {
    /// The views of one thread.
    pub const ALONE: [Self; 2] = [Self::Throughput, Self::Isolated];

    /// Its name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Isolated => "isolated",
            Self::Together => "two threads",
        }
    }
}

/// Nanoseconds per check, one number a batch.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Takes one more batch.
    pub fn push(&mut self, ns: f64) {
        self.0.push(ns);
    }

    /// How many batches.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The middle; not a number when too little was measured to tell.
    pub fn median(&self) -> f64 {
        if self.len() < BATCHES_MIN { f64::NAN } else { median(&self.0) }
    }

    /// The least.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }
}

impl<'a> FromIterator<&'a Sample> for Sample {
    fn from_iter<I: IntoIterator<Item = &'a Self>>(samples: I) -> Self {
        Self(samples.into_iter().flat_map(|sample| &sample.0).copied().collect())
    }
}

/// The middle of those that are numbers; not a number when none is.
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

/// How many checks fill a batch of `BATCH_NS`.
fn batch_size(contender: &Contender, stream: &Stream, view: View) -> usize {
    const PROBE: usize = 1 << 14;
    contender.run(stream, 0, PROBE, false);
    let ns = timed(contender, stream, PROBE, PROBE, view) / PROBE as f64;
    whole((BATCH_NS / ns) as usize)
}

/// Rounded to whole calls of every contender.
pub fn whole(count: usize) -> usize {
    count.next_multiple_of(GRAIN)
}

fn timed(contender: &Contender, stream: &Stream, from: usize, count: usize, view: View) -> f64 {
    let start = os::thread_cpu_ns();
    contender.run(stream, from, count, view == View::Isolated);
    (os::thread_cpu_ns() - start) as f64
}
