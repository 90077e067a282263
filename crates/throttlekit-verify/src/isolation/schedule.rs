//! One schedule: the shared type, the runtimes, the one that misbehaves and its misbehavior, and the faults
//! of the store.

use std::fmt;
use std::time::Duration;

use throttlekit_conformance::Dice;

/// The minimum and maximum number of runtimes of one schedule. The first is the one that misbehaves.
pub const RUNTIMES: [u64; 2] = [2, 4];
/// The duration of a blocked thread at full scale.
pub const BLOCK_FULL: Duration = Duration::from_secs(3);
/// The same at a reduced scale. Longer than any response may take with the deadlines of that scale.
const BLOCK_SMALL: Duration = Duration::from_millis(1_600);
/// The time for which a misconfigured node is considered unusable, as `throttlekit-redis` documents it.
const REDIS_UNUSABLE_FOR: Duration = Duration::from_secs(1);
/// One schedule in `n` runs with a block of three seconds.
const FULL_ONE_IN: u64 = 24;
/// Futures of a cancelling runtime are dropped after fewer polls than this.
const POLLS_MAX: u64 = 6;

/// A type whose value callers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `SharedLimiter`: one call for each request.
    Strict,
    /// A leased `SharedLimiter`.
    Leased,
    /// `SharedFairLimiter`, by quanta.
    Fair,
    /// `SharedFairLimiter`, as a region of a pool.
    FairRegion,
    /// `SharedGuard` with slots on the store.
    Slots,
    /// `SharedGuard`, divided.
    Ceiling,
    /// `TokenBudget`.
    Budget,
    /// `SharedPolicy` over slots and limits of one store.
    Policy,
    /// `RemotePolicy` of the client.
    Remote,
    /// Leased `SharedLimiter` over the client's `RemoteStore`.
    RemoteLeased,
}

impl Kind {
    /// All types over a store of the library.
    pub const ON_STORES: [Self; 8] = [
        Self::Strict,
        Self::Leased,
        Self::Fair,
        Self::FairRegion,
        Self::Slots,
        Self::Ceiling,
        Self::Budget,
        Self::Policy,
    ];
    /// All types of the remote client.
    pub const REMOTE: [Self; 2] = [Self::Remote, Self::RemoteLeased];

    /// Returns `true` if work is held under a lease, which a long outage of the store ends correctly.
    pub fn holds_work(self) -> bool {
        matches!(self, Self::Slots | Self::Ceiling | Self::Policy)
    }
}

/// The store of the shared value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    /// In process, behind a connection and a circuit breaker as an engine's would be.
    Memory,
    /// A Redis server.
    Redis,
    /// A PostgreSQL server.
    Postgres,
    /// A ThrottleKit server.
    Server,
}

impl Engine {
    /// Returns the faults that it can have.
    pub fn faults(self) -> &'static [Trouble] {
        match self {
            Self::Memory | Self::Redis => {
                &[Trouble::Refuses, Trouble::Hangs, Trouble::Silent, Trouble::Unusable]
            }
            // An abandoned connection counts there until the peer has closed it, and a silent one never does:
            // opening others instead would take the server's connections from other clients while its commits
            // hang.
            Self::Postgres => &[Trouble::Refuses, Trouble::Hangs],
            Self::Server => &[Trouble::Refuses, Trouble::Hangs, Trouble::Silent],
        }
    }
}

/// A Tokio runtime, driven by a thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// One thread, which is driven only while something is blocked on.
    CurrentThread,
    /// This many worker threads.
    MultiThread(usize),
}

/// The misbehavior of one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// The runtime is dropped.
    Dropped,
    /// The runtime is alive and not driven. The last call's future is dropped, or kept in its current state.
    Idle {
        /// True if the last future is kept.
        keeps_future: bool,
    },
    /// Every thread of the runtime computes for this long.
    Blocked(Duration),
    /// Every future is dropped after a few polls.
    Cancels,
}

/// A fault of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trouble {
    /// Connections are refused and broken.
    Refuses,
    /// No responses until it heals; then all are sent.
    Hangs,
    /// Open connections fall silent forever. New ones work.
    Silent,
    /// It responds that it may not be used, until that is changed.
    Unusable,
}

/// A fault of the store, by the time since the schedule began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The fault.
    pub trouble: Trouble,
    /// Its start.
    pub from: Duration,
    /// Its end.
    pub until: Duration,
}

/// The times that the shared value is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The deadline of a call to the store.
    pub deadline: Duration,
    /// The probe interval of the circuit breaker.
    pub probe_every: Duration,
    /// The number of consecutive outages that open it.
    pub opens_after: u32,
    /// The lifetime of a slot lease, or of the grant of a share.
    pub lives: Duration,
}

