//! A comparison of three ways to meter tokens whose number is not known beforehand.
//!
//! *Reserve-max* reserves the maximum number that a stream may produce, its cap. *Admit-then-count* lets
//! streams start while the budget lasts and counts when they end. *Streaming* debits each chunk as it comes.
//! In each window, the streams want more tokens than the budget has, some run concurrently, and their lengths
//! are heavy-tailed. The streaming meter is the production rule; reservations and returns use the production
//! authority, and the pace is set by the production learner.

mod meters;
mod play;

pub use meters::{Meter, MeterBug, Policy, Seeded, meter};
pub use play::{Outcome, Setup, play};

use throttlekit_conformance::bugs::Found;

/// The caps: the maximum number of tokens of one stream.
pub const CAPS: [u64; 8] = [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768];
/// Every policy of the table.
pub const POLICIES: [Policy; 6] = [
    Policy::ReserveMax,
    Policy::ReserveMaxRefunded,
    Policy::AdmitThenCount,
    Policy::PerToken,
    Policy::ByChunks,
    Policy::Paced,
];

/// The results of one policy at one cap, over all windows of all seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The policy.
    pub policy: Policy,
    /// The maximum number of tokens of one stream.
    pub cap: u64,
    /// The mean part of the budget that was served; tokens served beyond it do not count.
    pub used: f64,
    /// The minimum of these parts.
    pub used_min: f64,
    /// Tokens served beyond the budget, on average.
    pub overshoot: f64,
    /// The maximum in one window.
    pub overshoot_max: u64,
    /// Streams aborted in a window, on average.
    pub aborted: f64,
    /// The maximum in one window, for each concurrent stream.
    pub aborted_max: f64,
}

/// Returns the table: each policy at each cap.
pub fn table(seeds: u64) -> Vec<Row> {
    table_of(seeds, &CAPS, &Setup::default())
}

/// Returns the table for some caps and a scenario of this size.
pub fn table_of(seeds: u64, caps: &[u64], setup: &Setup) -> Vec<Row> {
    let row = |policy: Policy, cap: u64| {
        let run = |seed| play(&mut *meter(policy, setup.budget, cap), policy.chunk(), cap, seed, setup);
        Row::of(policy, cap, setup, &(0..seeds).flat_map(run).collect::<Vec<_>>())
    };
    POLICIES.into_iter().flat_map(|policy| caps.iter().map(move |cap| row(policy, *cap))).collect()
}

impl Row {
    fn of(policy: Policy, cap: u64, setup: &Setup, windows: &[Outcome]) -> Self {
        let budget = setup.budget;
        let mean = |of: &dyn Fn(&Outcome) -> f64| windows.iter().map(of).sum::<f64>() / windows.len() as f64;
        let used = |window: &Outcome| window.served.min(budget) as f64 / budget as f64;
        let overshoot = |window: &Outcome| window.served.saturating_sub(budget);
        Self {
            policy,
            cap,
            used: mean(&used),
            used_min: windows.iter().map(used).fold(1.0, f64::min),
            overshoot: mean(&|window| overshoot(window) as f64),
            overshoot_max: windows.iter().map(overshoot).max().unwrap_or(0),
            aborted: mean(&|window| window.aborted as f64),
            aborted_max: windows.iter().map(|window| window.aborted).max().unwrap_or(0) as f64
                / setup.streams as f64,
        }
    }
}

/// The minimum part of the budget that a meter with learned reservations must serve.
pub const PACED_USE_BAR: f64 = 0.99;

/// The maximum number of aborted streams with reservations, as a part of those without.
pub const PACED_CUT_BAR: f64 = 0.75;

/// Returns the violations: a streaming meter that exceeds its bound or does not serve the whole budget, or a
/// baseline that performs better than documented.
pub fn check(rows: &[Row]) -> Vec<String> {
    let mut broken: Vec<String> = rows.iter().filter_map(|row| row.check().err()).collect();
    let of = |policy: Policy| rows.iter().filter(move |row| row.policy == policy);
    for pair in of(Policy::ReserveMax).collect::<Vec<_>>().windows(2) {
        if pair[1].used >= pair[0].used {
            broken.push(format!("reserve-max uses no less at {} than at {}", pair[1].cap, pair[0].cap));
        }
    }
    for (chunks, paced) in of(Policy::ByChunks).zip(of(Policy::Paced)) {
        if paced.aborted > PACED_CUT_BAR * chunks.aborted {
            let (with, without) = (paced.aborted, chunks.aborted);
            broken.push(format!("{with:.1} streams aborted with reservations, {without:.1} without"));
        }
    }
    broken
}

impl Row {
    fn check(&self) -> Result<(), String> {
        let over_max = self.policy.chunk() - 1;
        let holds = match self.policy {
            Policy::ReserveMax | Policy::ReserveMaxRefunded => self.overshoot_max == 0,
            Policy::AdmitThenCount => self.overshoot > 0.0 && self.used_min >= 1.0,
            // A denial of one chunk denies all after it, so only running streams are aborted.
            Policy::PerToken | Policy::ByChunks => {
                self.overshoot_max <= over_max && self.used_min >= 1.0 && self.aborted_max <= 1.0
            }
            Policy::Paced => self.overshoot_max <= over_max && self.used >= PACED_USE_BAR,
        };
        if holds { Ok(()) } else { Err(format!("not as promised: {self:?}")) }
    }
}

/// Searches for the seeded bugs with the same check.
pub fn find_seeded(seeds: u64, cap: u64, setup: &Setup) -> Found {
    Found::all(|bug: MeterBug| {
        let policy = bug.stands_for();
        let run = |seed| play(&mut Seeded::new(bug, setup.budget, cap), policy.chunk(), cap, seed, setup);
        let windows: Vec<_> = (0..seeds).flat_map(run).collect();
        Row::of(policy, cap, setup, &windows).check().is_err()
    })
}
