//! One run: callers on a manual clock, in front of the engine of the server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use throttlekit::clock::{BootClock, Clock, ManualClock};
use throttlekit::rate::Timestamp;
use throttlekit::store::LeaseId;
use throttlekit::{Decision, Retry};
use throttlekit_server::internals::access::Principal;
use throttlekit_server::internals::engine::{
    Backend, CostHint, Ended, Engine, EngineOptions, PolicyCall, WorkTerms,
};
use throttlekit_server::policy;

use super::books::{Books, Seen, window};
use super::workload::{Calls, Completion, MAX_TOKENS, WINDOW, callers, takes};
use super::{Estimate, ServerBug};

const BEGINS: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// The wait that a server reports where only the end of other work helps.
const RELEASE_WAIT: Duration = Duration::from_secs(1);
/// Longer than anything here takes on a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const KEY: &[u8] = b"acme";
/// The seed of the calls.
const SEED: u64 = 1;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) calls: Calls,
    pub(super) estimate: Estimate,
    /// Tokens of a debit.
    pub(super) chunk: u64,
    /// Tokens per window.
    pub(super) budget: u64,
    /// Number of windows.
    pub(super) windows: usize,
    pub(super) bug: Option<ServerBug>,
}

/// Runs a scenario.
pub(super) fn run(scenario: Scenario) -> Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Run::new(scenario)?.play().await })
}

struct Run {
    scenario: Scenario,
    engine: Engine,
    who: Principal,
    clock: ManualClock,
    /// The callers by the time of their next step.
    next: BinaryHeap<Reverse<(Timestamp, usize)>>,
    streams: Vec<Option<Stream>>,
    /// The call that each caller has yet to get through.
    pending: Vec<Option<Completion>>,
    drawn: u64,
    begun: u64,
    reserved: u64,
    books: Books,
    miscounted: bool,
}

/// A stream that was admitted.
#[derive(Clone, Copy, Debug)]
struct Stream {
    lease: LeaseId,
    total: u64,
    /// Tokens of the input, which take no time.
    input: u64,
    produced: u64,
    reserved: u64,
    reserved_in: usize,
}

impl Run {
    fn new(scenario: Scenario) -> Result<Self> {
        let (budget, callers) = (scenario.budget, callers(scenario.budget));
        let text = format!(
            "version: 1\npolicies:\n  chat:\n    cost: {{budget: {budget}, per: {}s}}\n    concurrency: {{limit: \
             {callers}, lease_for: 1h}}\n    learn: {{}}\n",
            WINDOW.as_secs()
        );
        let (file, _) = policy::load(&text).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
        let clock = ManualClock::at(BEGINS);
        let engine =
            Engine::start(EngineOptions::over(Backend::memory_with_clock(Arc::new(clock.clone()))), file)?;
        Ok(Self {
            scenario,
            engine,
            who: Principal::anyone(),
            clock,
            next: (0..callers).map(|caller| Reverse((BEGINS, caller))).collect(),
            streams: vec![None; callers],
            pending: vec![None; callers],
            drawn: 0,
            begun: 0,
            reserved: 0,
            books: Books::default(),
            miscounted: false,
        })
    }

    async fn play(mut self) -> Result<Seen> {
        let windows = u32::try_from(self.scenario.windows)?;
        let (ends, mut looked) = (BEGINS + WINDOW * windows, 0);
        while let Some(Reverse((now, caller))) = self.next.pop() {
            while window(BEGINS, now) > looked {
                self.look(looked).await?;
                looked += 1;
            }
            if now >= ends {
                break;
            }
            self.clock.set(now);
            let wakes_at = match self.streams[caller].take() {
                None => self.open(caller, now).await?,
                Some(stream) => self.debit(caller, stream, now).await?,
            };
            self.next.push(Reverse((wakes_at, caller)));
        }
        let seen = self.books.seen(self.scenario.budget, self.scenario.windows);
        let reserved = self.reserved as f64 / self.begun.max(1) as f64;
        Ok(Seen { reserved, miscounted: self.miscounted, ..seen })
    }

    /// Compares the count of the server with the books, in the last instant of a window.
    async fn look(&mut self, at: usize) -> Result<()> {
        let last = BEGINS + WINDOW * u32::try_from(at + 1)?;
        self.clock.set(Timestamp::from_nanos(last.as_nanos() - 1));
        let unused = |stream: &Stream| stream.reserved.saturating_sub(stream.produced);
        let held = self.streams.iter().flatten().filter(|stream| stream.reserved_in == at).map(unused);
        let charged = self.books.charged(at) + held.sum::<u64>();
        let left = self.engine.peek(self.call(1)).await?.decision.remaining;
        self.miscounted |= left != self.scenario.budget.saturating_sub(charged);
        Ok(())
    }

