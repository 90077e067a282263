//! Prints random timelines and the decisions of the core on them, for Python to repeat: `rust_scenarios COUNT`. None has a
//! calendar of a time zone, which the package does not offer.
//!
//! Each is in the format of the golden vectors, after the time at which the limiter is to be built, and ends with an
//! empty line.

use throttlekit_conformance::trace::Line;
use throttlekit_conformance::{CoreSubject, Operation, Scenario, Subject, Trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).ok_or("expected a count")?.parse()?;
    let is_offered = |scenario: &Scenario| !scenario.spec.to_string().contains(" local ");
    for scenario in (0..).map(Scenario::roll).filter(is_offered).take(count) {
        let trace = Trace { about: Vec::new(), spec: scenario.spec, lines: decided(&scenario)? };
        println!("built {}\n{trace}", scenario.built_at().as_nanos());
    }
    Ok(())
}

/// Returns the requests of a scenario, with the decisions of the core.
fn decided(scenario: &Scenario) -> Result<Vec<Line>, Box<dyn std::error::Error>> {
    let mut core = CoreSubject::new(scenario.spec.limit()?);
    let decide = |(now, operation)| match operation {
        Operation::Ask { key, cost } => {
            let key = key.to_string();
            let answer = core.check(&key, cost, now);
            Some(Line { now, key, cost, answer })
        }
        _ => None,
    };
    Ok(scenario.moments().filter_map(decide).collect())
}
