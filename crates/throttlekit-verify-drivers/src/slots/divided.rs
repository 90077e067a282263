//! Four real node processes that share one ceiling of one backend process through Redis, without and with
//! faults.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;
use throttlekit_redis::RedisStore;

use super::{Part, Setup};
use throttlekit_verify::divided::{Bug, Crew, Limit, Order, Tally, post, serve, tally};

const CEILING: u32 = 48;
const LIVES: Duration = Duration::from_millis(1_200);
/// The number that each node would have in flight if nothing were denied, in thousandths of the ceiling.
const DEMANDS: [u64; 4] = [2_100, 600, 240, 60];
const WORK: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(50)];
/// Longer than the propagation of a released share.
const LONG_WORK: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];
/// Longer than a grant lives.
const LONGEST_WORK: [Duration; 2] = [Duration::from_millis(1_500), Duration::from_millis(3_000)];
/// The minimum use of the ceiling in calm, as the backend counts: the time for which a node holds a slot
/// beside the work is lost.
const USE_MIN: f64 = 0.9;
/// A run that never comes near its ceiling shows nothing about it.
const TIGHT_MIN: f64 = 0.9;
/// For each node: four regular heartbeats in the life of a grant, and eager ones a fortieth of it apart.
const HEARTBEATS_A_SECOND_MAX: f64 = 4.0 * 40.0 / 1.2;
/// The concurrency up to which the backend works at full speed where the ceiling is inferred.
const CAPACITY: u32 = 24;
/// An inferred ceiling settles between these parts of the capacity.
const SETTLES: [f64; 2] = [0.6, 1.8];
/// Each bug with the duration of work and the multiple of the demand: enough that every share is in use.
const SEEDED: [(Bug, [Duration; 2], u64); 3] =
    [(Bug::ClockStands, WORK, 1), (Bug::TornReport, LONG_WORK, 6), (Bug::WorkOutlives, LONGEST_WORK, 6)];

/// The length of each scene, in seconds.
struct Lengths {
    settle: f64,
    calm: f64,
    equal: f64,
    faulty: f64,
    infer: f64,
    seeded: f64,
}

const FULL: Lengths =
    Lengths { settle: 4.0, calm: 12.0, equal: 6.0, faulty: 32.0, infer: 20.0, seeded: 12.0 };
const SMALL: Lengths = Lengths { settle: 2.5, calm: 2.0, equal: 0.0, faulty: 5.0, infer: 0.0, seeded: 0.0 };

const REDIS: &str = "THROTTLEKIT_REDIS";

/// Runs the nodes; in a child process, serves its post.
pub(super) fn run(setup: Setup) -> Result<Part> {
    if let Some(post) = post() {
        serve(&post, || async { store().await.expect("the engine answers") });
        return Ok(Part::default());
    }
    let folder = std::env::temp_dir().join(format!("throttlekit-fleet-{}", BootClock.now().as_nanos()));
    let redis = setup.services.address("redis", REDIS)?;
    std::fs::create_dir_all(&folder)?;
    let found = scenes(&folder, &redis, if setup.small { &SMALL } else { &FULL });
    let _ = std::fs::remove_dir_all(&folder);
    found
}

async fn store() -> Result<RedisStore> {
    let url = std::env::var(REDIS).context("whoever starts a node says where the engine is")?;
    Ok(RedisStore::builder(url).deadline(Duration::from_millis(300)).connect().await?)
}

/// A backend and four nodes that share its ceiling.
#[derive(Clone, Copy)]
struct Scene<'a> {
    name: &'a str,
    folder: &'a Path,
    redis: &'a str,
    limit: Limit,
    capacity: u32,
    equal: bool,
    work: [Duration; 2],
    demand_times: u64,
    bug: Option<Bug>,
}

