//! The thresholds: each ratio with its contenders, its view and its maximum.

use crate::harness::View;

/// A ratio of medians with a threshold.
pub struct Threshold {
    /// The section that measures it.
    pub section: &'static str,
    /// Our contender.
    pub ours: &'static str,
    /// The peer.
    pub peer: &'static str,
    /// The view.
    pub view: View,
    /// The maximum.
    pub max: f64,
}

impl Threshold {
    /// Returns its name in the figure.
    pub fn name(&self) -> String {
        format!("{}: {} / {}, {}", self.section, self.ours, self.peer, self.view.name())
    }
}

/// The keyed anchor and its best case.
pub const GOVERNOR: &str = "governor";
const GOVERNOR_BEST: &str = "governor-best";
/// With a fast hash, beside limiters of trusted keys.
pub const GOVERNOR_FAST: &str = "governor-fast-hash";
/// The same with a clock that a thread updates, beside those that have one.
pub const GOVERNOR_FAST_COARSE: &str = "governor-fast-hash-coarse";
/// Keys without units.
pub const GOVERNOR_DENIED: &str = "governor-denied";
/// The same with a fast hash.
pub const GOVERNOR_FAST_DENIED: &str = "governor-fast-hash-denied";
/// The keyless anchor.
pub const GOVERNOR_DIRECT: &str = "governor-direct";
/// The same with a clock that a thread updates.
pub const GOVERNOR_DIRECT_COARSE: &str = "governor-direct-coarse";

/// Counts in a sketch and limits nothing.
pub const PINGORA: &str = "pingora-estimator";
/// The keyless anchor, with several units at a time.
pub const GOVERNOR_DIRECT_N: &str = "governor-direct-n";

/// The minimum cost of a spend from shared units.
pub const FETCH_SUB: &str = "floor-fetch-sub";

/// The anchor of slots with a fixed limit.
pub const SEMAPHORE: &str = "tokio-semaphore";
/// A guard of one process, the anchor of those that share a limit.
pub const GUARD: &str = "ours-guard-fixed";
/// The anchor of slots with an inferred limit.
pub const THROTTLE_NET: &str = "throttle-net";

/// The axes of a policy, one after the other and without it.
pub const AXES: &str = "axes-plain";

const fn threshold(
    section: &'static str,
    ours: &'static str,
    peer: &'static str,
    view: View,
    max: f64,
) -> Threshold {
    Threshold { section, ours, peer, view, max }
}

use View::{Isolated, Throughput, Together};

/// Every ratio with a threshold.
pub const THRESHOLDS: &[Threshold] = &[
    threshold("hot", "ours-secret-precise", GOVERNOR, Throughput, 0.60),
    threshold("hot", "ours-trusted-precise", GOVERNOR_FAST, Throughput, 0.60),
    threshold("hot", "ours-trusted-precise", GOVERNOR_BEST, Throughput, 0.65),
    threshold("hot", "ours-trusted-coarse", GOVERNOR_FAST_COARSE, Throughput, 0.50),
    threshold("denied", "ours-secret-denied", GOVERNOR_DENIED, Throughput, 0.90),
    threshold("denied", "ours-trusted-denied", GOVERNOR_FAST_DENIED, Throughput, 1.0),
    threshold("1m", "ours-secret-precise", GOVERNOR, Isolated, 0.45),
    threshold("1m", "ours-trusted-precise", GOVERNOR_FAST, Isolated, 0.45),
    threshold("1m", "ours-by-16", GOVERNOR_FAST, Throughput, 0.12),
    threshold("keyless", "ours-keyless-precise", GOVERNOR_DIRECT, Throughput, 0.95),
    threshold("keyless", "ours-keyless-coarse", GOVERNOR_DIRECT_COARSE, Throughput, 0.95),
    threshold("hot-2t", "ours-secret-precise", GOVERNOR, Together, 0.55),
    threshold("hot-2t", "ours-trusted-precise", GOVERNOR_FAST, Together, 0.80),
    threshold("1m-2t", "ours-trusted-precise", GOVERNOR_FAST, Together, 0.50),
    threshold("keyless-2t", "ours-keyless-precise", GOVERNOR_DIRECT, Together, 0.95),
    threshold("lease", "ours-lease-tick", FETCH_SUB, Throughput, 1.3),
    threshold("lease", "ours-lease-precise", GOVERNOR_DIRECT, Throughput, 1.0),
    threshold("budget", "ours-budget-precise", GOVERNOR_DIRECT_N, Throughput, 0.95),
    threshold("lease-2t", "ours-till-tick", GOVERNOR_DIRECT, Together, 0.05),
    threshold("sketch-10k", "ours-sketch-coarse", PINGORA, Throughput, 0.90),
    threshold("sketch-1m", "ours-sketch-coarse", PINGORA, Throughput, 0.90),
    threshold("sketch-10k-2t", "ours-sketch-refused-tick", PINGORA, Together, 0.90),
    threshold("sketch-1m-2t", "ours-sketch-refused-tick", PINGORA, Together, 0.90),
    threshold("sketch-10k-2t", "ours-sketch-tick", PINGORA, Together, 1.2),
    threshold("sketch-1m-2t", "ours-sketch-tick", PINGORA, Together, 1.2),
    threshold("slots", GUARD, SEMAPHORE, Throughput, 0.75),
    threshold("slots", "ours-guard-adaptive", THROTTLE_NET, Throughput, 0.80),
    threshold("slots", "ours-guard-fleet", GUARD, Throughput, 1.2),
    threshold("slots-2t", "ours-guard-fleet", GUARD, Together, 1.2),
    threshold("slots-2t", GUARD, SEMAPHORE, Together, 0.45),
    threshold("slots-2t", "ours-guard-adaptive", THROTTLE_NET, Together, 0.60),
    threshold("admission", "ours-admission", AXES, Throughput, 1.2),
    threshold("admission", "ours-admission", AXES, Isolated, 1.2),
    threshold("admission-2t", "ours-admission", AXES, Together, 1.2),
];

/// Bytes alive per live key at a million keys.
pub const BYTES_PER_KEY_MAX: f64 = 40.0;
/// Allocations in a million hits.
pub const ALLOCATIONS_MAX: u64 = 0;
/// The longest single check while the table grows or expires, in microseconds of processor time.
pub const STALL_US_MAX: f64 = 1_000.0;
/// Instructions per keyed check with the fast hash.
pub const INSTRUCTIONS_MAX: f64 = 100.0;
/// Resident memory after a flood, relative to the budget.
pub const FLOOD_MEMORY_MAX: f64 = 1.05;
/// The 99th percentile of checks of known keys in a flood, relative to before.
pub const FLOOD_P99_MAX: f64 = 2.0;

/// A check among a hundred thousand tenants, relative to one among a hundred.
pub const FAIR_GROWTH_MAX: f64 = 3.0;
/// Allocations per check, in windows like those before: a window's own first ones, spread over its checks.
pub const FAIR_ALLOCATIONS_MAX: f64 = 0.001;

/// Number of runs of a measure. Their median is judged.
const RUNS: usize = 3;

/// Measures [`RUNS`] times, whatever the first run shows: to stop at a good one would be to choose.
pub fn runs(measure: impl FnMut(usize)) {
    (1..=RUNS).for_each(measure);
}
