//! A stand-in with the interface the limiter will have: words in sharded maps, without cap or expiry.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::rate::word::{GcraWord, WordRule};
use throttlekit::{Clock, Cost, Decision, KeyHash, Limit, LimitError, PreciseClock, SecretHash};

const SHARDS: usize = 1_024;
type Shard = Mutex<HashMap<u64, u64, foldhash::fast::FixedState>>;

fn word_rule(limit: Limit, clock: &impl Clock) -> GcraWord {
    let Limit::Gcra(rule) = limit else { panic!("benchmarks run GCRA") };
    GcraWord::new(&rule, clock.now()).expect("a word form")
}

pub struct Limiter<C = PreciseClock, H = SecretHash> {
    rule: GcraWord,
    shards: Box<[Shard]>,
    clock: C,
    hash: H,
}

pub struct Builder<C, H> {
    limit: Limit,
    clock: C,
    hash: H,
}

impl Limiter {
    pub fn builder(limit: Limit) -> Builder<PreciseClock, SecretHash> {
        Builder { limit, clock: PreciseClock::new(), hash: SecretHash::random() }
    }
}

impl<C: Clock, H: KeyHash> Builder<C, H> {
    pub fn clock<D: Clock>(self, clock: D) -> Builder<D, H> {
        Builder { limit: self.limit, clock, hash: self.hash }
    }

    pub fn hash<I: KeyHash>(self) -> Builder<C, I> {
        Builder { limit: self.limit, clock: self.clock, hash: I::random() }
    }

    pub fn keys_max(self, _keys: usize) -> Self {
        self
    }

    pub fn build(self) -> Result<Limiter<C, H>, LimitError> {
        let rule = word_rule(self.limit, &self.clock);
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Ok(Limiter { rule, shards, clock: self.clock, hash: self.hash })
    }
}

impl<C: Clock, H: KeyHash> Limiter<C, H> {
    pub fn check<'a>(&self, ask: impl Into<Ask<'a>>) -> Decision {
        let ask = ask.into();
        let now = self.clock.now();
        let fingerprint = self.hash.fingerprint(ask.key);
        let mut shard = self.shards[fingerprint as usize & (SHARDS - 1)].lock().expect("no panic inside");
        let word = shard.entry(fingerprint).or_default();
        let step = self.rule.step(*word, self.rule.floor(now), ask.cost, now);
        *word = step.next;
        step.decision
    }

    pub fn check_many_into(&self, keys: &[&str], cost: Cost, answers: &mut Vec<Decision>) {
        answers.clear();
        answers.extend(keys.iter().map(|key| self.check(Ask::of(key).cost(cost))));
    }
}

pub struct Ask<'a> {
    key: &'a [u8],
    cost: Cost,
}

impl<'a> Ask<'a> {
    pub fn of(key: &'a str) -> Self {
        Self { key: key.as_bytes(), cost: 1 }
    }

    pub fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }
}

impl<'a> From<&'a str> for Ask<'a> {
    fn from(key: &'a str) -> Self {
        Self::of(key)
    }
}

pub struct Gate<C = PreciseClock> {
    rule: GcraWord,
    word: AtomicU64,
    clock: C,
}

impl<C: Clock> Gate<C> {
    pub fn with_clock(limit: Limit, clock: C) -> Result<Self, LimitError> {
        Ok(Self { rule: word_rule(limit, &clock), word: AtomicU64::new(0), clock })
    }

    #[inline(always)]
    pub fn check(&self, cost: Cost) -> Decision {
        let now = self.clock.now();
        let floor = self.rule.floor(now);
        let mut word = self.word.load(Relaxed);
        loop {
            let step = self.rule.step(word, floor, cost, now);
            match self.word.compare_exchange_weak(word, step.next, Relaxed, Relaxed) {
                Ok(_) => return step.decision,
                Err(other) => word = other,
            }
        }
    }
}
