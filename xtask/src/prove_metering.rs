//! Three ways to meter tokens beside each other: a table, and one line for machines.

use anyhow::{Result, ensure};
use serde_json::json;
use throttlekit::{Clock, PreciseClock};
use throttlekit_conformance::metering::{self, CAPS, POLICIES, Policy, Row, Setup};

use crate::prove::run_released;

const SEEDS: u64 = 20;
/// Planted meters show on fewer seeds, at one cap.
const PLANTED_SEEDS: u64 = 3;
const PLANTED_CAP: u64 = 4_096;

/// Plays every policy at every cap, and fails if a bar is missed or a planted meter is not found.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    ensure!(args.is_empty(), "prove metering takes nothing, not {}", args.join(" "));
    if cfg!(debug_assertions) {
        return run_released("metering", args);
    }
    let clock = PreciseClock::new();
    let begun = clock.now();
    let rows = metering::table(SEEDS);
    let (caught, missed) = metering::examine_planted(PLANTED_SEEDS, PLANTED_CAP, &Setup::default());
    tell(&rows);
    println!("\nplanted found {}/{}: {}", caught.len(), caught.len() + missed.len(), caught.join(", "));
    let broken = metering::check(&rows);
    let seconds = clock.now().since(begun).as_secs_f64();
    println!("figure: {}", figure(&rows, broken.len(), caught.len(), missed.len(), seconds));
    ensure!(broken.is_empty(), "not proved:\n  {}", broken.join("\n  "));
    ensure!(missed.is_empty(), "blind to the planted {}", missed.join(", "));
    Ok(())
}

fn tell(rows: &[Row]) {
    let Setup { budget, streams, windows } = Setup::default();
    println!("{budget} tokens a window, {streams} streams at once, {windows} windows of {SEEDS} seeds\n");
    let heads = ["used", "least used", "over, mean", "over, most", "cut short"];
    print!("{:<24}{:>8}", "policy", "cap");
    heads.iter().for_each(|head| print!("{head:>12}"));
    println!();
    for Row { policy, cap, used, used_min, overshoot, overshoot_max, aborted, .. } in rows {
        print!("{:<24}{cap:>8}", policy.label());
        println!("{used:>12.4}{used_min:>12.4}{overshoot:>12.1}{overshoot_max:>12}{aborted:>12.1}");
    }
}

fn figure(rows: &[Row], broken: usize, caught: usize, missed: usize, seconds: f64) -> serde_json::Value {
    let rounded = |value: f64| (value * 10_000.0).round() / 10_000.0;
    let of = |policy: Policy| rows.iter().filter(move |row| row.policy == policy);
    let each = |policy: Policy| {
        let list = |value: fn(&Row) -> f64| of(policy).map(|row| rounded(value(row))).collect::<Vec<_>>();
        json!({
            "used": list(|row| row.used),
            "overshoot": list(|row| row.overshoot),
            "overshoot_max": of(policy).map(|row| row.overshoot_max).max(),
            "aborted": list(|row| row.aborted),
        })
    };
    let policies: serde_json::Map<_, _> =
        POLICIES.iter().map(|policy| (policy.label().to_owned(), each(*policy))).collect();
    json!({
        "name": "prove-metering",
        "caps": CAPS,
        "policies": policies,
        "violations": broken,
        "planted": caught + missed,
        "planted_found": caught,
        "seconds": (seconds * 10.0).round() / 10.0,
    })
}
