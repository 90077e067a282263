//! Random scenarios for stores: a policy of several limits, a start time, and operations on a few keys.

use std::fmt;
use std::time::Duration;

use throttlekit_core::lease::Want;
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Cadence, Need, Rule, State};
use throttlekit_core::{Cost, Timestamp};

use crate::scenario::{rhythm, roll_cost, roll_spec, roll_wait};
use crate::text::{nanos, print_duration};
use crate::{Dice, Spec};

/// Nanoseconds in a microsecond, the unit in which stores keep time.
pub const MICRO: u64 = 1_000;
const DAY: u64 = 86_400_000_000_000;
const YEAR: u64 = 365 * DAY;
const YEAR_2023: u64 = 1_700_000_000_000_000_000;
const YEAR_2200: u64 = 7_258_118_400_000_000_000;
/// Lower bound of clocks: an instant near zero is no valid time of a store.
pub(super) const EARLIEST: Timestamp = Timestamp::from_nanos(DAY);
/// In nanoseconds: from here on a double, and so a script, cannot distinguish microseconds.
pub(super) const EXACT_END: u64 = (1 << 53) * MICRO;
const OPERATIONS_MAX: u64 = 32;
/// Number of different keys under each limit.
pub(super) const KEYS: u8 = 3;

/// A request: for each limit the key and the cost.
pub type StoreRequest = Vec<(u8, Cost)>;

/// A lease request of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLease {
    /// One key of each limit.
    pub keys: Vec<u8>,
    /// The limit, which may be one that cannot be leased.
    pub limit: usize,
    /// Set if leased units are kept until spent; else as usual for the limit's kind.
    pub carries: bool,
    /// Number of units.
    pub want: Want,
}

/// A debit that counts once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDebit {
    /// One key of each limit.
    pub keys: Vec<u8>,
    /// The limit, which may be one that supports no debits.
    pub limit: usize,
    /// The stream.
    pub stream: u8,
    /// Position in its stream.
    pub turn: Turn,
    /// Number of tokens. If a debit is repeated with another number, the first counts.
    pub cost: Cost,
    /// Time that it is remembered.
    pub remember: Duration,
}

/// Position of a debit in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This many after the last.
    Next(u64),
    /// The last again, as when the response was lost.
    Again,
    /// This many before the last, as when the network was slow.
    Older(u64),
}

/// One operation on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOperation {
    /// Requests in one batch.
    Admit(Vec<StoreRequest>),
    /// Reads one key of each limit.
    Peek(Vec<u8>),
    /// Computes a forecast.
    Forecast {
        /// One key of each limit.
        keys: Vec<u8>,
        /// The limit.
        limit: usize,
        /// Cost of the requests.
        cost: Cost,
    },
    /// Settles an admitted request with its actual cost; each is settled at most once.
    Settle {
        /// Index among those not settled yet, modulo their number.
        receipt: usize,
        /// Actual usage for each limit.
        used: Vec<Used>,
    },
    /// Leases units to nodes, in one batch.
    Lease(Vec<StoreLease>),
    /// Returns units that were leased for a window.
    LeaseReturn {
        /// Index of the lease, modulo their number.
        loan: usize,
        /// Number of its units; more than it had would be the node's error.
        units: Used,
        /// Set if the same return arrives twice in one batch.
        twice: bool,
    },
    /// Repeats a return that has arrived, by its index modulo their number.
    GiveBackAgain(usize),
    /// Debits with an id, in one batch.
    Debit(Vec<StoreDebit>),
    /// Resets one key of each limit.
    Reset(Vec<u8>),
    /// Time passes.
    Wait(Duration),
    /// Repeats the last denied request with a wait at the end of the wait, plus this many microseconds.
    Retry(i64),
    /// Waits until the reset in the last decision of this limit, plus this many microseconds.
    WaitForReset(usize, i64),
    /// The clock is set back.
    StepBack(Duration),
}

