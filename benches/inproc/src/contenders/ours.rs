//! Our limiter. The only module that uses its interface.

use std::hint::black_box;
use std::time::Duration;

pub use throttlekit::Call;
use throttlekit::clock::{Clock, SystemClock};
use throttlekit::hash::KeyHash;
use throttlekit::limiter::KeylessLimiter;
use throttlekit::{Decision, Limit, Limiter, Rate};

use super::{BURST, Check, KEYS_MAX, UNIT_EVERY, consumed};
use crate::workloads::Stream;

/// Enough units to keep a key alive through a run.
const SEED_COST: u64 = 1_000;
/// Keys in one batch.
const BATCH: usize = 16;

fn rate() -> Rate {
    Rate::every(UNIT_EVERY).burst(u64::from(BURST))
}

/// Returns the default precise clock.
pub fn default_clock() -> SystemClock {
    SystemClock::for_limit(&Limit::gcra(rate()).expect("a limit"))
}

/// Bytes of a budget for each expected key: its cells, and a quarter for keys beyond.
pub const BYTES_PER_KEY: usize = 52;

/// Creates a limiter over many keys.
pub fn limiter<C: Clock, H: KeyHash>(rate: Rate, keys: usize, clock: C) -> Limiter<C, H> {
    let builder = Limiter::builder(Limit::gcra(rate).expect("a limit")).clock(clock).hash::<H>();
    builder.expected_keys(keys).memory_budget(keys * BYTES_PER_KEY).build().expect("a limiter")
}

struct Keyed<C, H>(Limiter<C, H>);
struct By16<C, H>(Limiter<C, H>);
struct Keyless<C>(KeylessLimiter<C>);
/// A key without units is denied.
struct Denied<C, H>(Limiter<C, H>);

/// One key per call.
pub fn keyed<C: Clock + 'static, H: KeyHash + 'static>(clock: C) -> impl Check + 'static {
    keyed_for::<C, H>(KEYS_MAX, clock)
}

/// The same for this many keys.
pub fn keyed_for<C: Clock + 'static, H: KeyHash + 'static>(keys: usize, clock: C) -> impl Check + 'static {
    Keyed(limiter::<C, H>(rate(), keys, clock))
}

/// One key a call, of keys without units.
pub fn denied<C: Clock + 'static, H: KeyHash + 'static>(clock: C) -> impl Check + 'static {
    Denied(limiter::<C, H>(Rate::every(Duration::from_secs(86_400)).burst(1), KEYS_MAX, clock))
}

/// Sixteen keys per call.
pub fn by_16<C: Clock + 'static, H: KeyHash + 'static>(clock: C) -> impl Check + 'static {
    By16(limiter::<C, H>(rate(), KEYS_MAX, clock))
}

/// No key.
pub fn keyless<C: Clock + 'static>(clock: C) -> impl Check + 'static {
    Keyless(Limiter::builder(rate()).clock(clock).build_keyless().expect("a limiter"))
}

impl<C: Clock, H: KeyHash> Check for Keyed<C, H> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check(stream.string(at).as_str())).allowed)
    }

    fn seed(&self, key: &str) {
        self.0.check(Call::by(key).cost(SEED_COST));
    }
}

/// A buffer for the responses of a batch.
struct Answers(Vec<Decision>);

impl Default for Answers {
    fn default() -> Self {
        Self(Vec::with_capacity(BATCH))
    }
}

impl<C: Clock, H: KeyHash> Check for By16<C, H> {
    const KEYS: usize = BATCH;
    type Scratch = Answers;

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, answers: &mut Answers) -> usize {
        let keys: [&str; BATCH] = std::array::from_fn(|i| stream.string(at + i).as_str());
        self.0.check_many_into(&keys, &mut answers.0);
        black_box(&answers.0).iter().map(|decision| usize::from(decision.allowed)).sum()
    }

    fn seed(&self, key: &str) {
        self.0.check(Call::by(key).cost(SEED_COST));
    }
}

impl<C: Clock> Check for Keyless<C> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check(())).allowed)
    }
}

impl<C: Clock, H: KeyHash> Check for Denied<C, H> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(!consumed(self.0.check(stream.string(at).as_str())).allowed)
    }

    fn seed(&self, key: &str) {
        self.0.check(key);
    }
}
