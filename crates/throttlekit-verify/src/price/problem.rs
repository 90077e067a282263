//! Fluid problems to solve: ordinary ones, and ones with many optimal duals.

use throttlekit_core::price::{Budgets, KINDS_MAX, RequestKind};

use throttlekit_conformance::Dice;

/// A problem to solve.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Its family.
    pub family: Family,
    /// The kinds of requests.
    pub kinds: Vec<RequestKind>,
    /// The budgets.
    pub budgets: Budgets,
}

/// A family of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Any numbers, at most a dozen kinds.
    Any,
    /// Numbers of six orders of magnitude, at most 64 kinds.
    Scales,
    /// Small whole numbers: kinds that are equal, worthless or free, budgets of zero.
    Whole,
    /// Small whole numbers, and budgets that some of the kinds fill to the last unit.
    Filled,
}

/// All of them.
pub const FAMILIES: [Family; 4] = [Family::Any, Family::Scales, Family::Whole, Family::Filled];

impl Problem {
    /// Draws the problem of this seed: families in turn, with two axes or three.
    pub fn roll(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let family = FAMILIES[(seed % 4) as usize];
        let most = match family {
            Family::Any => 12,
            Family::Scales => KINDS_MAX as u64,
            Family::Whole | Family::Filled => 7,
        };
        let kinds = dice.between(1, most);
        Self::of(family, kinds, seed % 8 >= 4, &mut dice)
    }

    /// Draws a problem of this family at its maximum size.
    pub fn largest(family: Family, seed: u64) -> Self {
        Self::of(family, KINDS_MAX as u64, true, &mut Dice::new(seed))
    }

    fn of(family: Family, kinds: u64, third: bool, dice: &mut Dice) -> Self {
        let kinds: Vec<RequestKind> = (0..kinds).map(|_| family.kind(dice)).collect();
        // Where kinds fill a budget, the same ones fill all of them about half the time.
        let same = dice.once_in(2).then(|| dice.below(kinds.len() as u64 + 1));
        let mut budget = |of: fn(&RequestKind) -> f64| family.budget(dice, &kinds, same, of);
        let [rate, cost, hold] = [budget(|_| 1.0), budget(|kind| kind.cost), budget(|kind| kind.hold)];
        Self { family, kinds, budgets: Budgets { rate, cost, hold: third.then_some(hold) } }
    }

    /// Returns `true` if every number is a small whole one.
    pub fn is_whole(&self) -> bool {
        matches!(self.family, Family::Whole | Family::Filled)
    }
}

impl Family {
    fn kind(self, dice: &mut Dice) -> RequestKind {
        let mut number = |least: u64| match self {
            Self::Any => unit(dice) * 10.0,
            Self::Scales => 10f64.powf(6.0 * unit(dice) - 3.0),
            Self::Whole | Self::Filled => dice.between(least, 4) as f64,
        };
        RequestKind { weight: number(1), value: number(0), cost: number(0), hold: number(0) }
    }

    fn budget(
        self,
        dice: &mut Dice,
        kinds: &[RequestKind],
        same: Option<u64>,
        of: fn(&RequestKind) -> f64,
    ) -> f64 {
        let whole: f64 = kinds.iter().map(|kind| kind.weight * of(kind)).sum();
        match self {
            Self::Any | Self::Scales => whole * 1.2 * unit(dice),
            Self::Whole => dice.below(whole as u64 + 3) as f64,
            Self::Filled => {
                let first = same.unwrap_or_else(|| dice.below(kinds.len() as u64 + 1));
                kinds[..first as usize].iter().map(|kind| kind.weight * of(kind)).sum()
            }
        }
    }
}

/// Returns a number from 0 to 1.
pub(super) fn unit(dice: &mut Dice) -> f64 {
    dice.below(1 << 52) as f64 / (1u64 << 52) as f64
}
