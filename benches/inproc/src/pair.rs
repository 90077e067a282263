//! Two threads: wall time, and only of batches in which both threads ran in parallel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::{hint, iter};

use crate::contenders::Contender;
use crate::harness::{GRAIN, Sample};
use crate::os;
use crate::workloads::Stream;

/// The duration of one batch: short, so that many end before the kernel interferes.
const BATCH_NS: f64 = 600_000.0;
/// The maximum number of attempts at a clean batch in a round.
const ATTEMPTS_MAX: usize = 40;
/// The time limit of all rounds: on a busy machine few batches are clean.
const RUN_NS_MAX: u64 = 40_000_000_000;
/// The minimum part of the whole span in which both threads must have been running.
const OVERLAP_MIN: f64 = 0.85;

/// Measures every contender; rounds without a clean batch have no result.
pub fn together(contenders: &[Contender], stream: &Stream, warm: usize, rounds: usize) -> Vec<Sample> {
    let sizes: Vec<usize> = contenders.iter().map(|c| batch_size(c, stream, warm)).collect();
    let mut samples = vec![Sample::default(); contenders.len()];
    let start = os::wall_ns();
    for round in (0..rounds).take_while(|_| os::wall_ns() - start < RUN_NS_MAX) {
        for turn in 0..contenders.len() {
            let who = (round + turn) % contenders.len();
            if let Some(span) = clean_span(&contenders[who], stream, warm, sizes[who]) {
                samples[who].push(span / (2 * sizes[who]) as f64);
            }
        }
    }
    samples
}

/// Returns the first clean batch. After one attempt the next needs only a little warm-up.
fn clean_span(contender: &Contender, stream: &Stream, warm: usize, count: usize) -> Option<f64> {
    let warms = iter::once(warm).chain(iter::repeat(warm / 8));
    warms.take(ATTEMPTS_MAX).find_map(|warm| attempt(contender, stream, warm, count).clean())
}

fn batch_size(contender: &Contender, stream: &Stream, warm: usize) -> usize {
    const PROBE: usize = 4_096;
    let spans = (0..5).map(|_| attempt(contender, stream, warm, PROBE).span());
    let quickest = spans.fold(f64::INFINITY, f64::min);
    ((BATCH_NS / quickest * PROBE as f64) as usize).next_multiple_of(GRAIN)
}

/// The time at which each of the two threads ran, and its interruptions.
struct Attempt([Ran; 2]);

#[derive(Clone, Copy)]
struct Ran {
    start: u64,
    end: u64,
    interrupted: i64,
}

impl Attempt {
    fn span(&self) -> f64 {
        let [a, b] = self.0;
        (a.end.max(b.end) - a.start.min(b.start)) as f64
    }

    fn overlap(&self) -> f64 {
        let [a, b] = self.0;
        a.end.min(b.end).saturating_sub(a.start.max(b.start)) as f64
    }

    fn clean(&self) -> Option<f64> {
        let interrupted = self.0.iter().any(|ran| ran.interrupted > 0);
        (!interrupted && self.overlap() >= OVERLAP_MIN * self.span()).then(|| self.span())
    }
}

fn attempt(contender: &Contender, stream: &Stream, warm: usize, count: usize) -> Attempt {
    let ready = AtomicUsize::new(0);
    let side = |from: usize| {
        contender.run(stream, from, warm, false);
        stream.touch(from + warm, count);
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < 2 {
            hint::spin_loop();
        }
        let (interrupted, start) = (os::involuntary_switches(), os::wall_ns());
        contender.run(stream, from + warm, count, false);
        let (end, now_interrupted) = (os::wall_ns(), os::involuntary_switches());
        Ran { start, end, interrupted: now_interrupted - interrupted }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| side(stream.len() / 2));
        let here = side(0);
        Attempt([here, other.join().expect("the other thread ends")])
    })
}
