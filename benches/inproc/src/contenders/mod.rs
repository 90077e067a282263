//! The contenders. Each is set up so that every request is allowed and every key stays alive.

mod admission;
mod budget;
mod floor;
mod governor;
mod lease;
mod others;
mod ours;
mod queue;
mod rate_net;
mod sketch;
mod slots;

pub use governor::{
    stale_at_once as governor_stale_at_once, stale_at_once_sized as governor_stale_at_once_sized,
};
pub use ours::{BYTES_PER_KEY, Call, limiter};

use std::hint::black_box;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock, CoarseClock, PreciseClock, TickClock, WallClock};
use throttlekit::hash::{KeyHash, SecretHash, TrustedHash};

use crate::os;
use crate::workloads::{MANY, Stream, key, text};

/// One unit refills this often, so that a charged key stays alive for the whole run.
pub const UNIT_EVERY: Duration = Duration::from_secs(1);
/// More requests than any run makes of one key; the product with [`UNIT_EVERY`] still fits every contender's
/// word.
pub const BURST: u32 = 400_000_000;
/// Capacity for keys in limiters that need it: the number that the workloads use.
pub const KEYS_MAX: usize = MANY;

/// The position of a limiter in its cache line is the allocator's choice, and changes the time of two threads
/// on one word by a quarter. So contenders without keys are set up at all positions that malloc may choose.
pub const PLACES: usize = 4;

/// One check of a contender.
pub trait Check: Sync {
    /// The number of keys of one call.
    const KEYS: usize = 1;
    /// State that a thread reuses from call to call.
    type Scratch: Default;

    /// Checks the keys at `at` and the positions after it. Returns the number allowed. The whole response
    /// goes through [`consumed`], so that no field of it is optimized away.
    fn check(&self, stream: &Stream, at: usize, scratch: &mut Self::Scratch) -> usize;

    /// Makes a key known and alive.
    fn seed(&self, _key: &str) {}
}

/// Returns a response of which every byte must have been written.
#[inline(always)]
pub fn consumed<T>(answer: T) -> T {
    black_box(&answer);
    answer
}

/// A contender with its name.
pub struct Contender {
    /// Its name in tables and figures.
    pub name: &'static str,
    runner: Box<dyn Run>,
}

impl Contender {
    fn new<T: Check + 'static>(name: &'static str, check: T) -> Self {
        Self { name, runner: Box::new(Apart::<T, 0> { shift: [], check }) }
    }

    /// Creates one at one of [`PLACES`] offsets from the start of a cache line.
    fn placed<T: Check + 'static>(name: &'static str, check: T, place: usize) -> Self {
        let runner: Box<dyn Run> = match place {
            0 => Box::new(Apart { shift: [0; 0], check }),
            1 => Box::new(Apart { shift: [0; 16], check }),
            2 => Box::new(Apart { shift: [0; 32], check }),
            3 => Box::new(Apart { shift: [0; 48], check }),
            beyond => panic!("there are {PLACES} places, not {beyond}"),
        };
        Self { name, runner }
    }

    /// Checks `count` keys from a position on, and verifies that all were allowed.
    pub fn run(&self, stream: &Stream, from: usize, count: usize, isolated: bool) {
        let allowed = self.runner.run(stream, from, count, isolated);
        assert_eq!(allowed, count, "{}: every ask is allowed", self.name);
    }

    /// Makes the first `count` keys known and alive.
    pub fn seed(&self, count: usize) {
        (0..count as u64).for_each(|number| self.runner.seed_key(text(&key(number))));
    }
}

/// Shares no cache line, nor the neighbor that the hardware prefetches, with other contenders.
#[repr(C, align(128))]
struct Apart<T, const SHIFT: usize> {
    shift: [u8; SHIFT],
    check: T,
}

trait Run: Sync {
    fn run(&self, stream: &Stream, from: usize, count: usize, isolated: bool) -> usize;
    fn seed_key(&self, key: &str);
}

impl<T: Check, const SHIFT: usize> Run for Apart<T, SHIFT> {
    fn run(&self, stream: &Stream, from: usize, count: usize, isolated: bool) -> usize {
        if isolated {
            walk::<T, true>(&self.check, stream, from, count)
        } else {
            walk::<T, false>(&self.check, stream, from, count)
        }
    }

    fn seed_key(&self, key: &str) {
        self.check.seed(key);
    }
}