/// Actual usage of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Used {
    Nothing,
    Half,
    OneLess,
    AsCharged,
    OneMore,
    More(Cost),
}

impl Used {
    /// Returns the usage in units, of a charge of `cost`.
    pub fn of(self, cost: Cost) -> Cost {
        match self {
            Self::Nothing => 0,
            Self::Half => cost / 2,
            Self::OneLess => cost.saturating_sub(1),
            Self::AsCharged => cost,
            Self::OneMore => cost.saturating_add(1),
            Self::More(units) => cost.saturating_add(units),
        }
    }
}

/// A policy and the operations on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreScenario {
    /// Replays this scenario.
    pub seed: u64,
    /// The limits that a request must pass: all or any.
    pub need: Need,
    /// The limits, all with a script encoding.
    pub specs: Vec<Spec>,
    /// The limit whose key is the routing key of a request; `None` for one routing key for the policy.
    pub home: Option<usize>,
    /// Start time of the clock.
    pub start: Timestamp,
    /// Set if everything is read after each denial.
    pub looks: bool,
    /// Set if it is run through a limiter, as in production; else directly against the store, which shows more.
    pub through_limiter: bool,
    /// The operations, in order.
    pub operations: Vec<StoreOperation>,
}

impl StoreScenario {
    /// Generates the scenario of a seed.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let about =
            dice.pick(&[About::Asks, About::Asks, About::Asks, About::Loans, About::Loans, About::Debits]);
        let specs = match about {
            About::Asks => roll_specs(&mut dice),
            About::Loans => {
                roll_specs_with(&mut dice, |spec| matches!(spec, Spec::Window { .. } | Spec::Budget { .. }))
            }
            About::Debits => roll_specs_with(&mut dice, |spec| matches!(spec, Spec::Budget { .. })),
        };
        let need = dice.pick(&[Need::All, Need::All, Need::Any]);
        let home = dice.once_in(3).then(|| dice.below(specs.len() as u64) as usize);
        let start = roll_start(&mut dice, &specs);
        let (looks, through_limiter) = (dice.once_in(8), specs.len() <= 3 && dice.once_in(4));
        let count = dice.between(4, OPERATIONS_MAX);
        let operations = (0..count).map(|_| roll_operation(&mut dice, &specs, about)).collect();
        Self { seed, need, specs, home, start, looks, through_limiter, operations }
    }

    /// Returns the last instant of this scenario's clock: its sums stay exact in a double.
    pub fn latest(&self) -> Timestamp {
        latest(&self.specs)
    }
}

/// Returns the last instant at which a script's sums for these limits stay exact.
pub(super) fn latest(specs: &[Spec]) -> Timestamp {
    let end = specs.iter().map(|spec| EXACT_END - 2 * reach(spec)).min();
    Timestamp::from_nanos(micros(end.unwrap_or(YEAR_2200).min(YEAR_2200)))
}

/// Returns how far ahead of now one request may reach: all units and one more, at most a hundred years.
pub fn reach(spec: &Spec) -> u64 {
    let period = spec.limit().map_or(0, |limit| nanos(limit.period()));
    period + rhythm(spec).0
}

fn micros(nanos: u64) -> u64 {
    nanos - nanos % MICRO
}

fn roll_specs(dice: &mut Dice) -> Vec<Spec> {
    let count = if dice.once_in(16) { dice.between(5, 16) } else { dice.between(1, 4) };
    (0..count).map(|_| roll_shareable(dice)).collect()
}

/// The subject of every other operation in a scenario.
#[derive(Clone, Copy, PartialEq)]
enum About {
    Asks,
    Loans,
    Debits,
}