impl Scene<'_> {
    fn begin(&self) -> Result<Crew> {
        let (program, redis) = (std::env::current_exe()?, self.redis.to_owned());
        let command = move || {
            let mut command = Command::new(&program);
            // In the build of this process.
            command.args(["verify", "slots", "--small", "fleet"]).env(REDIS, &redis);
            command
        };
        let folder: PathBuf = self.folder.join(self.name.replace(' ', "-"));
        std::fs::create_dir_all(&folder)?;
        let mut crew = Crew::start(command, folder, self.capacity);
        let name = format!("verify {} {}", self.name, BootClock.now().as_nanos());
        for demand in DEMANDS {
            crew.join(Order {
                port: 0,
                name: name.clone(),
                log: PathBuf::new(),
                limit: self.limit,
                equal: self.equal,
                lives: LIVES,
                demand_milli: demand * self.demand_times * u64::from(CEILING),
                work: self.work,
                bug: self.bug,
            });
        }
        Ok(crew)
    }
}

fn scenes(folder: &Path, redis: &str, lengths: &Lengths) -> Result<Part> {
    let (limit, work) = (Limit::Fixed(CEILING), WORK);
    let (capacity, demand_times, equal, bug) = (0, 1, false, None);
    let fixed = Scene { name: "fixed", folder, redis, limit, capacity, equal, work, demand_times, bug };
    let mut part = Part::default();
    println!(
        "{:<16}{:>7}{:>8}{:>8}{:>7}{:>8}{:>9}{:>8}{:>8}{:>8}  faults",
        "scene", "most", "decided", "used", "of", "served", "refused", "beats/s", "races", "fences"
    );
    let [calm, faulty] = calm_and_faulty(&fixed, lengths, &mut part.broken)?;
    let equal = if lengths.equal > 0.0 { Some(calm_alone(&fixed, lengths)?) } else { None };
    let inferred =
        if lengths.infer > 0.0 { Some(inferred(&fixed, lengths, &mut part.broken)?) } else { None };
    for (bug, work, demand_times) in SEEDED.into_iter().filter(|_| lengths.seeded > 0.0) {
        let name = bug.name();
        let seen = seeded(&Scene { name, work, demand_times, bug: Some(bug), ..fixed }, lengths)?;
        let caught = seen > CEILING.into();
        println!("{name:<16}{seen:>7}  seeded, {}", if caught { "found" } else { "NOT found" });
        part.seeded.note(name, caught);
    }
    part.figure = json!({
        "ceiling": CEILING,
        "calm": figure(&calm),
        "storm": figure(&faulty),
        "equal_split_use": equal.map(|tally| tally.mean / f64::from(CEILING)),
        "capacity": CAPACITY,
        "inferred_ceiling": inferred,
    });
    Ok(part)
}

fn figure(tally: &Tally) -> Value {
    json!({
        "most_at_a_time": tally.most,
        "decided_at_a_time": tally.decided,
        "use": tally.mean / f64::from(CEILING),
        "served": tally.served,
        "refused": tally.refused,
        "beats_a_second": tally.heartbeats_a_second,
        "fences": tally.fences,
        "seconds": tally.seconds,
    })
}

