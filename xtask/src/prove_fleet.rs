//! Fleets of real processes in a storm: the tests of `throttlekit-redis` for as long as wanted, as a table and one line.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use throttlekit::{Clock, PreciseClock};

const SECONDS: u64 = 120;
/// Fleets that weather a storm, one after another.
const STORMS: u64 = 2;
const FLEETS: usize = 3;
const PLANTED: usize = 6;
const FAULTS: [&str; 10] = [
    "kill",
    "leave",
    "stop",
    "delay",
    "lose_reply",
    "repeat",
    "half_open",
    "reset",
    "script_flush",
    "client_pause",
];
const COLUMNS: [&str; 7] = ["windows", "admitted", "across", "bound", "most", "beyond", "faults"];

/// What one fleet told, in words of the form `what=number`.
struct Told {
    name: String,
    facts: BTreeMap<String, u64>,
}

/// Runs every fleet and fails if one passes its bound, or a planted one does not.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let seconds = seconds_from(args)?;
    let clock = PreciseClock::new();
    let begun = clock.now();
    print!("{:<22}", "fleet");
    COLUMNS.iter().for_each(|column| print!("{column:>10}"));
    println!();
    let (fleets, passed) = play(seconds.div_ceil(STORMS))?;
    println!("figure: {}", figure(&fleets, seconds, clock.now().since(begun).as_secs()));
    ensure!(passed, "a fleet passed its bound, or a planted fault was not caught");
    let planted = fleets.iter().filter(|fleet| fleet.is_planted()).count();
    ensure!((fleets.len() - planted, planted) == (FLEETS, PLANTED), "some fleets did not tell what they did");
    Ok(())
}

fn seconds_from(args: &[&str]) -> Result<u64> {
    match args {
        [] => Ok(SECONDS),
        ["--seconds", n] => n.parse().with_context(|| format!("--seconds {n}: write a whole number")),
        _ => anyhow::bail!("prove fleet takes --seconds N and nothing else, not {}", args.join(" ")),
    }
}

/// What the fleets told, and whether all of them passed.
fn play(storm_seconds: u64) -> Result<(Vec<Told>, bool)> {
    let mut child = Command::new("cargo")
        .args(["test", "--quiet", "--no-fail-fast", "--package", "throttlekit-redis"])
        .args(["--test", "integration", "--", "--nocapture", "--test-threads", "1"])
        .args(["fleet_laws::", "fleet_planted::"])
        .env("THROTTLEKIT_FLEET_SECONDS", storm_seconds.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
    let mut fleets = Vec::new();
    for line in lines {
        if let Some((_, words)) = line?.split_once("fleet: ") {
            fleets.push(tell(Told::from(words)));
        }
    }
    Ok((fleets, child.wait()?.success()))
}

impl Told {
    fn from(words: &str) -> Self {
        let mut words = words.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        let fact = |word: &str| {
            let (what, value) = word.split_once('=')?;
            Some((what.to_owned(), value.parse().ok()?))
        };
        Self { name, facts: words.filter_map(fact).collect() }
    }

    fn fact(&self, what: &str) -> u64 {
        self.facts.get(what).copied().unwrap_or(0)
    }

    fn is_planted(&self) -> bool {
        self.facts.contains_key("planted")
    }
}

fn tell(fleet: Told) -> Told {
    print!("{:<22}", fleet.name);
    for column in COLUMNS {
        print!("{:>10}", fleet.facts.get(column).map_or("–".to_owned(), u64::to_string));
    }
    let verdict = match (fleet.is_planted(), fleet.fact("caught"), fleet.fact("beyond")) {
        (true, 0, _) => "planted, NOT caught",
        (true, ..) => "planted, caught",
        (false, _, 0) => "holds",
        (false, ..) => "VIOLATED",
    };
    println!("  {verdict}");
    fleet
}

fn figure(fleets: &[Told], storm_seconds: u64, seconds: u64) -> serde_json::Value {
    let of = |name: &str, what: &str| {
        fleets.iter().find(|fleet| fleet.name == name).map_or(0, |fleet| fleet.fact(what))
    };
    let struck =
        |fault: &str| (fault.to_owned(), json!(fleets.iter().map(|fleet| fleet.fact(fault)).sum::<u64>()));
    let honest = || fleets.iter().filter(|fleet| !fleet.is_planted());
    let planted = || fleets.iter().filter(|fleet| fleet.is_planted());
    json!({
        "name": "prove-fleet",
        "storm_seconds": storm_seconds,
        "windows": honest().map(|fleet| fleet.fact("windows")).sum::<u64>(),
        "admitted": honest().map(|fleet| fleet.fact("admitted")).sum::<u64>(),
        "faults": honest().map(|fleet| fleet.fact("faults")).sum::<u64>(),
        "faults_by_kind": FAULTS.into_iter().map(struck).collect::<serde_json::Map<_, _>>(),
        "violations": honest().filter(|fleet| fleet.fact("beyond") > 0).count(),
        "limit": of("coupled-storm", "bound"),
        "most_in_a_window": of("coupled-storm", "most"),
        "healthy_full": of("coupled-healthy", "full"),
        "healthy_maybe_full": of("coupled-healthy", "maybe_full"),
        "healthy_of": of("coupled-healthy", "brisk"),
        "storm_used_percent": of("coupled-storm", "used_percent"),
        "rolling_bound": of("rolling-storm", "bound"),
        "rolling_most": of("rolling-storm", "most"),
        "planted": planted().count(),
        "planted_found": planted().filter(|fleet| fleet.fact("caught") > 0).count(),
        "seconds": seconds,
    })
}
