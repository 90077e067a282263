//! Leases inside the server compared with a call to Redis for every request.

use anyhow::Result;

use crate::calls::{IN_FLIGHT, Shape, decisions_per_second, until_exact};
use crate::in_process::InProcess;
use crate::process::Served;
use crate::redis_bench::url;
use crate::report::Report;
use crate::turns::{in_turns, median, ratio};

/// The number of keys in one CheckMany, all hot.
const KEYS: u64 = 100;
const MANY_IN_FLIGHT: u64 = 10;
const LEASED_MIN: f64 = 20.0;

fn shape(policy: &'static str, at_once: usize) -> Shape {
    Shape { policy, keys: KEYS, at_once }
}

pub fn run(rounds: usize, report: &mut Report) -> Result<()> {
    println!("leased in batches of 1000 beside strict, on Redis, {KEYS} hot keys");
    let mut served = Served::start(&["serve", &url()?])?;
    let uri = served.uri.clone();
    until_exact(&uri, shape("strict", 1))?;
    let check = |policy| decisions_per_second(&uri, shape(policy, 1), IN_FLIGHT);
    let many = |policy| decisions_per_second(&uri, shape(policy, KEYS as usize), MANY_IN_FLIGHT);
    let engine = InProcess::start(&url()?)?;
    let inside = |policy| engine.decisions_per_second(policy, KEYS);
    let [leased, strict, many_leased, many_strict, engine_leased, engine_strict] = in_turns(
        rounds,
        "leased",
        [
            ("Check, leased", Box::new(|| check("leased"))),
            ("Check, strict", Box::new(|| check("strict"))),
            ("CheckMany, leased", Box::new(|| many("leased"))),
            ("CheckMany, strict", Box::new(|| many("strict"))),
            ("the engine, leased", Box::new(|| inside("leased"))),
            ("the engine, strict", Box::new(|| inside("strict"))),
        ],
    )?;
    report.note("leased: Check, decisions/s", median(&leased));
    report.note("leased: Check strict, decisions/s", median(&strict));
    report.note("leased: CheckMany of 100, decisions/s", median(&many_leased));
    report.note("leased: CheckMany of 100 strict, decisions/s", median(&many_strict));
    report.at_least("leased: Check / strict", ratio(&leased, &strict), LEASED_MIN);
    report.note("leased: CheckMany of 100 / strict", ratio(&many_leased, &many_strict));
    // Over the wire a call costs more than a lease saves.
    report.note("leased: the engine without a wire, decisions/s", median(&engine_leased));
    report.note("leased: the engine without a wire, strict, decisions/s", median(&engine_strict));
    let inside = ratio(&engine_leased, &engine_strict);
    report.at_least("leased: the engine without a wire / strict", inside, LEASED_MIN);

    let mut per_call = |policy| -> Result<f64> {
        let before = served.store_calls(policy)?;
        let decided = check(policy)? * crate::calls::TURN.as_secs_f64();
        Ok(decided / (served.store_calls(policy)? - before).max(1) as f64)
    };
    let (leased, strict) = (per_call("leased")?, per_call("strict")?);
    report.note("leased: decisions per call to Redis", leased);
    report.note("leased: decisions per call to Redis, strict", strict);
    report.note("leased: decisions per call to Redis / strict", leased / strict);
    Ok(())
}
