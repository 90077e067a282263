//! Calls to a provider by one or more processes: `cargo xtask bench outbound`.
//!
//! The provider is simulated, over real sockets, with limits on requests and tokens by the minute. Clients are processes
//! of their own, with unequal shares of the load. Each contender runs against a provider of its own with the same
//! arrivals: bursts that the provider can serve just before the next one, until its limit falls and the demand does not.
//!
//! Needs `THROTTLEKIT_REDIS`, the URL of a Redis; `cargo xtask` starts one. All of it shares the machine's cores.

mod arrivals;
mod client;
mod contenders;
mod ideal;
mod latency;
mod measure;
#[path = "../../stores/src/program.rs"]
mod program;
#[path = "../../../crates/throttlekit/tests/provider/mod.rs"]
mod provider;
#[path = "../../stores/src/report.rs"]
#[expect(dead_code, reason = "no count here is exact")]
mod report;
mod run;
mod scenario;
#[path = "../../stores/src/turns.rs"]
#[expect(dead_code, reason = "a contender has several measures")]
mod turns;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use measure::Measure;
use report::{Report, round};
use scenario::{Contender, OURS, Scenario};

const REFUSED_MAX: f64 = 0.005;
const UTILIZATION_MIN: f64 = 0.95;
const WAIT_MAX: f64 = 1.2;

fn main() -> ExitCode {
    program::run(run)
}

fn run(args: &[&str]) -> Result<bool> {
    match args {
        ["client", rest @ ..] => client::run(rest).map(|()| true),
        [] => bench(&Scenario::all(), &[1, 4, 16]),
        ["--quick"] => bench(&Scenario::all()[..1], &[4]),
        ["--latency"] => bench(&[], &[]),
        _ => bail!("usage: cargo xtask bench outbound [--quick|--latency]"),
    }
}

fn bench(scenarios: &[Scenario], processes: &[usize]) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut report = Report::default();
    latency::run(&runtime, &mut report)?;
    for scenario in scenarios {
        let redis = std::env::var("THROTTLEKIT_REDIS").context("eval \"$(cargo xtask services up)\" first")?;
        for &processes in processes {
            let title = format!("{}, {processes} processes", scenario.name);
            println!("\n### {title}");
            println!(
                "| contender | calls | refused | utilization | p50 wait s | p99 wait s | p99 / ideal | not done |"
            );
            println!("|---|---|---|---|---|---|---|---|");
            for contender in Contender::ALL {
                eprintln!("… {title}: {}", contender.name());
                let calls = runtime.block_on(run::run(scenario, contender, processes, &redis))?;
                let measure = Measure::of(scenario, processes, &calls);
                print(&mut report, &title, contender, &measure);
            }
        }
    }
    Ok(report.end("bench-outbound"))
}

fn print(report: &mut Report, title: &str, contender: Contender, measure: &Measure) {
    let Measure { calls, refused, utilization, p50, p99, to_ideal, not_done } = *measure;
    println!(
        "| {} | {calls} | {:.2} % | {} | {} | {} | {} | {not_done} |",
        contender.name(),
        refused * 100.0,
        round(utilization),
        round(p50),
        round(p99),
        round(to_ideal),
    );
    let name = |what: &str| format!("{title}: {what} of {}", contender.name());
    if contender == OURS {
        report.at_most(&name("refused"), refused, REFUSED_MAX);
        report.at_least(&name("utilization"), utilization, UTILIZATION_MIN);
        report.at_most(&name("p99 wait / ideal"), to_ideal, WAIT_MAX);
        report.at_most(&name("calls not done"), not_done as f64, 0.0);
    } else {
        report.record(&name("refused"), refused);
        report.record(&name("utilization"), utilization);
        report.record(&name("p99 wait / ideal"), to_ideal);
    }
}
