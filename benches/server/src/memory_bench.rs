//! Check on memory compared with a bare echo of the same messages.

use anyhow::Result;

use crate::calls::{CONNECTIONS, IN_FLIGHT, Shape, TURN, decisions_per_second, p99_at};
use crate::process::Served;
use crate::report::Report;
use crate::turns::{in_turns, median, ratio};

const PACED: Shape = Shape { policy: "paced", keys: 100_000, at_once: 1 };
const THROUGHPUT_MIN: f64 = 0.85;
const PROCESSOR_MAX: f64 = 1.05;
const ALLOCATIONS_MAX: f64 = 22.0;

pub fn run(rounds: usize, report: &mut Report) -> Result<()> {
    println!("Check on memory beside a bare echo: {CONNECTIONS} connections, {IN_FLIGHT} calls in flight");
    let (mut ours, mut echo) = (Served::start(&["serve", "memory"])?, Served::start(&["echo"])?);
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

    let [checks_cpu, echoes_cpu] = in_turns(
        rounds,
        "memory, processor time",
        [("Check", Box::new(|| processor_micros(&ours))), ("echo", Box::new(|| processor_micros(&echo)))],
    )?;
    report.note("memory: processor time of Check, µs", median(&checks_cpu));
    report.note("memory: processor time of echo, µs", median(&echoes_cpu));
    report.at_most("memory: processor time of Check / echo", ratio(&checks_cpu, &echoes_cpu), PROCESSOR_MAX);

    // The same pace for both: half the capacity of the slower one.
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

    // Last: a server that counts is slower.
    report.at_most("memory: allocations per Check", allocations(&mut ours)?, ALLOCATIONS_MAX);
    report.note("memory: allocations per echo", allocations(&mut echo)?);
    Ok(())
}

/// Returns the processor time of the server for each call of a turn, in microseconds.
fn processor_micros(served: &Served) -> Result<f64> {
    let before = served.processor_time()?;
    let per_second = decisions_per_second(&served.uri, PACED, IN_FLIGHT)?;
    let spent = served.processor_time()? - before;
    Ok(spent * 1e6 / (per_second * TURN.as_secs_f64()))
}

/// Returns the allocations of the server for each call of a turn.
fn allocations(served: &mut Served) -> Result<f64> {
    let before = served.allocations()?;
    let per_second = decisions_per_second(&served.uri, PACED, IN_FLIGHT)?;
    let made = served.allocations()? - before;
    Ok(made as f64 / (per_second * TURN.as_secs_f64()))
}
