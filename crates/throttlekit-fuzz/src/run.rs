//! Runs a target over many inputs, without coverage and without any dependencies.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use throttlekit::clock::{Clock, PreciseClock};

use crate::mutate::{Random, input};
use crate::seeds::{self, Seeds};
use crate::{Target, forget};

/// The number of inputs that run in one thread from a fresh state: state they share is not kept longer.
pub const CHUNK: u64 = 1_000;
/// The number of crashes after which a run stops.
const CRASHES_MAX: u64 = 5;
/// The time limit of one input on the slowest machine.
const HANG: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The number of polls between two lines of progress.
const LOOKS_TOLD: u32 = 200;
const THREADS_MAX: usize = 8;

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Inputs that were tried.
    pub executions: u64,
    /// Valid inputs: a file that loads, a message with a response, a descriptor that matches a rule.
    pub good: u64,
    /// Inputs that panicked or did not finish.
    pub crashes: u64,
    /// The duration.
    pub seconds: f64,
}

struct Work<'a> {
    name: &'a str,
    target: Target,
    seeds: Seeds,
    seed: u64,
    from: u64,
    end: u64,
    next: AtomicU64,
    done: AtomicU64,
    good: AtomicU64,
    crashes: AtomicU64,
}

/// Runs the inputs `from..from + count` of a seed. Crashes are printed as they are found.
pub fn run(name: &str, target: Target, from: u64, count: u64, seed: u64) -> Ran {
    let clock = PreciseClock::new();
    let begun = clock.now();
    let end = from.saturating_add(count);
    let zero = AtomicU64::default;
    let next = AtomicU64::new(from);
    let work = Work {
        name,
        target,
        seeds: seeds::of(name),
        seed,
        from,
        end,
        next,
        done: zero(),
        good: zero(),
        crashes: zero(),
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let at: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(u64::MAX)).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = at.iter().map(|at| scope.spawn(|| work.run(at))).collect();
        let (mut seen, mut looks) = (vec![(u64::MAX, clock.now()); threads], 0_u32);
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(LOOK_EVERY);
            looks += 1;
            if looks.is_multiple_of(LOOKS_TOLD) {
                let seconds = clock.now().since(begun).as_secs_f64();
                let done = work.done.load(Relaxed);
                eprintln!("{name}: {done} of {count}, {:.0} a second", done as f64 / seconds);
            }
            for (seen, at) in seen.iter_mut().zip(&at) {
                let now = at.load(Relaxed);
                if seen.0 != now || now == u64::MAX {
                    *seen = (now, clock.now());
                } else if clock.now().since(seen.1) > HANG {
                    work.tell(now, "it does not come to an end");
                    // A thread cannot be killed from outside.
                    std::process::exit(1);
                }
            }
        }
    });
    let seconds = clock.now().since(begun).as_secs_f64();
    let [executions, good, crashes] = [work.done, work.good, work.crashes].map(AtomicU64::into_inner);
    Ran { executions, good, crashes, seconds }
}

impl Work<'_> {
    fn run(&self, at: &AtomicU64) {
        loop {
            let begin = self.next.fetch_add(CHUNK, Relaxed);
            if begin >= self.end || self.crashes.load(Relaxed) >= CRASHES_MAX {
                break;
            }
            forget();
            let (mut good, mut done) = (0, 0);
            for number in begin..(begin + CHUNK).min(self.end) {
                at.store(number, Relaxed);
                good += u64::from(self.try_one(number));
                done += 1;
                if self.crashes.load(Relaxed) >= CRASHES_MAX {
                    break;
                }
            }
            at.store(u64::MAX, Relaxed);
            self.done.fetch_add(done, Relaxed);
            self.good.fetch_add(good, Relaxed);
        }
        forget();
    }

    fn try_one(&self, number: u64) -> bool {
        let bytes = input(&mut Random::of(self.seed, number), &self.seeds);
        catch_unwind(AssertUnwindSafe(|| (self.target)(&bytes))).unwrap_or_else(|panic| {
            self.crashes.fetch_add(1, Relaxed);
            self.tell(number, said(&*panic));
            false
        })
    }

    fn tell(&self, number: u64, why: &str) {
        let bytes = input(&mut Random::of(self.seed, number), &self.seeds);
        let begin = number - (number - self.from) % CHUNK;
        println!("{} crashes at input {number}: {why}\n  {}", self.name, bytes.escape_ascii());
        println!("  again: fuzz-run {} {} {} {begin}", self.name, number - begin + 1, self.seed);
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    #[test]
    fn a_target_that_panics_stops_after_the_maximum_number_of_crashes() {
        let short = |data: &[u8]| {
            assert!(data.len() < 150, "too long");
            true
        };
        let ran = run("sketch", short, 0, 100_000, 1);
        assert!(ran.crashes >= CRASHES_MAX && ran.executions < 100_000, "{ran:?}");
        let ran = run("sketch", |_| true, 0, 2_500, 1);
        assert_eq!((ran.executions, ran.good, ran.crashes), (2_500, 2_500, 0));
    }

    #[test]
    fn every_target_survives_its_first_inputs_and_many_of_them_are_good() {
        for (name, target) in TARGETS {
            let ran = run(name, target, 0, 1_000, 1);
            assert_eq!((ran.executions, ran.crashes), (1_000, 0), "{name}");
            assert!(ran.good > 100, "{name}: {ran:?}");
        }
    }
}