/// One caller, on the runtime with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The seed of keys and costs.
    pub seed: u64,
    /// Its start.
    pub starts: Duration,
    /// The pause between calls.
    pub pause: Duration,
    /// The caller's own timeout.
    pub own_timeout: Option<Duration>,
    /// The number of polls of its futures, if it cancels.
    pub polls: Option<u64>,
}

/// Everything that one seed determines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The seed, for replay together with the engine.
    pub seed: u64,
    /// The shared type.
    pub kind: Kind,
    /// The store.
    pub engine: Engine,
    /// The runtimes, the misbehaving one first.
    pub runtimes: Vec<RuntimeKind>,
    /// One for each runtime.
    pub callers: Vec<Caller>,
    /// The misbehavior of the first.
    pub misbehaviour: Misbehaviour,
    /// Its start.
    pub at: Duration,
    /// True if the first also builds the shared value, including connections.
    pub rogue_builds: bool,
    /// The fault of the store.
    pub fault: Option<Fault>,
    /// The times.
    pub timing: Timing,
    /// The end of all callers.
    pub ends: Duration,
}

impl Schedule {
    /// Draws the schedule of a seed on an engine, of one of these kinds.
    pub fn of(seed: u64, engine: Engine, kinds: &[Kind]) -> Self {
        let mut dice = Dice::new(seed ^ ((engine as u64) << 56));
        let kind = dice.pick(kinds);
        let is_full = dice.once_in(FULL_ONE_IN);
        let misbehaviour = misbehaviour(&mut dice, is_full);
        let timing = timing(&mut dice, engine, is_full);
        let calm = ms(dice.between(20, 120));
        let fault = (!dice.once_in(3)).then(|| fault(&mut dice, engine, kind, calm, timing));
        let at = at(&mut dice, calm, fault);
        let count = dice.between(RUNTIMES[0], RUNTIMES[1]) as usize;
        let runtimes = runtimes(&mut dice, misbehaviour, count);
        let callers = callers(&mut dice, misbehaviour, at, timing, count);
        let recovered = recovered(engine, kind, fault, timing, &callers);
        let mut ends = ends(at, recovered, misbehaviour, timing, &callers);
        if kind.holds_work() {
            ends = ends.max(callers[1].starts + work_of(timing) + ms(200));
        }
        let rogue_builds = !dice.once_in(3);
        Self { seed, kind, engine, runtimes, callers, misbehaviour, at, rogue_builds, fault, timing, ends }
    }

    /// Returns `true` if a lease outlives the store's fault: at most a quarter of its life.
    pub fn leases_survive(&self) -> bool {
        let away = self.fault.map_or(Duration::ZERO, |fault| self.recovered().saturating_sub(fault.from));
        away <= self.timing.lives / 4
    }

    /// Returns the time from which the store responds to callers: zero where it never failed.
    ///
    /// A silent connection has to be detected first, by the number of consecutive calls that opens the
    /// breaker.
    pub fn recovered(&self) -> Duration {
        recovered(self.engine, self.kind, self.fault, self.timing, &self.callers)
    }
}

fn recovered(
    engine: Engine,
    kind: Kind,
    fault: Option<Fault>,
    timing: Timing,
    callers: &[Caller],
) -> Duration {
    match fault {
        None => Duration::ZERO,
        Some(Fault { trouble: Trouble::Silent, from, .. }) => from + found_out(kind, timing, callers),
        Some(Fault { trouble: Trouble::Unusable, until, .. }) if engine == Engine::Redis => {
            until + REDIS_UNUSABLE_FOR
        }
        Some(fault) => fault.until,
    }
}

/// Returns the time for the number of calls that opens the breaker, in sequence, by the most patient caller.
/// While work is held, only heartbeats may call: every third of a lease.
fn found_out(kind: Kind, timing: Timing, callers: &[Caller]) -> Duration {
    let heartbeats = if kind.holds_work() { timing.lives / 3 } else { Duration::ZERO };
    let pause = callers.iter().map(|caller| caller.pause).max().unwrap_or_default().max(heartbeats);
    let starts = callers.iter().map(|caller| caller.starts).max().unwrap_or_default();
    starts + (timing.deadline + pause) * (timing.opens_after + 1)
}