    fn call(&self, cost: u64) -> PolicyCall<'static> {
        PolicyCall { policy: "chat", key: KEY, others: &[], cost }
    }

    /// Asks for the next stream of a caller. Returns when the caller acts again.
    async fn open(&mut self, caller: usize, now: Timestamp) -> Result<Timestamp> {
        let next = match self.pending[caller] {
            Some(denied) => denied,
            None => {
                self.drawn += 1;
                *self.pending[caller].insert(self.scenario.calls.nth(self.drawn, SEED))
            }
        };
        let (call, terms) = self.asked(&next);
        let admitted = self.engine.admit(&self.who, call, terms).await?;
        let Some(lease) = admitted.lease else { return Ok(Self::denied(now, &admitted.answer.decision)) };
        let reserved = if terms.learned.is_some() { admitted.reserved } else { call.cost };
        self.pending[caller] = None;
        self.begun += 1;
        self.reserved += reserved;
        let stream = Stream {
            lease: lease.id,
            total: next.input + next.output,
            input: next.input,
            produced: 0,
            reserved,
            reserved_in: window(BEGINS, now),
        };
        self.streams[caller] = Some(stream);
        Ok(now + self.lasts(&stream))
    }

    /// Returns the request for a completion, with the bug.
    fn asked(&self, next: &Completion) -> (PolicyCall<'static>, WorkTerms<'static>) {
        let estimate = match self.scenario.bug {
            Some(ServerBug::ReservesTheSameForAll) => Estimate::Static(super::STATIC),
            Some(ServerBug::ReservesNothing) => Estimate::Static(1),
            _ => self.scenario.estimate,
        };
        let learned = match estimate {
            Estimate::Static(_) => None,
            Estimate::Learned => Some(CostHint::default()),
            Estimate::Hinted => {
                Some(CostHint { input_tokens: next.input, max_tokens: Some(MAX_TOKENS), class: next.class })
            }
        };
        let cost = if let Estimate::Static(cost) = estimate { cost } else { 1 };
        (self.call(cost), WorkTerms { learned, ..WorkTerms::default() })
    }

    fn chunk(&self, stream: &Stream) -> u64 {
        self.scenario.chunk.min(stream.total - stream.produced)
    }

    /// Returns the time until the next debit. The input is there at once.
    fn lasts(&self, stream: &Stream) -> Duration {
        let after = stream.produced + self.chunk(stream);
        takes(after.saturating_sub(stream.input.max(stream.produced)))
    }

    async fn debit(&mut self, caller: usize, mut stream: Stream, now: Timestamp) -> Result<Timestamp> {
        let tokens = self.chunk(&stream);
        let decision = match self.scenario.bug {
            // The whole of it is charged when it ends.
            Some(ServerBug::ReservesNothing) => throttlekit::rate::ALLOW_FULL,
            _ => self.engine.debit_held(&self.who, stream.lease, tokens).await?.decision,
        };
        let at = window(BEGINS, now);
        if decision.allowed {
            let covered = tokens.min(stream.reserved.saturating_sub(stream.produced));
            self.books.debited(stream.reserved_in, covered, tokens - covered, at);
            stream.produced += tokens;
            if stream.produced < stream.total {
                let wakes_at = now + self.lasts(&stream);
                self.streams[caller] = Some(stream);
                return Ok(wakes_at);
            }
        } else {
            self.books.cut_short(at);
        }
        self.end(&stream).await?;
        Ok(if decision.allowed { now } else { Self::denied(now, &decision) })
    }

    async fn end(&self, stream: &Stream) -> Result<()> {
        let actual = match self.scenario.bug {
            Some(ServerBug::KeepsReservations) => stream.produced.max(stream.reserved),
            _ => stream.produced,
        };
        let how = Ended { actual_cost: Some(actual), ..Ended::default() };
        ensure!(self.engine.release(&self.who, stream.lease, how), "the lease of a running stream ended");
        let deadline = BootClock.now() + SETTLED_WITHIN;
        while self.engine.is_settling() {
            ensure!(BootClock.now() < deadline, "a settlement in memory takes more than {SETTLED_WITHIN:?}");
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Returns when a denied caller tries again: as the server advises.
    fn denied(now: Timestamp, decision: &Decision) -> Timestamp {
        now + match decision.retry_after {
            Retry::Now => Duration::from_millis(1),
            Retry::After(wait) => wait,
            Retry::OnRelease => RELEASE_WAIT,
            Retry::Never => WINDOW,
        }
    }
}

/// Runs scenarios side by side.
pub(super) fn run_all(scenarios: &[Scenario]) -> Result<Vec<Seen>> {
    let seen = crate::runner::in_parallel(scenarios.len() as u64, "runs", |at| run(scenarios[at as usize]));
    seen.into_iter().collect::<Result<_>>().context("a run through the engine of the server")
}
