//! `bid-price` over policies: the filter only removes admits, and runs before anything is charged.
//!
//! A trace runs on a policy with prices: constant ones, those of a workload, or ones that are refined as
//! calls come; over two axes or three; in process, fused on a store, and sequential. A reference has the
//! limits alone and follows the charges of the priced policy. A call that the price denied must have left
//! every state unchanged; every other one must get the response of the limits alone from the same state, in
//! every field. So a call admitted with prices is admitted without, and nothing is charged before the filter.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::guard::Ending;
use throttlekit::price::{Bid, Refiner, solve_fluid_lp};
use throttlekit::rate::Timestamp;
use throttlekit::store::{Store, StoreError};
use throttlekit::{Axis, Limit};

use super::fixture::Either;
use super::fused_scenario::{KEYS, RULES, Rules, roll_micros, roll_spec};
use super::model::{AdmissionBug, Model, Setup};
use super::pair::{AXES, Extras, OnStore, Pairs, Pricing, SeededPairs, Way};
use super::subject::{Asked, End, Heard, Subject};
use crate::price::Belief;
use throttlekit_conformance::check::{Check, ensure};
use throttlekit_conformance::invariants::Violation;
use throttlekit_conformance::runner::{self, Played, Tally};
use throttlekit_conformance::stores::{Used, policy_name, same_state};
use throttlekit_conformance::{Dice, Spec};

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Ask { key: usize, cost: u64, value: f64, hold: Option<f64> },
    Settle { permit: usize, used: Used },
    Wait(Duration),
}

/// Limits, prices and a trace.
#[derive(Clone, Debug)]
pub struct PricedScenario {
    seed: u64,
    rate: Spec,
    cost: Spec,
    extras: Extras,
    start: Timestamp,
    operations: Vec<Operation>,
}

/// Counts of what was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PricedReport {
    /// Traces run, each in three variants.
    pub traces: u64,
    /// Calls.
    pub asks: u64,
    /// Calls that the price denied.
    pub priced_out: u64,
    /// Of these, calls that the limits alone would have admitted.
    pub removed: u64,
    /// Calls that were admitted.
    pub admitted: u64,
    /// Traces whose prices are refined.
    pub refined: u64,
}

impl Tally for PricedReport {
    fn plus(self, other: Self) -> Self {
        Self {
            traces: self.traces + other.traces,
            asks: self.asks + other.asks,
            priced_out: self.priced_out + other.priced_out,
            removed: self.removed + other.removed,
            admitted: self.admitted + other.admitted,
            refined: self.refined + other.refined,
        }
    }
}

impl PricedReport {
    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Tally::plus(self, other)
    }

    /// Returns `true` if every kind of decision occurred.
    pub fn saw_all(&self) -> bool {
        [self.removed, self.admitted, self.refined, self.priced_out - self.removed]
            .iter()
            .all(|seen| *seen > 0)
    }
}

/// The bugs that the examination must find.
pub const PRICED_BUGS: [AdmissionBug; 5] = [
    AdmissionBug::PriceLate,
    AdmissionBug::SlotKept,
    AdmissionBug::ValueBuysIn,
    AdmissionBug::RateKept,
    AdmissionBug::PriceBeforeSlots,
];

/// Runs the traces of these seeds on a store, and in process. Stops at the first violation.
pub async fn examine_priced<S, M, F>(make: M, seeds: std::ops::Range<u64>) -> Result<PricedReport, Violation>
where
    S: Store,
    M: Fn(ManualClock) -> F + Send + Sync + 'static,
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    let make = std::sync::Arc::new(make);
    let make = move |clock| {
        let make = make.clone();
        async move { Ok(OnStore::new(make(clock).await?)) }
    };
    runner::examine::<PricedScenario, OnStore<S>, _, _>(make, seeds).await
}

/// Returns the number of traces until a seeded bug is found, if `traces_max` are enough. Without a bug,
/// returns `Some` if there is a false positive.
pub async fn find_priced_bug(bug: Option<AdmissionBug>, traces_max: u64) -> Option<u64> {
    let make = move |clock| async move { Ok(SeededPairs::new(clock, bug)) };
    let found = runner::examine::<PricedScenario, SeededPairs, _, _>(make, 0..traces_max).await;
    found.err().map(|violation| violation.seed + 1)
}