fn walk<T: Check, const ISOLATED: bool>(check: &T, stream: &Stream, from: usize, count: usize) -> usize {
    let mut scratch = T::Scratch::default();
    let mut allowed = 0;
    for at in (from..from + count).step_by(T::KEYS) {
        if ISOLATED {
            os::fence();
        }
        allowed += check.check(stream, at, &mut scratch);
    }
    allowed
}

/// The empty loop, to subtract from instruction counts.
struct Nothing;

impl Check for Nothing {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        black_box(stream.string(at).as_str());
        1
    }
}

/// Sets up the contender with this name. Those that read a coarse clock start one.
pub fn build(name: &'static str) -> Contender {
    build_at(name, 0)
}

/// The same for this many keys, where a contender's memory depends on the number that is expected.
pub fn build_for(name: &'static str, keys: usize) -> Contender {
    match name {
        "ours-secret-precise" => {
            Contender::new(name, ours::keyed_for::<_, SecretHash>(keys, ours::default_clock()))
        }
        _ => build(name),
    }
}

/// Sets it up at one of [`PLACES`]; only contenders without keys have their word in line with the rest.
pub fn build_at(name: &'static str, place: usize) -> Contender {
    match name {
        "nothing" => Contender::new(name, Nothing),
        "governor" => Contender::new(name, governor::keyed_string()),
        "governor-best" => Contender::new(name, governor::keyed_array()),
        "governor-fast-hash" => Contender::new(name, governor::keyed_fast_hash()),
        "governor-fast-hash-coarse" => Contender::new(name, governor::keyed_fast_hash_coarse()),
        "governor-denied" => Contender::new(name, governor::denied()),
        "governor-fast-hash-denied" => Contender::new(name, governor::denied_fast_hash()),
        "governor-state" => Contender::new(name, governor::keyed_state()),
        "governor-direct" => Contender::placed(name, governor::direct(), place),
        "governor-direct-coarse" => Contender::placed(name, governor::direct_coarse(), place),
        "governor-direct-n" => Contender::placed(name, governor::direct_n(), place),
        "governor-direct-state" => Contender::placed(name, governor::direct_state(), place),
        "rate-net" => Contender::new(name, rate_net::keyed()),
        "rate-net-direct" => Contender::placed(name, rate_net::direct(), place),
        "gcra" => Contender::new(name, others::gcra()),
        "throttlecrab" => Contender::new(name, others::throttlecrab()),
        "ratelimit" => Contender::placed(name, others::ratelimit(), place),
        "leaky-bucket" => Contender::placed(name, others::leaky_bucket(), place),
        "floor-precise" => Contender::new(name, floor::Table::new(floor::Ticks)),
        "floor-coarse" => Contender::new(name, floor::Table::new(CoarseClock::start())),
        "floor-by-16" => Contender::new(name, floor::By16(floor::Table::new(floor::Ticks))),
        "floor-direct-precise" => Contender::placed(name, floor::Word::new(floor::Ticks), place),
        "floor-direct-coarse" => Contender::placed(name, floor::Word::new(CoarseClock::start()), place),
        "floor-fetch-sub" => Contender::placed(name, floor::Counter::new(), place),
        "ours-secret-precise" => Contender::new(name, ours::keyed::<_, SecretHash>(ours::default_clock())),
        "ours-secret-coarse" => Contender::new(name, ours::keyed::<_, SecretHash>(CoarseClock::start())),
        "ours-trusted-precise" => Contender::new(name, ours::keyed::<_, TrustedHash>(ours::default_clock())),
        "ours-trusted-coarse" => Contender::new(name, ours::keyed::<_, TrustedHash>(CoarseClock::start())),
        "ours-secret-denied" => Contender::new(name, ours::denied::<_, SecretHash>(ours::default_clock())),
        "ours-trusted-denied" => Contender::new(name, ours::denied::<_, TrustedHash>(ours::default_clock())),
        "ours-by-16" => Contender::new(name, ours::by_16::<_, TrustedHash>(ours::default_clock())),
        "ours-keyless-precise" => Contender::placed(name, ours::keyless(ours::default_clock()), place),
        "ours-keyless-coarse" => Contender::placed(name, ours::keyless(CoarseClock::start()), place),
        "ours-budget-precise" => Contender::placed(name, budget::meter(PreciseClock::new()), place),
        "ours-budget-coarse" => Contender::placed(name, budget::meter(CoarseClock::start()), place),
        "ours-budget-tick" => Contender::placed(name, budget::meter(TickClock::new()), place),
        "ours-budget-wall" => Contender::placed(name, budget::meter(WallClock), place),
        "ours-lease-tick" => Contender::new(name, lease::spend(TickClock::new())),
        "ours-lease-precise" => Contender::new(name, lease::spend(PreciseClock::new())),
        "ours-lease-boot" => Contender::new(name, lease::spend(BootClock)),
        "ours-till-tick" => Contender::new(name, lease::thread_cache(TickClock::new())),
        "ours-till-precise" => Contender::new(name, lease::thread_cache(PreciseClock::new())),
        "ours-lease-key-tick" => Contender::new(name, lease::try_check(TickClock::new())),
        "ours-lease-key-precise" => Contender::new(name, lease::try_check(PreciseClock::new())),
        "ours-lease-check-tick" => Contender::new(name, lease::check(TickClock::new())),
        "pingora-estimator" => Contender::new(name, sketch::estimator()),
        "pingora-rate" => Contender::new(name, sketch::rate()),
        "ours-sketch-coarse" => of_sketch::<_, SecretHash>(name, sketch::NARROW, CoarseClock::start()),
        "ours-sketch-tick" => of_sketch::<_, SecretHash>(name, sketch::NARROW, TickClock::new()),
        "ours-sketch-precise" => of_sketch::<_, SecretHash>(name, sketch::NARROW, PreciseClock::new()),
        "ours-sketch-trusted-coarse" => {
            of_sketch::<_, TrustedHash>(name, sketch::NARROW, CoarseClock::start())
        }
        "ours-sketch-trusted-tick" => of_sketch::<_, TrustedHash>(name, sketch::NARROW, TickClock::new()),
        "ours-sketch-default-coarse" => {
            of_sketch::<_, SecretHash>(name, sketch::DEFAULT, CoarseClock::start())
        }
        "ours-sketch-default-tick" => of_sketch::<_, SecretHash>(name, sketch::DEFAULT, TickClock::new()),
        "ours-sketch-refused-coarse" => {
            Contender::new(name, sketch::refused::<_, SecretHash>(sketch::NARROW, CoarseClock::start()))
        }
        "ours-sketch-refused-tick" => {
            Contender::new(name, sketch::refused::<_, SecretHash>(sketch::NARROW, TickClock::new()))
        }
        "ours-flood-coarse" => Contender::new(name, sketch::flood::<_, SecretHash>(CoarseClock::start())),
        "ours-flood-tick" => Contender::new(name, sketch::flood::<_, SecretHash>(TickClock::new())),
        "tokio-semaphore" => Contender::placed(name, slots::semaphore(), place),
        "throttle-net" => Contender::placed(name, slots::throttle_net(), place),
        "congestion-limiter" => Contender::placed(name, slots::congestion(), place),
        "floor-cas" => Contender::placed(name, slots::floor(), place),
        "ours-guard-fixed" => Contender::placed(name, slots::fixed(), place),
        "ours-guard-fleet" => Contender::placed(name, slots::fleet(), place),
        "ours-guard-class" => Contender::placed(name, slots::of_class(), place),
        "ours-guard-adaptive" => Contender::placed(name, slots::adaptive(), place),
        "axes-plain" => Contender::new(name, admission::plain()),
        "axes-policies" => Contender::new(name, admission::policies()),
        "axes-rate-denies" => Contender::new(name, admission::plain_denied_by_rate()),
        "axes-full" => Contender::new(name, admission::plain_denied_by_slots()),
        "axis-slot" => Contender::new(name, admission::slot_alone()),
        "axis-rate" => Contender::new(name, admission::rate_alone()),
        "axis-cost" => Contender::new(name, admission::cost_alone()),
        "ours-limiter-admit" => Contender::new(name, queue::alone()),
        "ours-queue" => Contender::new(name, queue::queued()),
        "ours-admission" => Contender::new(name, admission::policy()),
        "ours-admission-watched" => Contender::new(name, admission::observed()),
        "ours-admission-rate-denies" => Contender::new(name, admission::denied_by_rate()),
        "ours-admission-full" => Contender::new(name, admission::denied_by_slots()),
        unknown => panic!("no contender is called {unknown}"),
    }
}

fn of_sketch<C: Clock + 'static, H: KeyHash + 'static>(
    name: &'static str,
    shape: (u32, u32),
    clock: C,
) -> Contender {
    Contender::new(name, sketch::sketch::<C, H>(shape, clock))
}
