//! Decisions on PostgreSQL compared with `pgbench` calling the very same function, and with a transaction of
//! five round trips around an advisory lock, as in a limiter without a function of its own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use throttlekit::{Rate, SharedLimiter};
use throttlekit_postgres::PostgresStore;
use tokio::runtime::Builder;

use crate::load::{CALLERS, decisions_per_second};
use crate::report::Report;
use crate::shell::{number_after, output};
use crate::turns::{in_turns, median, ratio};

const SCHEMA: &str = "tk_bench";
const KEYS: u64 = 100_000;
const TURN: Duration = Duration::from_secs(3);
const TURN_SECONDS: &str = "3";
/// Clients of `pgbench`, each with a connection: the number with the most calls a second is its contender.
const CLIENTS: [&str; 5] = ["4", "8", "16", "32", "64"];
/// Of ours, shared by all callers.
const CONNECTIONS: usize = 8;

const SAME_FUNCTION_MIN: f64 = 0.90;
const FIVE_TRIPS_MIN: f64 = 3.0;

/// A rate so high that requests pass: an admission writes, and writing is measured.
fn rate() -> Rate {
    Rate::per_second(1_000_000).burst(1_000_000)
}
/// The arguments of the function: kind, time of one unit and its remainder, depth and its remainder, ticks of
/// a µs and of a unit.
const NUMBERS: &str = "0, 1, 0, 1000000, 0, 1, 1";

/// The requested keys.
#[derive(Clone, Copy)]
struct Spread {
    name: &'static str,
    keys: u64,
}

pub fn run(rounds: usize) -> Result<bool> {
    let bench = Bench::new()?;
    let mut report = Report::default();
    for spread in [Spread { name: "one hot key", keys: 1 }, Spread { name: "100,000 keys", keys: KEYS }] {
        bench.throughput(spread, rounds, &mut report)?;
    }
    Ok(report.end("bench-postgres"))
}

struct Bench {
    url: String,
    folder: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn new() -> Result<Self> {
        let url = env::var("THROTTLEKIT_POSTGRES").context("eval \"$(cargo xtask services up)\" first")?;
        let folder = env::temp_dir().join(format!("throttlekit-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let bench = Self { url, folder, runtime };
        bench.psql(&format!("drop schema if exists {SCHEMA} cascade"))?;
        bench.runtime.block_on(bench.store())?;
        bench.psql(&format!("create table {SCHEMA}.five (key text primary key, tat bigint not null)"))?;
        Ok(bench)
    }

    fn throughput(&self, spread: Spread, rounds: usize, report: &mut Report) -> Result<()> {
        let (function, five) = (function_sql(spread), five_sql(spread));
        let clients = [self.best_clients("function", &function)?, self.best_clients("five", &five)?];
        println!(
            "decisions a second, {}: ours with {CALLERS} callers on {CONNECTIONS} connections; pgbench with its best \
             number of clients: {} calling the function, {} with five round trips",
            spread.name, clients[0], clients[1]
        );
        let [ours, function, five] = in_turns(
            rounds,
            spread.name,
            [
                ("ours", Box::new(|| self.ours(spread))),
                ("pgbench, the same function", Box::new(|| self.pgbench("function", &function, clients[0]))),
                ("pgbench, five round trips", Box::new(|| self.pgbench("five", &five, clients[1]))),
            ],
        )?;
        let name = spread.name;
        report.note(&format!("{name}: ours, decisions/s"), median(&ours));
        report.note(&format!("{name}: pgbench on the same function, calls/s"), median(&function));
        report.note(&format!("{name}: five round trips, transactions/s"), median(&five));
        report.at_least(
            &format!("{name}: ours / the same function"),
            ratio(&ours, &function),
            SAME_FUNCTION_MIN,
        );
        report.at_least(&format!("{name}: ours / five round trips"), ratio(&ours, &five), FIVE_TRIPS_MIN);
        Ok(())
    }

    async fn store(&self) -> Result<PostgresStore> {
        let builder = PostgresStore::builder(&self.url).schema(SCHEMA).connections(CONNECTIONS);
        Ok(builder.deadline(Duration::from_secs(20)).migrate_on_connect(true).connect().await?)
    }

    fn ours(&self, spread: Spread) -> Result<f64> {
        self.runtime.block_on(async {
            let limiter = SharedLimiter::new(self.store().await?, "bench", rate())?;
            decisions_per_second(limiter, spread.keys, TURN).await
        })
    }

    /// Returns the number of clients with which `pgbench` does the most transactions a second.
    fn best_clients(&self, name: &str, script: &str) -> Result<&'static str> {
        let mut best = (CLIENTS[0], 0.0);
        for clients in CLIENTS {
            let rate = self.pgbench(name, script, clients)?;
            if rate > best.1 {
                best = (clients, rate);
            }
        }
        Ok(best.0)
    }

    /// Transactions a second.
    fn pgbench(&self, name: &str, script: &str, clients: &str) -> Result<f64> {
        let file = self.folder.join(format!("{name}.sql"));
        fs::write(&file, script)?;
        let file = file.display().to_string();
        let args =
            ["-n", "-M", "prepared", "-c", clients, "-j", "2", "-T", TURN_SECONDS, "-f", &file, &self.url];
        number_after(&output(&program("pgbench"), &args)?, "tps = ")
    }

    fn psql(&self, statement: &str) -> Result<()> {
        output(&program("psql"), &["-qXd", &self.url, "-c", statement]).map(drop)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Debian keeps the server's own programs beside the server.
fn program(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let beside =
        versions.map(|version| version.path().join("bin").join(name)).find(|path| Path::exists(path));
    beside.map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

fn key_sql(spread: Spread) -> String {
    format!("\\set key random(0, {})\n", spread.keys - 1)
}

/// The key in the format of the store.
const KEY: &str = "'tk:{bench/' || lpad((:key)::text, 12, '0') || '}g:'";

fn function_sql(spread: Spread) -> String {
    format!("{}SELECT {SCHEMA}.admit_one(NULL, {KEY}, {NUMBERS});\n", key_sql(spread))
}

fn five_sql(spread: Spread) -> String {
    let now = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";
    format!(
        "{}BEGIN;\nSELECT pg_advisory_xact_lock(hashtextextended({KEY}, 0));\n\
         SELECT tat FROM {SCHEMA}.five WHERE key = {KEY};\n\
         INSERT INTO {SCHEMA}.five VALUES ({KEY}, {now}) ON CONFLICT (key) DO UPDATE \
         SET tat = greatest(five.tat, excluded.tat) + 1;\nCOMMIT;\n",
        key_sql(spread)
    )
}