/// Generates a limit of some kind, such as a window from which units are leased and to which they are returned; and
/// perhaps another.
fn roll_specs_with(dice: &mut Dice, is_it: impl Fn(&Spec) -> bool) -> Vec<Spec> {
    let mut specs: Vec<Spec> = (0..dice.between(1, 2)).map(|_| roll_shareable(dice)).collect();
    while !is_it(&specs[0]) {
        specs[0] = roll_shareable(dice);
    }
    specs
}

/// Generates a limit that every shared store supports.
pub fn roll_shareable(dice: &mut Dice) -> Spec {
    loop {
        let spec = in_micros(roll_spec(dice), dice);
        if spec.limit().is_ok_and(|limit| ScriptEncoding::of(&limit).is_ok()) {
            return spec;
        }
    }
}

/// Returns the same with windows of whole microseconds, at least one a bucket. Rates stay as awkward as they are.
fn in_micros(spec: Spec, dice: &mut Dice) -> Spec {
    let up = |length: Duration| Duration::from_nanos(nanos(length).div_ceil(MICRO) * MICRO);
    match spec {
        Spec::Window { limit, cadence: Cadence::Every { length, anchor } } => {
            let anchor = Timestamp::from_nanos(micros(anchor.as_nanos()));
            Spec::Window { limit, cadence: Cadence::Every { length: up(length), anchor } }
        }
        Spec::Budget { limit, cadence: Cadence::Every { length, anchor } } => {
            let anchor = Timestamp::from_nanos(micros(anchor.as_nanos()));
            Spec::Budget { limit, cadence: Cadence::Every { length: up(length), anchor } }
        }
        Spec::SlidingWindow { limit, length, buckets, .. } => {
            let length = up(length).max(Duration::from_micros(buckets.into()));
            Spec::SlidingWindow { limit, length, buckets, exact: !dice.once_in(8) }
        }
        Spec::SlidingLog { limit, length } => Spec::SlidingLog { limit, length: up(length) },
        other => other,
    }
}

/// Generates a start: days after the epoch, about now, or anywhere until 2200; often a microsecond around the edge of a
/// window.
fn roll_start(dice: &mut Dice, specs: &[Spec]) -> Timestamp {
    let (soon, now) = (3 * DAY + dice.any_size(30 * DAY), YEAR_2023 + dice.any_size(3 * YEAR));
    let any = dice.between(3 * DAY, YEAR_2200);
    let last = latest(specs);
    let start = Timestamp::from_nanos(dice.pick(&[soon, now, now, any])).min(last);
    let spec = dice.pick(specs);
    let edge = spec.limit().map_or(start, |limit| limit.decide(&State::Fresh, 0, start).reset_at);
    let around = (micros(edge.as_nanos()) + dice.below(3) * MICRO).saturating_sub(MICRO);
    let start = if dice.once_in(2) { around } else { micros(start.as_nanos()) };
    Timestamp::from_nanos(start).min(last)
}

/// Generates an operation. In a scenario about leases, every other one is: a return follows a lease, and a copy of it a
/// return. The same applies to debits and their repetitions.
fn roll_operation(dice: &mut Dice, specs: &[Spec], about: About) -> StoreOperation {
    match about {
        About::Loans if dice.once_in(2) => return roll_lending(dice, specs),
        About::Debits if dice.once_in(2) => return roll_debits(dice, specs),
        _ => {}
    }
    let limit = dice.below(specs.len() as u64) as usize;
    let off = dice.below(3).cast_signed() - 1;
    match dice.below(28) {
        0..=9 => StoreOperation::Admit(vec![roll_ask(dice, specs)]),
        10 | 11 => roll_flight(dice, specs),
        12 => StoreOperation::Peek(roll_keys(dice, specs)),
        13 => {
            let cost = roll_store_cost(dice, &specs[limit]);
            StoreOperation::Forecast { keys: roll_keys(dice, specs), limit, cost }
        }
        14 if dice.once_in(2) => StoreOperation::Reset(roll_keys(dice, specs)),
        15..=18 => StoreOperation::Settle {
            receipt: dice.below(64) as usize,
            used: specs.iter().map(|spec| roll_used(dice, spec)).collect(),
        },
        19 => StoreOperation::StepBack(roll_wait_micros(dice, &specs[limit])),
        20 | 21 => StoreOperation::Retry(off),
        22 | 23 => StoreOperation::WaitForReset(limit, off),
        24 => roll_lending(dice, specs),
        25 => roll_debits(dice, specs),
        _ => StoreOperation::Wait(roll_wait_micros(dice, &specs[limit])),
    }
}

