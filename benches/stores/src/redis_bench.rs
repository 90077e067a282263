//! Decisions on Redis compared with `redis-benchmark` on the very same script and keys, with a bare client,
//! and the script's own cost compared with a minimal one.

use std::cell::Cell;
use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use redis::{Client, Script, Value};
use throttlekit::{Rate, SharedLimiter};
use throttlekit_redis::{ADMIT_SCRIPT, RedisStore, RedisStoreBuilder};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::commandstats::CommandStats;
use crate::load::{CALLERS, Dice, decisions_per_second};
use crate::report::Report;
use crate::shell::{number_before, output};
use crate::turns::{in_turns, median, ratio};

const KEYS: u64 = 100_000;
/// Of so many keys, `redis-benchmark` draws few twice.
const NEW_KEYS: u64 = 2_000_000_000;
/// Calls of one turn of `redis-benchmark`.
const CALLS: &str = "200000";
const TURN: Duration = Duration::from_secs(2);
const PIPELINES: [&str; 3] = ["16", "32", "64"];
const ONE_BY_ONE: usize = 4_000;

const THROUGHPUT_MIN: f64 = 0.95;
const LATENCY_MAX: f64 = 1.15;
/// One of its `GET`s reads the lineage record, which a script for one rule does not have.
const SCRIPT_MAX: f64 = 1.45;

/// The limit of every contender: one per minute, ten thousand at once. No state expires within a run, and nothing is
/// denied, so the pace of the machine does not change what is measured.
fn rate() -> Rate {
    Rate::per_minute(1).burst(10_000)
}
/// The arguments of the script: time of the cost and of the whole, in microseconds, and time of a unit, which
/// the minimal script does not read.
const NUMBERS: [&str; 3] = ["60000000", "600000000000", "60000000"];
/// The same for ten per second, ten at once: states of new keys are soon gone.
const NUMBERS_OF_NEW: [&str; 3] = ["100000", "1000000", "100000"];
fn rate_of_new() -> Rate {
    Rate::per_second(10).burst(10)
}
const GRACE: &str = "10000";

/// Only GCRA, as one would write it for one rule and in doubles.
const MINIMAL: &str = "\
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local new = tat + ARGV[1]
if new - now > tonumber(ARGV[2]) then return {0, 0, tat - now} end
redis.call('SET', KEYS[1], new, 'PX', math.ceil((new - now) / 1000))
return {1, new - now, 0}";

pub fn run(rounds: usize) -> Result<bool> {
    let bench = Bench::new()?;
    let mut report = Report::default();
    bench.throughput(rounds, &mut report)?;
    bench.latency(rounds, &mut report)?;
    bench.script_cost(rounds, &mut report)?;
    Ok(report.end("bench-redis"))
}

#[derive(Clone, Copy)]
enum Rule {
    Ours,
    Minimal,
}

#[derive(Clone, Copy)]
enum Keys {
    /// Those of the limiter, whose states stay.
    Known,
    /// Without a state.
    New(Evictions),
}

/// The place of the check that tells a new key from one whose state was evicted.
#[derive(Clone, Copy)]
enum Evictions {
    /// The script.
    InScript,
    /// The caller, by a check that follows many decisions and is not measured here.
    Later,
}

/// Where the connection of the store runs.
#[derive(Clone, Copy)]
enum Connection {
    /// On the driver thread of the process, the default.
    OnDriver,
    /// On the runtime of the caller: one thread less to wake.
    OnCaller,
}

struct Bench {
    url: String,
    port: String,
    admit: String,
    minimal: String,
    /// The server's lineage record, an argument of the script.
    record: String,
    /// Turns on new keys so far.
    turns: Cell<u64>,
}

impl Bench {
    fn new() -> Result<Self> {
        let url = env::var("THROTTLEKIT_REDIS").context("eval \"$(cargo xtask services up)\" first")?;
        let port = url.rsplit(':').next().unwrap_or_default().to_owned();
        let mut connection = Client::open(url.clone())?.get_connection()?;
        let admit = Script::new(ADMIT_SCRIPT).prepare_invoke().load(&mut connection)?;
        let minimal = Script::new(MINIMAL).prepare_invoke().load(&mut connection)?;
        let mut first = redis::cmd("EVALSHA");
        first.arg(&admit).arg(1).arg("tk:{bench/first}g:").arg("").arg(GRACE).arg(&NUMBERS[..]).arg("?");
        first.exec(&mut connection)?;
        let record = redis::cmd("GET").arg("tk:{%since}").query(&mut connection)?;
        Ok(Self { url, port, admit, minimal, record, turns: Cell::new(0) })
    }

