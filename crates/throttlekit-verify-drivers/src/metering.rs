//! A comparison of three ways to meter tokens: a table, and one `figure:` line.

use anyhow::Result;
use serde_json::{Value, json};

use crate::runner::{Options, Run, rounded};
use throttlekit_verify::metering::{self, CAPS, POLICIES, Policy, Row, Setup};

const SEEDS: u64 = 20;
/// Seeded meters show on fewer seeds, at one cap.
const SEEDED_SEEDS: u64 = 3;
const SEEDED_CAP: u64 = 4_096;

/// Runs every policy at every cap. Fails if a threshold is missed or a seeded meter is not found.
pub(crate) fn run(_: &Options<'_>, run: &mut Run) -> Result<Value> {
    let rows = metering::table(SEEDS);
    run.seeded(metering::find_seeded(SEEDED_SEEDS, SEEDED_CAP, &Setup::default()));
    tell(&rows);
    run.violated(metering::check(&rows));
    Ok(figure(&rows))
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

fn figure(rows: &[Row]) -> Value {
    let of = |policy: Policy| rows.iter().filter(move |row| row.policy == policy);
    let each = |policy: Policy| {
        let list = |value: fn(&Row) -> f64| of(policy).map(|row| rounded(value(row), 4)).collect::<Vec<_>>();
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
        "caps": CAPS,
        "policies": policies,
    })
}
