//! Real node processes that lease, under a fault schedule: the tests of `throttlekit-redis` for the requested
//! time, as a table and one line.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use throttlekit_conformance::bugs;
use throttlekit_conformance::bugs::Found;

use crate::runner::{Options, Run};

const SECONDS: u64 = 120;
/// Fault schedules, one after another.
const SCHEDULES: u64 = 2;
const FLEETS: usize = 3;
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

/// The report of one group of nodes, in words of the form `what=number`.
struct Told {
    name: String,
    facts: BTreeMap<String, u64>,
}

bugs! {
    /// A bug of a node, or of all of them.
    pub(crate) enum Bug {
        SlowClock: "The clock of a node runs at half its pace.",
        FrozenClock: "The clock of a node stops with its process.",
        AnchoredAtReply: "The life of a lease is counted from the reply.",
        ReturnsTwice: "Units are returned under two names.",
        Carry: "Units are carried over into the next window.",
        SlowClockRolling: "The units of a smooth rate live too long.",
    }
}

/// Runs every group of nodes. Fails if one exceeds its bound, or one with a seeded bug does not.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let seconds = options.number("--cases", SECONDS)?;
    print!("{:<22}", "fleet");
    COLUMNS.iter().for_each(|column| print!("{column:>10}"));
    println!();
    let (fleets, passed) = play(seconds.div_ceil(SCHEDULES))?;
    run.must(passed, || "a test of fleets failed; see above".into());
    let caught = |bug: Bug| {
        let mut of = fleets.iter().filter(|fleet| fleet.name.replace('-', "_") == bug.name());
        of.any(|fleet| fleet.fact("caught") > 0)
    };
    run.seeded(Found::all(caught));
    let honest = fleets.iter().filter(|fleet| !fleet.is_seeded());
    run.must(honest.clone().count() == FLEETS, || "some fleets did not report".into());
    let broken = honest.filter(|fleet| fleet.fact("beyond") > 0);
    run.violated(broken.map(|fleet| format!("{} is beyond its bound", fleet.name)));
    Ok(figure(&fleets, seconds))
}

/// Returns the reports, and `true` if all tests passed.
fn play(fault_seconds: u64) -> Result<(Vec<Told>, bool)> {
    let mut child = Command::new("cargo")
        .args(["test", "--quiet", "--no-fail-fast", "--package", "throttlekit-redis"])
        .args(["--test", "integration", "--", "--nocapture", "--test-threads", "1"])
        .args(["nodes_invariants::", "nodes_seeded::"])
        .env("THROTTLEKIT_FLEET_SECONDS", fault_seconds.to_string())
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

    fn is_seeded(&self) -> bool {
        self.facts.contains_key("seeded")
    }
}

fn tell(fleet: Told) -> Told {
    print!("{:<22}", fleet.name);
    for column in COLUMNS {
        print!("{:>10}", fleet.facts.get(column).map_or("–".to_owned(), u64::to_string));
    }
    let verdict = match (fleet.is_seeded(), fleet.fact("caught"), fleet.fact("beyond")) {
        (true, 0, _) => "seeded, NOT found",
        (true, ..) => "seeded, found",
        (false, _, 0) => "holds",
        (false, ..) => "VIOLATED",
    };
    println!("  {verdict}");
    fleet
}

fn figure(fleets: &[Told], fault_seconds: u64) -> Value {
    let of = |name: &str, what: &str| {
        fleets.iter().find(|fleet| fleet.name == name).map_or(0, |fleet| fleet.fact(what))
    };
    let struck =
        |fault: &str| (fault.to_owned(), json!(fleets.iter().map(|fleet| fleet.fact(fault)).sum::<u64>()));
    let honest = || fleets.iter().filter(|fleet| !fleet.is_seeded());
    json!({
        "storm_seconds": fault_seconds,
        "windows": honest().map(|fleet| fleet.fact("windows")).sum::<u64>(),
        "admitted": honest().map(|fleet| fleet.fact("admitted")).sum::<u64>(),
        "faults": honest().map(|fleet| fleet.fact("faults")).sum::<u64>(),
        "faults_by_kind": FAULTS.into_iter().map(struck).collect::<serde_json::Map<_, _>>(),
        "limit": of("coupled-storm", "bound"),
        "most_in_a_window": of("coupled-storm", "most"),
        "healthy_full": of("coupled-healthy", "full"),
        "healthy_maybe_full": of("coupled-healthy", "maybe_full"),
        "healthy_of": of("coupled-healthy", "brisk"),
        "storm_used_percent": of("coupled-storm", "used_percent"),
        "rolling_bound": of("rolling-storm", "bound"),
        "rolling_most": of("rolling-storm", "most"),
    })
}