impl PricedScenario {
    /// Draws the scenario of this seed: prices of each kind in turn, over two axes and three.
    fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let rules = RULES.map(|(_, rule)| rule);
        let no_shaper: Vec<Rules> = rules.into_iter().filter(|rule| *rule != Rules::LeakyBucket).collect();
        let (calls, tokens) = (dice.between(1, 5), dice.between(1, 40));
        let rule = dice.pick(&no_shaper);
        let rate = roll_spec(&mut dice, rule, calls);
        let rule = dice.pick(&no_shaper);
        let cost = roll_spec(&mut dice, rule, tokens);
        let slots = dice.once_in(2).then(|| dice.between(1, 3) as u32);
        let pricing = roll_pricing(&mut dice, seed % 3);
        let count = dice.between(6, 16);
        let operations = (0..count).map(|_| roll_operation(&mut dice, [&rate, &cost])).collect();
        let start = Timestamp::from_micros(1_700_000_000_000_000 + dice.below(1 << 45));
        Self { seed, rate, cost, extras: Extras { slots, pricing: Some(pricing) }, start, operations }
    }
}

fn roll_pricing(dice: &mut Dice, kind: u64) -> Pricing {
    let belief = Belief::roll(dice);
    match kind {
        0 => {
            let price = |dice: &mut Dice| dice.below(100) as f64 / 10.0;
            let (rate, cost, hold) = (price(dice), price(dice) / 10.0, price(dice));
            Pricing::Fixed(throttlekit::price::Prices { rate, cost, hold })
        }
        1 => {
            let solution = solve_fluid_lp(&belief.kinds, &belief.budgets).expect("a belief is sound");
            Pricing::Fixed(solution.duals)
        }
        _ => {
            let refiner = Refiner::new(&belief.kinds, &belief.budgets, belief.options);
            Pricing::Refined(refiner.expect("a belief is sound"))
        }
    }
}

fn roll_operation(dice: &mut Dice, specs: [&Spec; 2]) -> Operation {
    match dice.below(10) {
        0..=6 => Operation::Ask {
            key: dice.pick(&[0, 0, 0, 1]),
            cost: dice.between(0, 20),
            value: dice.pick(&[0.0, 1.0, 5.0, 20.0, 100.0, 1e9]),
            hold: dice.once_in(2).then(|| dice.below(5) as f64),
        },
        7 | 8 => Operation::Settle {
            permit: dice.below(4) as usize,
            used: dice.pick(&[Used::Nothing, Used::Half, Used::AsCharged, Used::OneMore]),
        },
        _ => Operation::Wait(roll_micros(dice, specs)),
    }
}

impl<P: Pairs> Played<P> for PricedScenario {
    type Report = PricedReport;

    fn of(seed: u64) -> Self {
        Self::roll(seed)
    }

    fn shorter(&self) -> Vec<Self> {
        let without = |i: usize| {
            let mut scenario = self.clone();
            scenario.operations.remove(i);
            scenario
        };
        (0..self.operations.len()).map(without).collect()
    }

    async fn play(&self, pairs: &P, clock: &ManualClock) -> Result<PricedReport, String> {
        let told = |error: throttlekit::BuildError| error.to_string();
        let (name, limits) = (policy_name(self.seed), [self.rate, self.cost].map(|spec| spec.limit()));
        let [rate, cost] = limits.map(|limit| limit.map_err(|error| told(error.into())));
        let limits = [rate?, cost?];
        let fused = pairs.fused(&name, limits, &self.extras).map_err(told)?;
        let sequential = pairs.sequential(&format!("{name}-s"), limits, &self.extras).map_err(told)?;
        clock.set(self.start);
        let local = pairs.local(limits, clock, &self.extras).map_err(told)?;
        let mut ways: Vec<(&str, AnyWay<P>)> =
            vec![("fused", Either::Shared(fused)), ("in process", Either::Local(local))];
        ways.extend(sequential.map(|way| ("sequential", Either::Shared(way))));
        let mut report = PricedReport::default();
        for (way, subject) in &ways {
            let played = self.play_way(subject, limits, clock).await;
            report = report.plus(played.map_err(|counterexample| format!("{way}: {counterexample}"))?);
        }
        let refined = u64::from(matches!(self.extras.pricing, Some(Pricing::Refined(_))));
        Ok(PricedReport { traces: 1, refined, ..report })
    }
}

type AnyWay<P> = Either<<P as Pairs>::Local, <P as Pairs>::Way>;