    fn throughput(&self, rounds: usize, report: &mut Report) -> Result<()> {
        println!("decisions a second on {KEYS} keys, {CALLERS} callers; redis-benchmark with 50 connections");
        let [p16, p32, p64, threads, thread, on_caller, new_keys] = in_turns(
            rounds,
            "throughput",
            [
                (
                    "redis-benchmark -P 16",
                    Box::new(|| self.redis_benchmark(PIPELINES[0], Rule::Ours, Keys::Known)),
                ),
                (
                    "redis-benchmark -P 32",
                    Box::new(|| self.redis_benchmark(PIPELINES[1], Rule::Ours, Keys::Known)),
                ),
                (
                    "redis-benchmark -P 64",
                    Box::new(|| self.redis_benchmark(PIPELINES[2], Rule::Ours, Keys::Known)),
                ),
                (
                    "ours on a runtime of 2 threads",
                    Box::new(|| self.ours(multi_thread()?, Connection::OnDriver, Keys::Known)),
                ),
                (
                    "ours on a runtime of 1 thread",
                    Box::new(|| self.ours(current_thread()?, Connection::OnDriver, Keys::Known)),
                ),
                (
                    "the same, with the store on it",
                    Box::new(|| self.ours(current_thread()?, Connection::OnCaller, Keys::Known)),
                ),
                (
                    "ours on a runtime of 1 thread, new keys",
                    Box::new(|| {
                        self.ours(current_thread()?, Connection::OnDriver, Keys::New(Evictions::Later))
                    }),
                ),
            ],
        )?;
        for (name, measures) in PIPELINES.iter().zip([&p16, &p32, &p64]) {
            report.note(&format!("redis-benchmark -P {name}, calls/s"), median(measures));
        }
        report.note("ours, 2 threads, decisions/s", median(&threads));
        report.note("ours, 1 thread, decisions/s", median(&thread));
        report.note("ours, 1 thread with the store on it, decisions/s", median(&on_caller));
        let best = best_of([&p16, &p32, &p64]);
        report.note("ours, 1 thread, new keys, decisions/s", median(&new_keys));
        report.note("ours, 1 thread, new keys / known keys", ratio(&new_keys, &thread));
        report.note("checks for evictions per decision on new keys", self.checks_per_decision()?);
        report.note("throughput of 2 threads / redis-benchmark's best", ratio(&threads, best));
        let ours = best_of([&threads, &thread, &on_caller]);
        report.at_least("throughput / redis-benchmark's best", ratio(ours, best), THROUGHPUT_MIN);
        Ok(())
    }

    /// Returns the number of `INFO` calls for each decision on a new key.
    fn checks_per_decision(&self) -> Result<f64> {
        let mut stats = CommandStats::of(&self.url)?;
        stats.reset()?;
        let decided = self.ours(current_thread()?, Connection::OnDriver, Keys::New(Evictions::Later))?
            * TURN.as_secs_f64();
        Ok(stats.field("info", "calls")?.unwrap_or_default() / decided)
    }

    /// Returns the calls per second.
    fn redis_benchmark(&self, pipeline: &str, rule: Rule, keys: Keys) -> Result<f64> {
        let (policy, drawn_of, numbers) = match keys {
            Keys::Known => ("bench", KEYS, NUMBERS),
            Keys::New(_) => ("new", NEW_KEYS, NUMBERS_OF_NEW),
        };
        let record = match keys {
            Keys::New(Evictions::Later) => format!("+{}", self.record),
            _ => self.record.clone(),
        };
        let (sha, key, before, after) = match rule {
            Rule::Ours => {
                let key = format!("tk:{{{policy}/__rand_int__}}g:");
                (&self.admit, key, &["", GRACE][..], Some(record.as_str()))
            }
            Rule::Minimal => (&self.minimal, format!("minimal/{policy}:__rand_int__"), &[][..], None),
        };
        let drawn_of = drawn_of.to_string();
        let mut args = vec!["-p", &self.port, "-c", "50", "-P", pipeline, "-n", CALLS, "-r", &drawn_of, "-q"];
        args.extend(["EVALSHA", sha, "1", &key]);
        args.extend(before.iter().copied().chain(numbers).chain(after));
        number_before(&output("redis-benchmark", &args)?, " requests per second")
    }

    fn store(&self, connection: Connection) -> RedisStoreBuilder {
        let builder = RedisStore::builder(&self.url);
        match connection {
            Connection::OnDriver => builder,
            Connection::OnCaller => builder.runtime(Handle::current()),
        }
    }

    /// Returns the decisions per second.
    fn ours(&self, runtime: Runtime, connection: Connection, keys: Keys) -> Result<f64> {
        let (policy, rate, keys) = match keys {
            Keys::Known => ("bench".to_owned(), rate(), KEYS),
            // Callers draw the same keys in each turn.
            Keys::New(_) => {
                (format!("new{}", self.turns.replace(self.turns.get() + 1)), rate_of_new(), NEW_KEYS)
            }
        };
        runtime.block_on(async {
            let store = self.store(connection).deadline(Duration::from_secs(5)).connect().await?;
            decisions_per_second(SharedLimiter::new(store, &policy, rate)?, keys, TURN).await
        })
    }

