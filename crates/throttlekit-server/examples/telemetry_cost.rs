//! What it costs a decision to be seen: nanoseconds, on one thread and on two. The last line has the figures.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::observe::Event;
use throttlekit::rate::ALLOW_FULL;
use throttlekit::{Axis, Decision, Guarantee};
use throttlekit_server::internals::engine::DecisionObserver;
use throttlekit_server::internals::telemetry::{ServerTelemetry, TelemetryOptions};

const EACH: u32 = 1_000_000;
const ROUNDS: u32 = 7;

fn main() -> std::io::Result<()> {
    let telemetry = ServerTelemetry::start(TelemetryOptions::default())?;
    let mut figure = Map::from_iter([("name".to_owned(), Value::from("telemetry-cost"))]);
    for (what, allowed) in [("allowed", true), ("denied", false)] {
        for threads in [1, 2] {
            let mut rounds: Vec<_> = (0..ROUNDS).map(|_| round(&telemetry, threads, allowed)).collect();
            rounds.sort_unstable();
            let (best, median) = (rounds[0], rounds[rounds.len() / 2]);
            println!("{what:<8} threads={threads} ns per decision: best {best} median {median}");
            let figures = json!({ "best_ns": best, "median_ns": median });
            figure.insert(format!("{what}_threads_{threads}"), figures);
        }
    }
    let lost = telemetry.counts().events_lost();
    println!("events lost: {lost}");
    figure.insert("decisions_each".into(), (u64::from(EACH) * u64::from(ROUNDS)).into());
    figure.insert("events_lost".into(), lost.into());
    println!("figure: {}", Value::from(figure));
    Ok(())
}

/// Nanoseconds of one decision on its thread.
fn round(telemetry: &Arc<ServerTelemetry>, threads: u32, allowed: bool) -> u64 {
    let clock = PreciseClock::new();
    let start = clock.now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let keys: Vec<String> = (0..1_024).map(|key| format!("tenant/{thread}/{key}")).collect();
                for at in 0..EACH {
                    let event = Event {
                        policy: "api",
                        key: keys[at as usize % keys.len()].as_bytes(),
                        cost: 1,
                        decision: Decision { allowed, ..ALLOW_FULL },
                        denied_by: (!allowed).then_some(Axis::Rate),
                        limit_name: None,
                        guarantee: Guarantee::Exact,
                    };
                    telemetry.decided(&event, false, Duration::from_nanos(u64::from(at % 4_096) * 100));
                }
            });
        }
    });
    clock.now().since(start).as_nanos() as u64 / u64::from(EACH)
}