fn pass(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

fn tell(name: &str, tally: &Tally, of: u32, faults: &str) {
    println!(
        "{name:<16}{:>7}{:>8}{:>7.1}%{of:>7}{:>8}{:>9}{:>8.1}{:>8}{:>8}  {faults}",
        tally.most,
        tally.decided,
        100.0 * tally.mean / f64::from(of),
        tally.served,
        tally.refused,
        tally.heartbeats_a_second,
        tally.races,
        tally.fences,
    );
}

/// Nodes with very different demand share the ceiling in calm; then some are stopped, killed and replaced.
fn calm_and_faulty(scene: &Scene<'_>, lengths: &Lengths, broken: &mut Vec<String>) -> Result<[Tally; 2]> {
    let begun = BootClock.now();
    let mut crew = scene.begin()?;
    pass(lengths.settle);
    let from = BootClock.now();
    pass(lengths.calm);
    let to = BootClock.now();
    let calm = tally(&crew, from, to);
    let shares = crew.shares();
    tell("calm", &calm, CEILING, &format!("shares and wants {shares:?}"));
    crew.inject_faults(7, Duration::from_secs_f64(lengths.faulty));
    pass(LIVES.as_secs_f64());
    let faulty = tally(&crew, begun, BootClock.now());
    tell("under faults, all of it", &faulty, CEILING, &format!("{:?}", crew.faults));
    judge(&calm, &faulty, broken);
    crew.dismiss();
    Ok([calm, faulty])
}

fn judge(calm: &Tally, faulty: &Tally, broken: &mut Vec<String>) {
    let most = calm.most.max(faulty.most);
    let mut expect = |holds: bool, told: String| {
        if !holds {
            broken.push(told);
        }
    };
    let ceiling = f64::from(CEILING);
    expect(most <= CEILING.into(), format!("the backend had {most} at a time, of {CEILING}"));
    let decided = faulty.decided;
    expect(decided <= CEILING.into(), format!("nodes let {decided} in at a time, of {CEILING}"));
    let use_of = calm.mean / ceiling;
    expect(use_of >= USE_MIN, format!("in calm {use_of:.3} of the ceiling was used"));
    expect(calm.most as f64 >= TIGHT_MIN * ceiling, format!("only {} at a time at the most", calm.most));
    let heartbeats = calm.heartbeats_a_second.max(faulty.heartbeats_a_second);
    expect(heartbeats <= HEARTBEATS_A_SECOND_MAX, format!("{heartbeats:.0} heartbeats a second"));
}

fn calm_alone(scene: &Scene<'_>, lengths: &Lengths) -> Result<Tally> {
    let mut crew = Scene { name: "equal split", equal: true, ..*scene }.begin()?;
    pass(lengths.settle);
    let from = BootClock.now();
    pass(lengths.equal);
    let calm = tally(&crew, from, BootClock.now());
    tell("equal split", &calm, CEILING, "");
    crew.dismiss();
    Ok(calm)
}

/// Returns the mean ceiling over the last half of the time.
fn inferred(scene: &Scene<'_>, lengths: &Lengths, broken: &mut Vec<String>) -> Result<f64> {
    let limit = Limit::Inferred(400);
    let work = [Duration::from_millis(10), Duration::from_millis(12)];
    let mut crew = Scene { name: "inferred", limit, work, capacity: CAPACITY, ..*scene }.begin()?;
    pass(lengths.infer / 2.0);
    let from: Timestamp = BootClock.now();
    pass(lengths.infer / 2.0);
    let seen = tally(&crew, from, BootClock.now());
    let near = seen.ceiling / f64::from(CAPACITY);
    let [low, high] = seen.ceilings;
    let told = format!("ceiling {:.1} ({low} to {high}) for a capacity of {CAPACITY}", seen.ceiling);
    tell("inferred", &seen, CAPACITY, &told);
    if !(SETTLES[0]..=SETTLES[1]).contains(&near) {
        broken.push(format!("a ceiling of {:.1} was inferred for a capacity of {CAPACITY}", seen.ceiling));
    }
    crew.dismiss();
    Ok(seen.ceiling)
}

/// Returns the maximum concurrency that the backend saw.
fn seeded(scene: &Scene<'_>, lengths: &Lengths) -> Result<u64> {
    let begun = BootClock.now();
    let mut crew = scene.begin()?;
    pass(lengths.settle);
    let until = BootClock.now() + Duration::from_secs_f64(lengths.seeded);
    let mut most = 0;
    while BootClock.now() < until && most <= CEILING.into() {
        // The greedy one is stopped, and its share goes to the others.
        crew.stop(0, LIVES * 2);
        crew.replace(1);
        pass(LIVES.as_secs_f64());
        most = tally(&crew, begun, BootClock.now()).most;
    }
    Ok(most)
}
