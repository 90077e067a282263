//! The use of a token budget, whatever other keys do: tables, and one `figure:` line.
//!
//! In memory and on Redis it runs the library, and in memory the engine of the server.

mod server;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use throttlekit::clock::{Clock, WallClock};
use throttlekit_redis::RedisStore;

use crate::runner::{Options, Run, rounded};
use throttlekit_verify::budget_use::{self, Attack, BUDGETS, Learns, Paced, Scenario, Seen};

pub(crate) use server::ServerBug;
use server::{Size, Through};

const MINUTES: u64 = 40;
const MINUTES_SMALL: u64 = 3;
/// Seeded bugs show in the first minutes.
const SEEDED_MINUTES: u64 = 3;
/// The length of a window on a real engine, and the number of whole ones that are measured.
const WINDOW: Duration = Duration::from_secs(4);
const WINDOWS: u64 = 3;
/// Long, because the use is checked and not the speed of an engine: it shares its processors with the
/// verification.
const DEADLINE: Duration = Duration::from_secs(30);
const USED_MIN: f64 = 0.95;
/// The runs through the engine of the server, and those that look for its seeded bugs.
const SERVER: Size = Size { budget: 48_000, windows: 12 };
const SERVER_SMALL: Size = Size { budget: 24_000, windows: 3 };

/// One scenario and its result.
struct Row {
    scenario: Scenario,
    seen: Seen,
    broken: Option<String>,
}

/// Runs every scenario. Fails if a budget is left unused, a key changes another's reservations, or a seeded
/// bug is not found.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let small = options.has("--small");
    let minutes = if small { MINUTES_SMALL } else { MINUTES };
    let rows = examine_all(minutes);
    let address = run.services().address("redis", "THROTTLEKIT_REDIS")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let redis = runtime.block_on(on_redis(&address))?;
    let through = Through::run(if small { SERVER_SMALL } else { SERVER })?;
    through.tell();
    println!();
    run.seeded(budget_use::find_seeded(SEEDED_MINUTES));
    run.seeded(server::find_seeded(SERVER_SMALL)?);
    let mut figure = figure(&rows, minutes, redis);
    figure["server"] = through.figure();
    run.violated(through.violations());
    run.violated(rows.into_iter().filter_map(|row| row.broken));
    run.violated((redis < USED_MIN).then(|| format!("{redis:.3} of a window used on Redis")));
    Ok(figure)
}

fn examine_all(minutes: u64) -> Vec<Row> {
    println!(
        "{minutes} minutes, streams of {} tokens, no hints; part of the budget used\n",
        budget_use::STREAM
    );
    let heads = ["learns", "beside", "at once", "budget", "minute 1", "least of later", "cut short"];
    println!(
        "{:<10}{:<8}{:>8}{:>8}{:>10}{:>16}{:>11}",
        heads[0], heads[1], heads[2], heads[3], heads[4], heads[5], heads[6]
    );
    let examine = |scenario: Scenario| {
        let (seen, broken) = scenario.examine(minutes, None);
        let row = Row { scenario, seen, broken };
        row.tell();
        row
    };
    Scenario::all().into_iter().map(examine).collect()
}

/// Returns the minimum use of a window on a real engine with its own clock.
async fn on_redis(address: &str) -> Result<f64> {
    let store = Arc::new(RedisStore::builder(address).deadline(DEADLINE).connect().await?);
    let run = WallClock.now().as_nanos();
    let mut running = Vec::new();
    for (learns, i) in [Learns::Default, Learns::Shared].into_iter().zip(0..) {
        for at_once in budget_use::AT_ONCE {
            for budget in [BUDGETS[0], BUDGETS[2]] {
                let paced = Paced { budget, at_once, learns, window: WINDOW, windows: WINDOWS };
                let (store, policy) = (store.clone(), format!("use-{run:x}-{i}-{at_once}-{budget}"));
                let used = async move { budget_use::use_windows(store, &policy, paced).await };
                running.push((paced, tokio::spawn(used)));
            }
        }
    }
    println!("\nRedis, windows of {WINDOW:?}");
    let mut least = f64::INFINITY;
    for (paced, used) in running {
        let used = used.await.context("a run on Redis panicked")?;
        ensure!(used.len() as u64 == WINDOWS, "{} windows were looked at, not {WINDOWS}", used.len());
        println!(
            "{:<10}{:>16}{:>8}  {used:?}",
            format!("{:?}", paced.learns).to_lowercase(),
            paced.at_once,
            paced.budget
        );
        least = used.iter().map(|used| part(*used, paced.budget)).fold(least, f64::min);
    }
    Ok(least)
}

fn part(used: u64, budget: u64) -> f64 {
    used as f64 / budget as f64
}

impl Row {
    fn first(&self) -> f64 {
        part(self.seen.used[0], self.scenario.budget)
    }

    /// Returns the minimum of all minutes but the first.
    fn later(&self) -> f64 {
        part(self.seen.used[1..].iter().copied().min().unwrap_or(0), self.scenario.budget)
    }

    fn tell(&self) {
        let Scenario { budget, at_once, learns, attack, mixed } = self.scenario;
        let [learns, attack] = [format!("{learns:?}"), format!("{attack:?}")].map(|name| name.to_lowercase());
        let attack = if mixed { "mixed".into() } else { attack };
        let (first, later, cut) = (self.first(), self.later(), self.seen.cut_short);
        println!("{learns:<10}{attack:<8}{at_once:>8}{budget:>8}{first:>10.3}{later:>16.3}{cut:>11}");
    }
}

fn figure(rows: &[Row], minutes: u64, redis: f64) -> Value {
    let rounded = |value: f64| rounded(value, 3);
    let least = |of: fn(&Row) -> f64, attacked: bool| {
        let rows = rows.iter().filter(|row| (row.scenario.attack != Attack::None) == attacked);
        rounded(rows.map(of).fold(f64::INFINITY, f64::min))
    };
    json!({
        "scenarios": rows.len(),
        "minutes": minutes,
        "used_first_min": least(Row::first, false),
        "used_later_min": least(Row::later, false),
        "used_first_min_attacked": least(Row::first, true),
        "used_later_min_attacked": least(Row::later, true),
        "used_redis_min": rounded(redis),
    })
}
