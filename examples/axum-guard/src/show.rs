//! The moments, as a table and as CSV.

use std::fmt::Write;
use std::time::Duration;

use crate::{Act, Moment};

/// One line for each act, of its second half: when the guard has found out.
pub fn table(acts: &[Act], moments: &[Moment]) -> String {
    let mut table = format!(
        "{:>9}{:>9}{:>14}{:>11}{:>12}{:>16}\n",
        "backend", "work ms", "limit (mean)", "in flight", "latency ms", "served of best"
    );
    let mut begins = Duration::ZERO;
    for act in acts {
        let settled = begins + act.lasts / 2..begins + act.lasts;
        let seen: Vec<_> = moments.iter().filter(|moment| settled.contains(&moment.since)).collect();
        let mean =
            |of: fn(&Moment) -> f64| seen.iter().map(|m| of(m)).sum::<f64>() / seen.len().max(1) as f64;
        let served: f64 = seen.iter().map(|moment| f64::from(moment.served)).sum();
        let best = act.at_a_time as f64 * (act.lasts / 2).as_secs_f64() / act.work.as_secs_f64();
        let latency: Vec<f64> =
            seen.iter().filter_map(|m| m.latency).map(|l| l.as_secs_f64() * 1e3).collect();
        let latency = latency.iter().sum::<f64>() / latency.len().max(1) as f64;
        let _ = writeln!(
            table,
            "{:>9}{:>9}{:>14.1}{:>11.1}{:>12.1}{:>16.2}",
            act.at_a_time,
            act.work.as_millis(),
            mean(|m| f64::from(m.limit)),
            mean(|m| f64::from(m.in_flight)),
            latency,
            served / best,
        );
        begins += act.lasts;
    }
    table
}

/// Each moment as a line of CSV: what the guard allowed and what there was, beside what would have been best.
pub fn csv(acts: &[Act], moments: &[Moment]) -> String {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let mut csv = String::from("seconds,best,limit,in_flight,best_ms,latency_ms\n");
    for Moment { since, limit, in_flight, latency, .. } in moments {
        let (seconds, act) = (since.as_secs_f64(), act_at(acts, *since));
        let _ = write!(csv, "{seconds:.3},{},{limit},{in_flight},{:.1},", act.at_a_time, millis(act.work));
        csv += &latency.map_or(String::new(), |latency| format!("{:.1}", millis(latency)));
        csv.push('\n');
    }
    csv
}

fn act_at(acts: &[Act], since: Duration) -> &Act {
    let mut ends = Duration::ZERO;
    let runs = acts.iter().find(|act| {
        ends += act.lasts;
        since < ends
    });
    runs.unwrap_or(&acts[acts.len() - 1])
}