    fn latency(&self, rounds: usize, report: &mut Report) -> Result<()> {
        println!(
            "one call in flight: median microseconds, our decision beside the same script from a bare client"
        );
        let runtime = current_thread()?;
        let (on_driver, on_caller, bare) = runtime.block_on(async {
            let on_driver = self.store(Connection::OnDriver).connect().await?;
            let on_caller = self.store(Connection::OnCaller).connect().await?;
            let client = Client::open(self.url.clone())?;
            let bare = client.get_multiplexed_async_connection().await?;
            let limiter = |store| SharedLimiter::new(store, "bench", rate());
            anyhow::Ok((limiter(on_driver)?, limiter(on_caller)?, bare))
        })?;
        let [ours, ours_on_caller, theirs] = in_turns(
            rounds,
            "latency",
            [
                ("ours", Box::new(|| runtime.block_on(p50_of_ours(&on_driver)))),
                (
                    "ours, with the store on the runtime",
                    Box::new(|| runtime.block_on(p50_of_ours(&on_caller))),
                ),
                ("bare client", Box::new(|| runtime.block_on(p50_of_bare(&bare, &self.admit, &self.record)))),
            ],
        )?;
        report.note("p50 of a decision, µs", median(&ours));
        report.note("p50 with the store on the caller's runtime, µs", median(&ours_on_caller));
        report.note("p50 of a bare client, µs", median(&theirs));
        report.at_most("p50 / a bare client's", ratio(&ours, &theirs), LATENCY_MAX);
        let on_caller = ratio(&ours_on_caller, &theirs);
        report.note("p50 with the store on the caller's runtime / a bare client's", on_caller);
        Ok(())
    }

    fn script_cost(&self, rounds: usize, report: &mut Report) -> Result<()> {
        println!("the server's own microseconds per script call, -P 16");
        let [ours, minimal, ours_new, ours_new_later, minimal_new] = in_turns(
            rounds,
            "script",
            [
                ("ours", Box::new(|| self.usec_per_call(Rule::Ours, Keys::Known))),
                ("minimal", Box::new(|| self.usec_per_call(Rule::Minimal, Keys::Known))),
                (
                    "ours, new keys",
                    Box::new(|| self.usec_per_call(Rule::Ours, Keys::New(Evictions::InScript))),
                ),
                (
                    "ours, new keys, checked later",
                    Box::new(|| self.usec_per_call(Rule::Ours, Keys::New(Evictions::Later))),
                ),
                (
                    "minimal, new keys",
                    Box::new(|| self.usec_per_call(Rule::Minimal, Keys::New(Evictions::InScript))),
                ),
            ],
        )?;
        report.note("usec_per_call of ours", median(&ours));
        report.note("usec_per_call of a minimal GCRA", median(&minimal));
        report.at_most("script / a minimal GCRA's", ratio(&ours, &minimal), SCRIPT_MAX);
        report.note("usec_per_call of ours, new keys", median(&ours_new));
        report.note("usec_per_call of ours, new keys, checked later", median(&ours_new_later));
        report.note("script / a minimal GCRA's, new keys", ratio(&ours_new, &minimal_new));
        let later = ratio(&ours_new_later, &minimal_new);
        report.at_most("script / a minimal GCRA's, new keys, checked later", later, SCRIPT_MAX);
        Ok(())
    }

    fn usec_per_call(&self, rule: Rule, keys: Keys) -> Result<f64> {
        let mut stats = CommandStats::of(&self.url)?;
        stats.reset()?;
        self.redis_benchmark("16", rule, keys)?;
        stats.field("evalsha", "usec_per_call")?.context("no script was called")
    }
}

/// Returns the measures with the highest median.
fn best_of<const N: usize>(contenders: [&Vec<f64>; N]) -> &[f64] {
    contenders.into_iter().max_by(|a, b| median(a).total_cmp(&median(b))).map_or(&[], Vec::as_slice)
}

async fn p50_of_ours(limiter: &SharedLimiter<RedisStore>) -> Result<f64> {
    let (mut dice, mut took) = (Dice::new(1, KEYS), Vec::with_capacity(ONE_BY_ONE));
    for _ in 0..ONE_BY_ONE {
        let key = dice.key();
        let begun = Instant::now();
        limiter.check(&key).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&took))
}

async fn p50_of_bare(connection: &MultiplexedConnection, sha: &str, record: &str) -> Result<f64> {
    let (mut dice, mut took) = (Dice::new(1, KEYS), Vec::with_capacity(ONE_BY_ONE));
    let mut connection = connection.clone();
    for _ in 0..ONE_BY_ONE {
        let key = format!("tk:{{bench/{}}}g:", dice.key());
        let begun = Instant::now();
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(sha).arg(1).arg(key).arg("").arg(GRACE).arg(&NUMBERS[..]).arg(record);
        let _: Value = cmd.query_async(&mut connection).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&took))
}

fn multi_thread() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn current_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