fn roll_lending(dice: &mut Dice, specs: &[Spec]) -> StoreOperation {
    let nth = dice.below(64) as usize;
    match dice.below(12) {
        0..=5 => {
            let count = if dice.once_in(3) { dice.between(2, 4) } else { 1 };
            StoreOperation::Lease((0..count).map(|_| roll_lease(dice, specs)).collect())
        }
        6..=8 => {
            let (units, twice) = (roll_used(dice, &specs[0]), dice.once_in(4));
            StoreOperation::LeaseReturn { loan: nth, units, twice }
        }
        9 | 10 => StoreOperation::GiveBackAgain(nth),
        _ => StoreOperation::Reset(roll_keys(dice, specs)),
    }
}

fn roll_debits(dice: &mut Dice, specs: &[Spec]) -> StoreOperation {
    let count = if dice.once_in(4) { dice.between(2, 4) } else { 1 };
    StoreOperation::Debit((0..count).map(|_| roll_debit(dice, specs)).collect())
}

fn roll_debit(dice: &mut Dice, specs: &[Spec]) -> StoreDebit {
    let any = dice.below(specs.len() as u64) as usize;
    let counting = |spec: &Spec| matches!(spec, Spec::Window { .. } | Spec::Budget { .. });
    let metered: Vec<usize> = (0..specs.len()).filter(|&limit| counting(&specs[limit])).collect();
    let limit = if metered.is_empty() || dice.once_in(8) { any } else { dice.pick(&metered) };
    let period = Duration::from_nanos(rhythm(&specs[limit]).1.div_ceil(MICRO) * MICRO);
    let second = Duration::from_secs(1);
    StoreDebit {
        keys: roll_keys(dice, specs),
        limit,
        stream: dice.below(2) as u8,
        turn: dice.pick(&[
            Turn::Next(1),
            Turn::Next(1),
            Turn::Next(9),
            Turn::Again,
            Turn::Again,
            Turn::Older(1),
        ]),
        cost: roll_store_cost(dice, &specs[limit]),
        remember: dice.pick(&[period, period, period * 2, second, 60 * second, 86_400 * second]),
    }
}

/// Generates a batch of requests, half of the time all by the same keys; now and then empty.
fn roll_flight(dice: &mut Dice, specs: &[Spec]) -> StoreOperation {
    let count = if dice.once_in(16) { 0 } else { dice.between(2, 6) };
    let mut asks: Vec<StoreRequest> = (0..count).map(|_| roll_ask(dice, specs)).collect();
    if dice.once_in(2) && !asks.is_empty() {
        let keys: Vec<u8> = asks[0].iter().map(|(key, _)| *key).collect();
        for ask in &mut asks {
            ask.iter_mut().zip(&keys).for_each(|((key, _), first)| *key = *first);
        }
    }
    StoreOperation::Admit(asks)
}

fn roll_keys(dice: &mut Dice, specs: &[Spec]) -> Vec<u8> {
    specs.iter().map(|_| roll_key(dice)).collect()
}

/// Generates a key. One key is used more than the others, so that it reaches its limits.
fn roll_key(dice: &mut Dice) -> u8 {
    dice.pick(&[0, 0, 0, 1, KEYS - 1])
}

