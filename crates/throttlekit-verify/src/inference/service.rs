//! The duration of a call without waiting.

use std::f64::consts::TAU;

use throttlekit_conformance::Dice;

/// The shape of service times; their mean is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Always the same.
    Steady,
    /// Anything within a fifth of the mean.
    Jittered,
    /// Lognormal; the deviation is three tenths of the mean.
    Moderate,
    /// Lognormal; the deviation is half the mean.
    Wide,
    /// Lognormal; the deviation is the mean.
    Heavy,
    /// Exponential: the deviation is the mean.
    Exponential,
}

/// Every shape.
pub const SERVICES: [Service; 6] = [
    Service::Steady,
    Service::Jittered,
    Service::Moderate,
    Service::Wide,
    Service::Heavy,
    Service::Exponential,
];

impl Service {
    pub(super) fn draw(self, dice: &mut Dice) -> f64 {
        match self {
            Self::Steady => 1.0,
            Self::Jittered => 0.8 + 0.4 * unit(dice),
            Self::Moderate => lognormal(0.3, dice),
            Self::Wide => lognormal(0.5, dice),
            Self::Heavy => lognormal(1.0, dice),
            Self::Exponential => -(1.0 - unit(dice)).ln(),
        }
    }
}

/// Returns a number from 0 to 1, never 1.
pub(super) fn unit(dice: &mut Dice) -> f64 {
    dice.below(1 << 53) as f64 / (1_u64 << 53) as f64
}

fn lognormal(deviation: f64, dice: &mut Dice) -> f64 {
    let variance = (1.0 + deviation * deviation).ln();
    (variance.sqrt() * normal(dice) - variance / 2.0).exp()
}

/// Draws from the normal distribution with mean 0 and deviation 1.
pub(super) fn normal(dice: &mut Dice) -> f64 {
    (-2.0 * (1.0 - unit(dice)).ln()).sqrt() * (TAU * unit(dice)).cos()
}

impl Service {
    /// Returns `true` if times vary so little that a ceiling must settle within its thresholds at every seed.
    pub fn settling_is_judged(self) -> bool {
        matches!(self, Self::Steady | Self::Jittered | Self::Moderate)
    }

    /// Returns `true` if times vary so little that 200 completions suffice to distinguish a step from noise.
    pub fn recovery_is_judged(self) -> bool {
        matches!(self, Self::Steady | Self::Jittered)
    }
}