impl PricedScenario {
    async fn play_way<L: Subject, W: Way>(
        &self,
        way: &Either<L, W>,
        limits: [Limit; 2],
        clock: &ManualClock,
    ) -> Result<PricedReport, String> {
        clock.set(self.start);
        let setup = Setup {
            slots: self.extras.slots,
            rate: Some(limits[0]),
            cost: Some(limits[1]),
            ..Setup::default()
        };
        let alone = Model::new(setup, clock.clone(), None);
        let (mut open, mut now, mut report) = (Vec::new(), self.start, PricedReport::default());
        for operation in &self.operations {
            match *operation {
                Operation::Wait(by) => {
                    now = now + by;
                    clock.set(now);
                }
                Operation::Settle { permit, used } if !open.is_empty() => {
                    let place = permit % open.len();
                    let (held, ticket, cost) = open.remove(place);
                    let end = End { actual: Some(used.of(cost)), ending: Ending::Success };
                    end_either(way, held, end).await.map_err(|error| error.to_string())?;
                    alone.leave(&ticket, end);
                }
                Operation::Settle { .. } => {}
                Operation::Ask { key, cost, value, hold } => {
                    let ask = Asked { value, hold, ..Asked::by(KEYS[key], cost) };
                    let heard = admit_either(way, &ask).await.map_err(|error| error.to_string())?;
                    report.asks += 1;
                    if heard.policy_denied {
                        report.priced_out += 1;
                        report.removed += u64::from(self.priced_out(&alone, &ask, &heard)?);
                        look(way, &alone, limits, KEYS[key], now).await?;
                        continue;
                    }
                    let want = alone.ask(&ask);
                    let (want_words, got) = (want.words(), heard.words());
                    ensure(want_words == got, || {
                        format!("{ask:?}:\n  alone {want_words:?}\n  priced {got:?}")
                    })?;
                    if let Some(Pricing::Fixed(prices)) = &self.extras.pricing {
                        let slot = want.binding != Some(Axis::Concurrency);
                        let clears = prices.admits(&Bid { value, cost, hold });
                        ensure(clears || !slot, || {
                            format!("{ask:?} is worth less than {prices:?}, and passed")
                        })?;
                    }
                    if let (Some(held), Some(ticket)) = (heard.held, want.held) {
                        report.admitted += 1;
                        open.push((held, ticket, cost));
                    }
                }
            }
        }
        for key in KEYS {
            look(way, &alone, limits, key, now).await?;
        }
        Ok(report)
    }

    /// Checks a denial by the price. Returns `true` if the limits alone would have admitted the call.
    fn priced_out<H>(&self, alone: &Model, ask: &Asked<'_>, heard: &Heard<H>) -> Result<bool, String> {
        let after = heard.said[1..].iter().any(Option::is_some);
        let words = heard.words();
        ensure(!heard.decision.allowed && heard.binding.is_none() && !after && heard.held.is_none(), || {
            format!("a denial by the price that is more than that: {words:?}")
        })?;
        if let Some(Pricing::Fixed(prices)) = &self.extras.pricing {
            let clears = prices.admits(&Bid { value: ask.value, cost: ask.cost, hold: ask.hold });
            ensure(!clears, || format!("{ask:?} is worth {prices:?}, and was denied by the price"))?;
        }
        ensure(alone.has_slot(), || format!("{ask:?} was priced though no slot was free"))?;
        Ok(alone.would_admit(ask))
    }
}

/// Checks that a denial by the price is free: every state is that of the limits alone.
async fn look<L: Subject, W: Way>(
    way: &Either<L, W>,
    alone: &Model,
    limits: [Limit; 2],
    key: &str,
    now: Timestamp,
) -> Check {
    let Either::Shared(way) = way else { return Ok(()) };
    let states = way.states(key).await.map_err(|error| error.to_string())?;
    for ((axis, limit), got) in AXES.into_iter().zip(limits).zip(&states) {
        let (limit, want) = (limit.uncrossed(), alone.state(axis, key));
        let same = same_state(&limit, &want, got, now)
            || super::fused::same_meaning(&limit, &want, got, now).is_ok();
        ensure(same, || format!("{axis} of {key}: want {want:?}, got {got:?}"))?;
    }
    Ok(())
}

async fn admit_either<L: Subject, W: Way>(
    way: &Either<L, W>,
    ask: &Asked<'_>,
) -> Result<Heard<Either<L::Held, W::Held>>, StoreError> {
    Ok(match way {
        Either::Local(way) => way.admit(ask).await?.map(Either::Local),
        Either::Shared(way) => way.admit(ask).await?.map(Either::Shared),
    })
}

async fn end_either<L: Subject, W: Way>(
    way: &Either<L, W>,
    held: Either<L::Held, W::Held>,
    end: End,
) -> Result<(), StoreError> {
    match (way, held) {
        (Either::Local(way), Either::Local(held)) => way.end(held, end).await,
        (Either::Shared(way), Either::Shared(held)) => way.end(held, end).await,
        _ => Ok(()),
    }
}
