//! Random worlds for stores: a policy of several limits, a beginning, and what happens to a few keys.

use std::fmt;
use std::time::Duration;

use throttlekit_core::lease::Want;
use throttlekit_core::rate::shared::SharedForm;
use throttlekit_core::rate::{Cadence, Need, Rule, State};
use throttlekit_core::{Cost, Timestamp};

use crate::text::{nanos, print_duration};
use crate::world::{rhythm, roll_cost, roll_spec, roll_wait};
use crate::{Dice, Spec};

/// Nanoseconds in a microsecond, the unit in which stores keep time.
pub const MICRO: u64 = 1_000;
const DAY: u64 = 86_400_000_000_000;
const YEAR: u64 = 365 * DAY;
const YEAR_2023: u64 = 1_700_000_000_000_000_000;
const YEAR_2200: u64 = 7_258_118_400_000_000_000;
/// No clock goes back behind this: an instant near zero is no instant of a store.
pub(super) const EARLIEST: Timestamp = Timestamp::from_nanos(DAY);
/// In nanoseconds: from here on a double, and so a script, no longer tells microseconds apart.
pub(super) const EXACT_END: u64 = (1 << 53) * MICRO;
const OPERATIONS_MAX: u64 = 32;
/// Different keys under each limit.
pub(super) const KEYS: u8 = 3;

/// What each limit is asked at: who, and for how much.
pub type StoreAsk = Vec<(u8, Cost)>;

/// What a node asks to be lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLease {
    /// One key of each limit.
    pub keys: Vec<u8>,
    /// On this limit, which may be one that does not lend.
    pub limit: usize,
    /// Whether what is lent lives until it is spent; else as is usual for the limit's kind.
    pub carries: bool,
    /// How much.
    pub want: Want,
}

/// A debit that counts once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDebit {
    /// One key of each limit.
    pub keys: Vec<u8>,
    /// On this limit, which may be one that takes no debits.
    pub limit: usize,
    /// Of this stream.
    pub stream: u8,
    /// Which of its debits.
    pub turn: Turn,
    /// How many tokens. Where a debit comes again with other tokens, what it said first counts.
    pub cost: Cost,
    /// How long it is remembered.
    pub remember: Duration,
}

/// Where in its stream a debit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// So many after the last.
    Next(u64),
    /// The last again, as where the answer was lost.
    Again,
    /// So many before the last, as where the network was slow.
    Older(u64),
}

/// One thing that happens to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOperation {
    /// Asks in one flight.
    Admit(Vec<StoreAsk>),
    /// Somebody looks at one key of each limit.
    Peek(Vec<u8>),
    /// Somebody plans ahead.
    Forecast {
        /// One key of each limit.
        keys: Vec<u8>,
        /// On this limit.
        limit: usize,
        /// For asks of this cost.
        cost: Cost,
    },
    /// The true cost of an admitted ask becomes known; each is settled once at the most.
    Settle {
        /// Which of those that are not settled yet, counted round.
        receipt: usize,
        /// What each limit finds to have been used.
        used: Vec<Used>,
    },
    /// Nodes are lent units, in one flight.
    Lease(Vec<StoreLease>),
    /// Units that were lent for a window come back.
    GiveBack {
        /// Of which loan, counted round.
        loan: usize,
        /// How many of its units; more than it had would be the node's error.
        units: Used,
        /// Whether the same arrives twice in one flight.
        twice: bool,
    },
    /// A return that has arrived arrives again; which one, counted round.
    GiveBackAgain(usize),
    /// Debits by name, in one flight.
    Debit(Vec<StoreDebit>),
    /// One key of each limit is forgotten.
    Reset(Vec<u8>),
    /// Time goes by.
    Wait(Duration),
    /// The last ask that was told to wait is asked again when it was told to, and so many microseconds later.
    Retry(i64),
    /// Until the last answer of this limit says that all is free, and so many microseconds.
    WaitForReset(usize, i64),
    /// The clock is set back.
    StepBack(Duration),
}

/// What was used of a charge.
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
    /// In units, of a charge of `cost`.
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

/// A policy and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreWorld {
    /// Replays this world.
    pub seed: u64,
    /// Which of the limits an ask must clear.
    pub need: Need,
    /// The limits, all with a shared form.
    pub specs: Vec<Spec>,
    /// The limit whose key says where all keys of an ask live; none keeps the policy in one place.
    pub home: Option<usize>,
    /// What the clock shows at first.
    pub start: Timestamp,
    /// Whether everything is looked at after each denial.
    pub looks: bool,
    /// Whether it is played through a limiter, as users do; else straight to the store, which tells more.
    pub through_limiter: bool,
    /// What happens, in order.
    pub operations: Vec<StoreOperation>,
}

