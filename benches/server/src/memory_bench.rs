//! Check on memory beside a bare echo of the same messages.

use anyhow::Result;

use crate::calls::{CONNECTIONS, IN_FLIGHT, Shape, decisions_per_second, p99_at};
use crate::process::Served;
use crate::report::Report;
use crate::turns::{in_turns, median, ratio};

const PACED: Shape = Shape { policy: "paced", keys: 100_000, at_once: 1 };
const THROUGHPUT_MIN: f64 = 0.85;

pub fn run(rounds: usize, report: &mut Report) -> Result<()> {
    println!("Check on memory beside a bare echo: {CONNECTIONS} connections, {IN_FLIGHT} calls in flight");
    let (ours, echo) = (Served::start(&["serve", "memory"])?, Served::start(&["echo"])?);
    let [checks, echoes] = in_turns(
        rounds,
        "memory",
        [
            ("Check", Box::new(|| decisions_per_second(&ours.uri, PACED, IN_FLIGHT))),
            ("echo", Box::new(|| decisions_per_second(&echo.uri, PACED, IN_FLIGHT))),
        ],
    )?;
    report.note("memory: Check, calls/s", median(&checks));
    report.note("memory: echo, calls/s", median(&echoes));
    report.at_least("memory: Check / echo", ratio(&checks, &echoes), THROUGHPUT_MIN);

    // The same pace for both: half of what the slower of them can.
    let pace = median(&checks).min(median(&echoes)) / 2.0;
    let [checks, echoes] = in_turns(
        rounds,
        "half load",
        [
            ("Check", Box::new(|| p99_at(&ours.uri, PACED, pace))),
            ("echo", Box::new(|| p99_at(&echo.uri, PACED, pace))),
        ],
    )?;
    report.note("memory: pace at half load, calls/s", pace);
    report.note("memory: p99 of Check at half load, µs", median(&checks));
    report.note("memory: p99 of echo at half load, µs", median(&echoes));
    report.note("memory: p99 of Check / echo at half load", ratio(&checks, &echoes));
    Ok(())
}
