//! Keys and how often each is used.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// The start of this run, in milliseconds.
static RUN: LazyLock<u128> =
    LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis()));

/// Returns a key that no earlier run has used: Redis may outlive a run.
pub fn key(n: usize) -> String {
    format!("{:x}-{n:07}", *RUN)
}

/// Returns keys by index, drawn by Zipf's law with exponent 1: the same ones in every run.
pub fn zipf(keys: usize, draws: usize) -> Vec<u32> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut state = 1_u64;
    let draw = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let point = (state >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        cumulative.partition_point(|&below| below <= point).min(keys - 1) as u32
    };
    (0..draws).map(draw).collect()
}