impl StoreWorld {
    /// The world of a seed.
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

    /// The last instant of this world's clock: its sums stay exact in a double.
    pub fn latest(&self) -> Timestamp {
        latest(&self.specs)
    }
}

/// The last instant at which whatever a script adds up for these limits stays exact.
pub(super) fn latest(specs: &[Spec]) -> Timestamp {
    let end = specs.iter().map(|spec| EXACT_END - 2 * reach(spec)).min();
    Timestamp::from_nanos(micros(end.unwrap_or(YEAR_2200).min(YEAR_2200)))
}

/// How far ahead of now one ask may look: all units and one more, at most a hundred years.
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

/// What every other thing in a world is about.
#[derive(Clone, Copy, PartialEq)]
enum About {
    Asks,
    Loans,
    Debits,
}

/// A limit of some kind, as a window from which units are lent and to which they come back; and perhaps another.
fn roll_specs_with(dice: &mut Dice, is_it: impl Fn(&Spec) -> bool) -> Vec<Spec> {
    let mut specs: Vec<Spec> = (0..dice.between(1, 2)).map(|_| roll_shareable(dice)).collect();
    while !is_it(&specs[0]) {
        specs[0] = roll_shareable(dice);
    }
    specs
}

/// Rolls a limit that every shared store can keep.
pub fn roll_shareable(dice: &mut Dice) -> Spec {
    loop {
        let spec = in_micros(roll_spec(dice), dice);
        if spec.limit().is_ok_and(|limit| SharedForm::of(&limit).is_ok()) {
            return spec;
        }
    }
}

/// The same with windows of whole microseconds, at least one a bucket. Rates stay as awkward as they are.
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

/// Days after the epoch, about now, or anywhere until 2200; often a microsecond around the edge of a window.
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

/// In a world about loans, every other thing is: a return takes a loan before it, and a copy of it a return. So with
/// debits, and the same again.
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
            StoreOperation::GiveBack { loan: nth, units, twice }
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

/// Some asks at once, half of the time all by the same keys; now and then none.
fn roll_flight(dice: &mut Dice, specs: &[Spec]) -> StoreOperation {
    let count = if dice.once_in(16) { 0 } else { dice.between(2, 6) };
    let mut asks: Vec<StoreAsk> = (0..count).map(|_| roll_ask(dice, specs)).collect();
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

/// One key is asked for more than the others, so that something happens to it.
fn roll_key(dice: &mut Dice) -> u8 {
    dice.pick(&[0, 0, 0, 1, KEYS - 1])
}

/// Everything at one unit, or one limit at an odd cost, or each at its own: with many limits a denial by one
/// must not be all that ever happens.
fn roll_ask(dice: &mut Dice, specs: &[Spec]) -> StoreAsk {
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

/// Rolls a cost, mostly near the edges of the limit.
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

/// Rolls what was used of a charge.
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

/// Mostly what a node might want; now and then what none would.
pub fn roll_want(dice: &mut Dice, spec: &Spec) -> Want {
    let limit = spec.limit().map_or(1, |limit| limit.units());
    let (part, any) = (dice.between(1, limit), dice.any_size(u64::MAX));
    let wants = roll_store_cost(dice, spec);
    let least = dice.pick(&[1, 1, 1, 1, 0, 2, part, limit, limit + 1, any]);
    let share = dice.pick(&[1, 1, 1, 2, 2, 3, 4, 10, 0, part, any, u64::MAX]);
    Want { wants, least, share }
}

/// A wait to the microsecond around an edge.
pub fn roll_wait_micros(dice: &mut Dice, spec: &Spec) -> Duration {
    let wait = nanos(roll_wait(dice, spec)).div_ceil(MICRO) + dice.below(3);
    Duration::from_micros(wait.saturating_sub(1))
}

impl fmt::Display for StoreWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, need, home, start, through_limiter, .. } = self;
        let seat = if *through_limiter { "through a limiter" } else { "at the store" };
        writeln!(f, "seed {seed}, {need:?} of these limits, home {home:?}, clock at {start}, {seat}")?;
        self.specs.iter().enumerate().try_for_each(|(i, spec)| writeln!(f, "  limit {i}: {spec}"))?;
        self.operations.iter().try_for_each(|operation| match operation {
            StoreOperation::Wait(by) => writeln!(f, "  wait {}", print_duration(*by)),
            StoreOperation::StepBack(by) => writeln!(f, "  step back {}", print_duration(*by)),
            other => writeln!(f, "  {other:?}"),
        })
    }
}
