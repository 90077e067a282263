//! Checks that the response over several limits and axes does not depend on the order in which they are
//! named, and is the `combine` of them: for each axis the fold of its deniers, or of all its limits; for the
//! call the first denier's, or the fold of all axes.

use std::sync::Arc;

use throttlekit::clock::ManualClock;
use throttlekit::rate::{ALLOW_FULL, Timestamp, combine};
use throttlekit::{Axis, Call, Decision, Limit, Policy};
use throttlekit_core::rate::{Rule, State};

use super::fused_scenario::{RULES, roll_spec};
use throttlekit_conformance::Dice;
use throttlekit_conformance::check::{Check, ensure};

const CALLS: usize = 8;

/// Computes the decision of an axis from those of its limits, in the order in which they are named.
pub type AxisFold = fn(&[Decision]) -> Decision;

throttlekit_conformance::bugs! {
    /// A bug in the fold of the limits of one axis. The first depends on their order.
    pub enum OrderBug {
        FirstDenier: "The first denier's answer is returned.",
        LastLimit: "The last limit's answer is returned.",
        FoldOfAll: "The fold of all limits is returned though one denied.",
    }
}

impl OrderBug {
    /// Returns the wrong fold.
    pub fn fold(self) -> AxisFold {
        match self {
            Self::FirstDenier => {
                |said| said.iter().find(|decision| !decision.allowed).copied().unwrap_or_else(|| fold(said))
            }
            Self::LastLimit => |said| said.last().copied().unwrap_or(ALLOW_FULL),
            Self::FoldOfAll => |said| said.iter().copied().fold(ALLOW_FULL, combine),
        }
    }
}

/// The correct fold.
fn fold(said: &[Decision]) -> Decision {
    let denied = said.iter().any(|decision| !decision.allowed);
    let deciders = said.iter().filter(|decision| decision.allowed != denied).copied();
    deciders.reduce(combine).unwrap_or(ALLOW_FULL)
}

/// Limits, calls and a start time.
struct Scenario {
    limits: Vec<(Axis, Limit)>,
    calls: Vec<(u64, u64)>,
}

impl Scenario {
    fn roll(dice: &mut Dice) -> Self {
        let count = dice.between(2, 6);
        let limits = (0..count).map(|_| {
            let (axis, units) = if dice.once_in(2) {
                (Axis::Rate, dice.between(1, 5))
            } else {
                (Axis::Cost, dice.between(1, 40))
            };
            let rule = RULES[dice.below(RULES.len() as u64) as usize].1;
            (axis, roll_spec(dice, rule, units).limit().expect("a sound limit"))
        });
        let limits = limits.collect();
        let calls = (0..CALLS).map(|_| (dice.below(2) * dice.below(2_000), dice.between(0, 20))).collect();
        Self { limits, calls }
    }

    fn shuffled(&self, dice: &mut Dice) -> Self {
        let mut limits = self.limits.clone();
        for i in (1..limits.len()).rev() {
            limits.swap(i, dice.below(i as u64 + 1) as usize);
        }
        Self { limits, calls: self.calls.clone() }
    }

    fn moments(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        let start = 1_700_000_000_000;
        self.calls.iter().scan(start, |now, (wait, cost)| {
            *now += wait;
            Some((Timestamp::from_millis(*now), *cost))
        })
    }

    /// Returns the responses of a policy.
    fn asked(&self) -> Vec<Said> {
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
        let builder = Policy::builder("order").memory_budget(64 << 10).clock(clock.clone());
        let each = self.limits.iter().fold(builder, |builder, (axis, limit)| builder.limit(*axis, *limit));
        let policy = Arc::new(each.build().expect("sound limits"));
        let ask = |(now, cost)| {
            clock.set(now);
            let admission = policy.admit_owned(Call::by("a").cost(cost));
            let said = [Axis::Rate, Axis::Cost].map(|axis| admission.axes().get(axis).copied());
            let answer = (admission.decision(), said, admission.denied_by());
            admission.permit.into_iter().for_each(throttlekit::Permit::success);
            answer
        };
        self.moments().map(ask).collect()
    }

    /// Returns the responses of the rules, with the limits of an axis folded by `fold`.
    fn folded(&self, fold: AxisFold) -> Vec<Said> {
        let mut states = vec![State::Fresh; self.limits.len()];
        let ask = |(now, cost): (Timestamp, u64)| {
            let cost = |axis| if axis == Axis::Rate { 1 } else { cost };
            let mut said = [None; 2];
            let mut binding = None;
            for (place, axis) in [Axis::Rate, Axis::Cost].into_iter().enumerate() {
                let of_axis = self.limits.iter().zip(&states).filter(|((on, _), _)| *on == axis);
                let each: Vec<_> = of_axis
                    .map(|((_, limit), state)| limit.uncrossed().decide(state, cost(axis), now))
                    .collect();
                if each.is_empty() || binding.is_some() {
                    continue;
                }
                let decision = fold(&each);
                said[place] = Some(decision);
                binding = (!decision.allowed).then_some(axis);
            }
            let own = binding.and_then(|axis| said[usize::from(axis == Axis::Cost)]);
            let all = || said.iter().flatten().copied().fold(ALLOW_FULL, combine);
            if binding.is_none() {
                for ((axis, limit), state) in self.limits.iter().zip(&mut states) {
                    limit.charge(state, cost(*axis), now);
                }
            }
            (own.unwrap_or_else(all), said, binding)
        };
        self.moments().map(ask).collect()
    }
}

type Said = (Decision, [Option<Decision>; 2], Option<Axis>);

/// Checks one seeded case: on the real policy, or on a wrong fold.
pub fn check_order(bug: Option<OrderBug>, seed: u64) -> Check {
    let mut dice = Dice::new(seed);
    let scenario = Scenario::roll(&mut dice);
    let other = scenario.shuffled(&mut dice);
    let answers =
        |scenario: &Scenario| bug.map_or_else(|| scenario.asked(), |bug| scenario.folded(bug.fold()));
    let (want, got, shuffled) = (scenario.folded(fold), answers(&scenario), answers(&other));
    ensure(got == want, || format!("seed {seed}: not the fold:\n  want {want:?}\n  got  {got:?}"))?;
    ensure(shuffled == want, || {
        format!("seed {seed}: in another order:\n  want {want:?}\n  got  {shuffled:?}")
    })
}