/// Returns the duration of the longest work of a schedule: longer than a lease that is not renewed.
pub(super) fn work_of(timing: Timing) -> Duration {
    timing.lives * 5 / 4
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn misbehaviour(dice: &mut Dice, is_full: bool) -> Misbehaviour {
    match dice.below(4) {
        _ if is_full => Misbehaviour::Blocked(BLOCK_FULL),
        0 => Misbehaviour::Dropped,
        1 => Misbehaviour::Idle { keeps_future: dice.once_in(3) },
        2 => Misbehaviour::Blocked(BLOCK_SMALL),
        _ => Misbehaviour::Cancels,
    }
}

fn timing(dice: &mut Dice, engine: Engine, is_full: bool) -> Timing {
    let deadline = match engine {
        _ if is_full => ms(100),
        Engine::Memory => ms(dice.between(50, 90)),
        // A session is a process there.
        Engine::Postgres => ms(dice.between(110, 130)),
        Engine::Redis | Engine::Server => ms(dice.between(60, 90)),
    };
    Timing {
        deadline,
        probe_every: ms(dice.between(20, 60)),
        opens_after: dice.between(2, 5) as u32,
        lives: ms(dice.between(900, 1_200)),
    }
}

fn fault(dice: &mut Dice, engine: Engine, kind: Kind, calm: Duration, timing: Timing) -> Fault {
    let trouble = dice.pick(engine.faults());
    let from = calm + ms(dice.between(0, 60));
    // A lease survives an outage of a quarter of its life: heartbeats come every third.
    let most = if kind.holds_work() { timing.lives / 4 } else { ms(600) };
    let lasts = match trouble {
        Trouble::Silent => Duration::ZERO,
        _ => ms(dice.between(100, (most.as_millis() as u64).max(100))),
    };
    Fault { trouble, from, until: from + lasts }
}

/// Draws an instant before any other call, in calm, or when the store has been unavailable for a while.
fn at(dice: &mut Dice, calm: Duration, fault: Option<Fault>) -> Duration {
    match (dice.below(3), fault) {
        (0, _) => Duration::ZERO,
        (1, Some(fault)) => fault.until.saturating_sub(ms(dice.between(0, 40))).max(fault.from),
        _ => ms(dice.below(calm.as_millis() as u64 + 40)),
    }
}

fn runtimes(dice: &mut Dice, misbehaviour: Misbehaviour, count: usize) -> Vec<RuntimeKind> {
    let any = |dice: &mut Dice| match dice.below(4) {
        0 | 1 => RuntimeKind::CurrentThread,
        2 => RuntimeKind::MultiThread(1),
        _ => RuntimeKind::MultiThread(2),
    };
    let mut all: Vec<_> = (0..count).map(|_| any(dice)).collect();
    // Worker threads drive themselves: only a current-thread runtime can be left idle.
    if let Misbehaviour::Idle { .. } = misbehaviour {
        all[0] = RuntimeKind::CurrentThread;
    }
    all
}

fn callers(
    dice: &mut Dice,
    misbehaviour: Misbehaviour,
    at: Duration,
    timing: Timing,
    count: usize,
) -> Vec<Caller> {
    let patient = dice.once_in(2);
    let short = dice.once_in(3);
    let one = |number: usize, dice: &mut Dice| {
        let is_rogue = number == 0;
        let starts = match is_rogue {
            true => Duration::ZERO,
            // The first caller determines where shared work lives.
            false if patient => at + ms(dice.between(5, 30)),
            false => ms(dice.between(5, 60)),
        };
        let own = || timing.deadline * 3 / 4;
        Caller {
            seed: dice.roll(),
            starts,
            pause: ms(dice.between(3, 20)),
            own_timeout: if is_rogue { dice.once_in(3).then(own) } else { short.then(own) },
            polls: (is_rogue && (misbehaviour == Misbehaviour::Cancels || dice.once_in(2)))
                .then(|| dice.between(1, POLLS_MAX)),
        }
    };
    (0..count).map(|number| one(number, dice)).collect()
}

/// Returns a duration that covers all misbehavior and the recovery from every fault.
fn ends(
    at: Duration,
    recovered: Duration,
    misbehaviour: Misbehaviour,
    timing: Timing,
    callers: &[Caller],
) -> Duration {
    let hurt = match misbehaviour {
        Misbehaviour::Blocked(lasts) => at + lasts,
        _ => at + ms(700),
    };
    let starts = callers.iter().map(|caller| caller.starts).max().unwrap_or_default();
    (recovered + timing.probe_every * 2 + ms(800)).max(hurt).max(starts + ms(500))
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, engine, runtimes, misbehaviour, at, fault, timing, .. } = self;
        write!(f, "{kind:?} on {engine:?}, deadline {:?}: ", timing.deadline)?;
        let polls = self.callers[0].polls;
        write!(f, "{:?} {misbehaviour:?} at {at:?}", runtimes[0])?;
        if let Some(polls) = polls {
            write!(f, ", futures dropped after {polls} polls")?;
        }
        if self.rogue_builds {
            write!(f, ", built there")?;
        }
        if let Some(own) = self.callers[1].own_timeout {
            write!(f, "; callers give up after {own:?}")?;
        }
        match fault {
            None => write!(f, "; no fault of the store"),
            Some(Fault { trouble, from, until }) => {
                write!(f, "; store {trouble:?} from {from:?} to {until:?}")
            }
        }
    }
}
