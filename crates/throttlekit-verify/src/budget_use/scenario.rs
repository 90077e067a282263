//! One scenario on a manual clock: the victim's streams, and the attackers beside them.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::budget::{TokenBudget, TokenStream};
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::MemoryStore;
use throttlekit::{Decision, Limit, Retry};

use super::seam::Seam;
use super::{Attack, CHUNK, Scenario, UseBug};

type Budget = TokenBudget<Seam, ManualClock>;
type Stream = TokenStream<Seam, ManualClock>;

const MINUTE: Duration = Duration::from_secs(60);
const BEGINS: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// The victim's demand as a fraction of its budget.
const DEMAND: (u64, u64) = (3, 2);
/// New keys of attackers in each minute: those that spend tokens, and those that do not.
const PAID_KEYS: u64 = 100;
const FREE_STREAMS: u64 = 500;
/// The largest debit of an attacker.
const ATTACK_CHUNK: u64 = 500;

/// The result of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Tokens that the victim used in each minute.
    pub used: Vec<u64>,
    /// The reservation of each of its streams.
    pub reserved: Vec<u64>,
    /// Streams that began and could not finish.
    pub cut_short: u64,
    /// Denials with a wait until the window's end although local streams held what was needed.
    pub waits_too_long: u64,
}

/// Runs a scenario for `minutes`, with a bug if there is one.
pub fn run(scenario: &Scenario, minutes: u64, bug: Option<UseBug>) -> Seen {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime of one thread").block_on(Run::new(*scenario, minutes, bug).play(minutes))
}

struct Run {
    budget: Budget,
    clock: ManualClock,
    scenario: Scenario,
    bug: Option<UseBug>,
    workers: Vec<Worker>,
    /// The duration of a chunk.
    chunk_lasts: Duration,
    seen: Seen,
}

/// Runs one stream of the victim after another.
struct Worker {
    wakes_at: Timestamp,
    /// True while it waits for another stream to end.
    waits: bool,
    /// Its stream, and the length of that.
    stream: Option<(Stream, u64)>,
}

impl Run {
    fn new(scenario: Scenario, minutes: u64, bug: Option<UseBug>) -> Self {
        let Scenario { budget, at_once, learns, .. } = scenario;
        let clock = ManualClock::at(BEGINS);
        let kept = Arc::new(MemoryStore::with_clock(clock.clone()));
        let limit = Limit::token_budget(budget, MINUTE).expect("a valid budget");
        let reserve = bug.map_or(learns.reserve(), |bug| bug.reserve(learns.reserve()));
        let builder = TokenBudget::builder(Seam { kept, budget, bug }, "tokens", limit);
        let chunks = budget * DEMAND.0 / DEMAND.1 / CHUNK;
        let chunk_lasts = MINUTE * at_once as u32 / u32::try_from(chunks).expect("a small budget");
        Self {
            budget: builder.clock(clock.clone()).reserve(reserve).build().expect("a valid budget"),
            clock,
            scenario,
            bug,
            workers: (0..at_once).map(|_| Worker { wakes_at: BEGINS, waits: false, stream: None }).collect(),
            chunk_lasts,
            seen: Seen { used: vec![0; minutes as usize], ..Seen::default() },
        }
    }

    async fn play(mut self, minutes: u64) -> Seen {
        let ends = BEGINS + MINUTE * u32::try_from(minutes).expect("few minutes");
        let mut attacked = None;
        loop {
            let next = (0..self.workers.len()).min_by_key(|i| self.workers[*i].wakes_at).expect("workers");
            let now = self.workers[next].wakes_at;
            if now >= ends {
                return self.seen;
            }
            self.clock.set(now);
            let minute = minute(now);
            if attacked != Some(minute) {
                attacked = Some(minute);
                self.attack(minute).await;
            }
            self.turn(next, now).await;
        }
    }

    async fn turn(&mut self, worker: usize, now: Timestamp) {
        self.workers[worker].waits = false;
        match self.workers[worker].stream.take() {
            None => self.open(worker, now).await,
            Some((stream, length)) => self.debit(worker, stream, length, now).await,
        }
    }

    async fn open(&mut self, worker: usize, now: Timestamp) {
        let opened = self.budget.open("victim", None).await.expect("memory answers");
        match opened.stream {
            Some(stream) => {
                let length = self.scenario.length(self.seen.reserved.len() as u64);
                self.seen.reserved.push(stream.reserved());
                self.workers[worker].stream = Some((stream, length));
                self.workers[worker].wakes_at = now + self.chunk_lasts;
            }
            None => self.denied(worker, now, opened.answer.decision),
        }
    }

    fn denied(&mut self, worker: usize, now: Timestamp, mut decision: Decision) {
        if self.bug == Some(UseBug::WaitsForTheWindow) {
            decision.retry_after = Retry::after(decision.reset_at.since(now));
        }
        let held: u64 =
            self.workers.iter().flat_map(|worker| &worker.stream).map(|one| one.0.reserved()).sum();
        let enough = held > 0 && held + decision.remaining >= self.scenario.budget / 20;
        self.seen.waits_too_long += u64::from(enough && decision.retry_after != Retry::OnRelease);
        self.wait(worker, now, &decision);
    }

    async fn debit(&mut self, worker: usize, mut stream: Stream, length: u64, now: Timestamp) {
        let decision = stream.debit(CHUNK).await.expect("memory answers").decision;
        if decision.allowed {
            self.seen.used[minute(now) as usize] += CHUNK;
        }
        if decision.allowed && stream.produced() < length {
            self.workers[worker].stream = Some((stream, length));
            self.workers[worker].wakes_at = now + self.chunk_lasts;
            return;
        }
        self.seen.cut_short += u64::from(!decision.allowed);
        stream.settle().await.expect("memory answers");
        self.wait(worker, now, &decision);
        self.workers.iter_mut().filter(|other| other.waits).for_each(|other| other.wakes_at = now);
    }

    /// Waits as the denial requires.
    fn wait(&mut self, worker: usize, now: Timestamp, decision: &Decision) {
        let worker = &mut self.workers[worker];
        worker.wakes_at = match decision.retry_after {
            Retry::Now => now,
            Retry::After(wait) => now + wait,
            Retry::OnRelease | Retry::Never => decision.reset_at,
        };
        worker.waits = decision.retry_after == Retry::OnRelease;
    }

    async fn attack(&mut self, minute: u64) {
        match self.scenario.attack {
            Attack::None => {}
            Attack::Free => {
                for _ in 0..FREE_STREAMS {
                    drop(self.budget.open("evil", None).await.expect("memory answers"));
                }
            }
            Attack::Paid => {
                for key in 0..PAID_KEYS {
                    self.overrun(&format!("evil {minute} {key}")).await;
                }
            }
        }
    }

    /// Uses one token more than is reserved.
    async fn overrun(&self, key: &str) {
        let opened = self.budget.open(key, None).await.expect("memory answers");
        let Some(mut stream) = opened.stream else { return };
        let mut left = stream.reserved() + 1;
        while left > 0 {
            let tokens = left.min(ATTACK_CHUNK);
            if !stream.debit(tokens).await.expect("memory answers").decision.allowed {
                return;
            }
            left -= tokens;
        }
    }
}

fn minute(now: Timestamp) -> u64 {
    (now.since(BEGINS).as_nanos() / MINUTE.as_nanos()) as u64
}
