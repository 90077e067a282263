//! The distribution of service times without waiting.

use super::super::service::{normal, unit};
use throttlekit_conformance::Dice;

/// The shape of service times. Their mean is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Exponential: the coefficient of variation is 1.
    Exponential,
    /// Two kinds of calls, the coefficient of variation is 2: one call in ten takes 7 times the mean.
    Bimodal2,
    /// The same at 3.5: one call in 25 takes 18 times the mean.
    Bimodal3_5,
    /// The same at 5: one call in 50 takes 36 times the mean.
    Bimodal5,
    /// Pareto with exponent 2.2: the variance is finite, the fourth moment is not.
    Pareto2_2,
    /// Pareto with exponent 1.5, whose variance is infinite, truncated at a thousand times the least.
    Pareto1_5,
    /// A language model: a time to the first token, and as many tokens as a recorded trace has.
    Llm,
}

/// Every shape.
pub const SHAPES: [Shape; 7] = [
    Shape::Exponential,
    Shape::Bimodal2,
    Shape::Bimodal3_5,
    Shape::Bimodal5,
    Shape::Pareto2_2,
    Shape::Pareto1_5,
    Shape::Llm,
];

impl Shape {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Bimodal2 => "bimodal cv 2",
            Self::Bimodal3_5 => "bimodal cv 3.5",
            Self::Bimodal5 => "bimodal cv 5",
            Self::Pareto2_2 => "pareto 2.2",
            Self::Pareto1_5 => "pareto 1.5",
            Self::Llm => "llm",
        }
    }

    /// Draws a service time; the mean is one.
    pub fn draw(self, dice: &mut Dice) -> f64 {
        match self {
            Self::Exponential => -(1.0 - unit(dice)).ln(),
            Self::Bimodal2 => bimodal(0.1, 2.0, dice),
            Self::Bimodal3_5 => bimodal(0.04, 3.5, dice),
            Self::Bimodal5 => bimodal(0.02, 5.0, dice),
            Self::Pareto2_2 => pareto(2.2, f64::INFINITY, dice),
            Self::Pareto1_5 => pareto(1.5, 1_000.0, dice),
            Self::Llm => llm_seconds(dice) / LLM_MEAN_SECONDS,
        }
    }
}

/// Draws one of two values, the long one for this share of the calls, with this coefficient of variation.
fn bimodal(long: f64, variation: f64, dice: &mut Dice) -> f64 {
    let apart = variation / (long * (1.0 - long)).sqrt();
    let short = 1.0 - long * apart;
    if unit(dice) < long { short + apart } else { short }
}

/// Draws a value between the minimum and `most` times the minimum.
fn pareto(exponent: f64, most: f64, dice: &mut Dice) -> f64 {
    let below_most = 1.0 - most.powf(-exponent);
    let mean = exponent / (exponent - 1.0) * (1.0 - most.powf(1.0 - exponent)) / below_most;
    (1.0 - unit(dice) * below_most).powf(-1.0 / exponent) / mean
}

/// The quantiles of the tokens that were generated per call in the Azure LLM inference trace of 2023, which was published
/// with Patel et al., *Splitwise* (ISCA 2024): 8,819 calls of a coding service and 19,366 of a conversation service.
const QUANTILES: [f64; 11] = [0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0];
const CODING: [f64; 11] = [6.0, 6.0, 7.0, 9.0, 13.0, 24.0, 55.0, 90.0, 252.0, 831.0, 1_899.0];
const CONVERSATION: [f64; 11] = [7.0, 41.0, 54.0, 85.0, 129.0, 395.0, 424.0, 451.0, 601.0, 954.0, 1_000.0];
const CODING_SHARE: f64 = 8_819.0 / (8_819.0 + 19_366.0);
/// The trace has no times. Ours: 30 ms per token after a lognormal first one, with a median of 200 ms and
/// sigma 0.5.
const TOKEN_SECONDS: f64 = 0.03;
const FIRST_TOKEN_SECONDS: f64 = 0.2;
const FIRST_TOKEN_SIGMA: f64 = 0.5;
/// The resulting mean.
const LLM_MEAN_SECONDS: f64 = 4.865;

fn llm_seconds(dice: &mut Dice) -> f64 {
    let first = FIRST_TOKEN_SECONDS * (FIRST_TOKEN_SIGMA * normal(dice)).exp();
    let tokens = if unit(dice) < CODING_SHARE { &CODING } else { &CONVERSATION };
    first + TOKEN_SECONDS * quantile(tokens, unit(dice))
}

/// Interpolates between the recorded quantiles, linear in the logarithm.
fn quantile(values: &[f64; 11], at: f64) -> f64 {
    let above = QUANTILES.iter().position(|quantile| at < *quantile).unwrap_or(10);
    let [low, high] = [QUANTILES[above - 1], QUANTILES[above]];
    let part = (at - low) / (high - low);
    (values[above - 1].ln() * (1.0 - part) + values[above].ln() * part).exp()
}