/// Generates a request: everything at one unit, or one limit at an odd cost, or each at its own. With many limits a
/// denial by one must not be all that ever happens.
fn roll_ask(dice: &mut Dice, specs: &[Spec]) -> StoreRequest {
    let odd = dice.below(specs.len() as u64) as usize;
    let mode = dice.below(3);
    let mut cost = |index: usize, spec: &Spec| match mode {
        0 => 1,
        1 if index != odd => 1,
        _ => roll_store_cost(dice, spec),
    };
    let costs: Vec<Cost> = specs.iter().enumerate().map(|(index, spec)| cost(index, spec)).collect();
    costs.into_iter().map(|cost| (roll_key(dice), cost)).collect()
}

/// Generates a cost, mostly near the edges of the limit.
pub fn roll_store_cost(dice: &mut Dice, spec: &Spec) -> Cost {
    let limit = spec.limit().map_or(1, |limit| limit.units());
    let near = limit.saturating_sub(dice.below(3));
    match dice.below(20) {
        0 => u64::MAX,
        1..=3 => near,
        4 | 5 => limit / 2,
        _ => roll_cost(dice, spec),
    }
}

/// Generates the actual usage of a charge.
pub fn roll_used(dice: &mut Dice, spec: &Spec) -> Used {
    use Used::*;
    let limit = spec.limit().map_or(1, |limit| limit.units());
    let few = More(dice.between(2, 9));
    let (full, any) = (More(limit), More(dice.any_size(u64::MAX)));
    dice.pick(&[Nothing, Nothing, Half, Half, OneLess, AsCharged, OneMore, few, full, any])
}

fn roll_lease(dice: &mut Dice, specs: &[Spec]) -> StoreLease {
    let any = dice.below(specs.len() as u64) as usize;
    let lending: Vec<usize> = (0..specs.len()).filter(|&limit| lends(&specs[limit])).collect();
    let limit = if lending.is_empty() || dice.once_in(8) { any } else { dice.pick(&lending) };
    let want = roll_want(dice, &specs[limit]);
    StoreLease { keys: roll_keys(dice, specs), limit, carries: dice.once_in(5), want }
}

pub(super) fn lends(spec: &Spec) -> bool {
    matches!(spec, Spec::Window { .. } | Spec::Budget { .. } | Spec::Gcra { .. } | Spec::TokenBucket { .. })
}

/// Generates a lease request: mostly realistic; now and then not.
pub fn roll_want(dice: &mut Dice, spec: &Spec) -> Want {
    let limit = spec.limit().map_or(1, |limit| limit.units());
    let (part, any) = (dice.between(1, limit), dice.any_size(u64::MAX));
    let wants = roll_store_cost(dice, spec);
    let least = dice.pick(&[1, 1, 1, 1, 0, 2, part, limit, limit + 1, any]);
    let share = dice.pick(&[1, 1, 1, 2, 2, 3, 4, 10, 0, part, any, u64::MAX]);
    Want { wants, least, share }
}

/// Generates a wait to the microsecond around an edge.
pub fn roll_wait_micros(dice: &mut Dice, spec: &Spec) -> Duration {
    let wait = nanos(roll_wait(dice, spec)).div_ceil(MICRO) + dice.below(3);
    Duration::from_micros(wait.saturating_sub(1))
}

impl fmt::Display for StoreScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, need, home, start, through_limiter, .. } = self;
        let fixture = if *through_limiter { "through a limiter" } else { "at the store" };
        writeln!(f, "seed {seed}, {need:?} of these limits, home {home:?}, clock at {start}, {fixture}")?;
        self.specs.iter().enumerate().try_for_each(|(i, spec)| writeln!(f, "  limit {i}: {spec}"))?;
        self.operations.iter().try_for_each(|operation| match operation {
            StoreOperation::Wait(by) => writeln!(f, "  wait {}", print_duration(*by)),
            StoreOperation::StepBack(by) => writeln!(f, "  step back {}", print_duration(*by)),
            other => writeln!(f, "  {other:?}"),
        })
    }
}
