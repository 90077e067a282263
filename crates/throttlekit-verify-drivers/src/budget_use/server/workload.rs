//! The calls of a gateway for language models: callers without pause, and completions whose lengths have a long tail.

use std::f64::consts::TAU;
use std::time::Duration;

/// Tokens that a stream generates in [`STEP`], as the mock model of the gateway does.
const TOKENS_PER_STEP: u64 = 8;
const STEP: Duration = Duration::from_millis(20);
/// The `max_tokens` of each call.
pub(super) const MAX_TOKENS: u64 = 4_096;
/// The largest input of a call, where calls have one.
const INPUT_MAX: u64 = 400;
/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// Completions of one model, without input.
    Alike,
    /// Completions of a small and a large model, with inputs.
    Mixed,
}

impl Calls {
    pub(super) const ALL: [Self; 2] = [Self::Alike, Self::Mixed];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Alike => "alike",
            Self::Mixed => "mixed",
        }
    }

    /// Returns the call of this number.
    pub(super) fn nth(self, nth: u64, seed: u64) -> Completion {
        let dice = |of: u64| mixed(seed ^ mixed(4 * nth + of));
        let normal = (-2.0 * unit(dice(0)).ln()).sqrt() * (TAU * unit(dice(1))).cos();
        let long_tailed =
            |median: f64, sigma: f64| ((median * (sigma * normal).exp()) as u64).clamp(1, MAX_TOKENS);
        match self {
            // The lengths of the gateway's mock model.
            Self::Alike => Completion { class: "model", input: 0, output: long_tailed(120.0, 1.0) },
            Self::Mixed => {
                let small = dice(2).is_multiple_of(2);
                let (class, median) = if small { ("small", 40.0) } else { ("large", 250.0) };
                let input = dice(3) % (INPUT_MAX + 1);
                Completion { class, input, output: long_tailed(median, 0.8) }
            }
        }
    }
}

/// One call: its model, and its tokens if it is not stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) class: &'static str,
    pub(super) input: u64,
    pub(super) output: u64,
}

/// Returns the time that a stream takes for this many tokens.
pub(super) fn takes(tokens: u64) -> Duration {
    let nanos = STEP.as_nanos() as u64 / TOKENS_PER_STEP;
    Duration::from_nanos(nanos * tokens)
}

/// Returns the number of callers that together generate twice the budget in a window.
pub(super) fn callers(budget: u64) -> usize {
    let each = WINDOW.as_nanos() / takes(1).as_nanos();
    (2 * u128::from(budget)).div_ceil(each) as usize
}

/// Above 0, at most 1.
fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// SplitMix64.
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
