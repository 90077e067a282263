//! One row of the comparison: contenders that take turns under the same load, a table, and the verdict.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use crate::Bench;
use crate::apis::Api;
use crate::keys::{key, zipf};
use crate::load::{self, CALLERS, Load};
use crate::process::load_average;
use crate::report::round;
use crate::servers::{FREE, OURS, Running, Server};
use crate::turns::{median, ratio};

/// The share of a load that comes before each turn, for connections and caches: one part of these.
const WARM_UP_PARTS: usize = 20;

pub struct Row<'a> {
    pub title: String,
    /// Names of the servers, and the API that each is called by.
    pub apis: &'a [(&'static str, Api)],
    pub keys: usize,
    /// Decisions of one turn.
    pub decisions: usize,
    /// Paces the load at half of what the slowest contender decides at saturation, instead of sending as fast as possible.
    pub half_load: bool,
    pub threshold: Threshold,
}

/// The largest or smallest ratio of ours to a peer's.
#[derive(Clone, Copy)]
pub enum Threshold {
    CpuAtMost(f64),
    PerSecondAtLeast(f64),
    P99AtMost(f64),
}

/// One turn of one contender.
struct Measure {
    per_second: f64,
    cpu_us: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// A server in this row, its load, and its measures by round.
struct Contender<'a> {
    name: &'static str,
    server: &'a Server,
    api: Api,
    load: Arc<Load>,
    measures: Vec<Measure>,
}

type Column = fn(&Measure) -> f64;
const PER_SECOND: Column = |measure| measure.per_second;
const CPU_US: Column = |measure| measure.cpu_us;
const P50_MS: Column = |measure| measure.p50_ms;
const P99_MS: Column = |measure| measure.p99_ms;

impl Row<'_> {
    pub fn run(&self, bench: &mut Bench, running: &Running) -> Result<()> {
        if !self.title.contains(&bench.only) {
            return Ok(());
        }
        let mut contenders = self.contenders(running);
        let pace = if self.half_load { self.slow_down(bench, &mut contenders)? } else { String::new() };
        self.take_turns(bench, &mut contenders, bench.rounds)?;
        println!("\n### {}{pace} ({} decisions a turn, load {})", self.title, self.decisions, load_average());
        println!(
            "| contender | decisions/s | ours / its | CPU µs | ours / its | p50 ms | p99 ms | ours / its |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        let ours = contenders.iter().find(|contender| contender.name == OURS);
        if !self.half_load {
            let bar = |contender: &Contender<'_>| (contender.name, median(&contender.all(CPU_US)));
            bench.picture.add(&self.title, contenders.iter().map(bar).collect());
        }
        for contender in &contenders {
            self.print(bench, contender, ours);
        }
        for (name, why) in
            self.apis.iter().filter_map(|(name, api)| Some((name, running.absence(name, *api)?)))
        {
            println!("| {name} | {why} | | | | | | |");
            bench.report.record_text(&format!("{}: {name}", self.title), &why);
        }
        if let Some(ours) = ours {
            contenders.iter().filter(|peer| peer.name != OURS).for_each(|peer| self.judge(bench, ours, peer));
        }
        Ok(())
    }

    /// Returns those that run. All send the same keys in the same order.
    fn contenders<'a>(&self, running: &'a Running) -> Vec<Contender<'a>> {
        let order = Arc::new(zipf(self.keys, self.decisions));
        let present = self.apis.iter().filter(|(name, api)| running.absence(name, *api).is_none());
        let contender = |&(name, api): &(&'static str, Api)| {
            let requests = Arc::new(load::encode(api, FREE, (0..self.keys).map(key)));
            let load = Arc::new(Load { requests, order: order.clone(), pace: None });
            Some(Contender { name, server: running.get(name)?, api, load, measures: Vec::new() })
        };
        present.filter_map(contender).collect()
    }

    /// Measures the contenders at saturation, paces their loads, and returns the pace as a text.
    fn slow_down(&self, bench: &Bench, contenders: &mut [Contender<'_>]) -> Result<String> {
        self.take_turns(bench, contenders, 1)?;
        let measures = contenders.iter_mut().flat_map(|contender| contender.measures.drain(..));
        let pace = (measures.map(|measure| measure.per_second).fold(f64::INFINITY, f64::min) / 2.0).round();
        contenders.iter_mut().for_each(|contender| contender.load = Arc::new(contender.load.at_pace(pace)));
        Ok(format!(", {pace}/s"))
    }

    /// Measures each contender once per round. Each round begins with another one.
    fn take_turns(&self, bench: &Bench, contenders: &mut [Contender<'_>], rounds: usize) -> Result<()> {
        let all = contenders.len();
        for round in 0..rounds {
            for turn in 0..all {
                let contender = &mut contenders[(round + turn) % all];
                eprintln!("… {}, round {} of {rounds}: {}", self.title, round + 1, contender.name);
                let measure = bench.runtime.block_on(contender.turn());
                let measure = measure.with_context(|| format!("{}: {}", self.title, contender.name))?;
                contender.measures.push(measure);
            }
        }
        Ok(())
    }

    fn print(&self, bench: &mut Bench, contender: &Contender<'_>, ours: Option<&Contender<'_>>) {
        let mut value = |name, column| {
            let value = median(&contender.all(column));
            bench.report.record(&format!("{}: {name} of {}", self.title, contender.name), value);
            round(value)
        };
        let compared = |column| {
            let ours = ours.filter(|ours| ours.name != contender.name);
            ours.map(|ours| format!("{:.2}", ours.ratio_to(contender, column))).unwrap_or_default()
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            contender.name,
            value("decisions/s", PER_SECOND),
            compared(PER_SECOND),
            value("CPU µs", CPU_US),
            compared(CPU_US),
            value("p50 ms", P50_MS),
            value("p99 ms", P99_MS),
            compared(P99_MS),
        );
    }

    fn judge(&self, bench: &mut Bench, ours: &Contender<'_>, peer: &Contender<'_>) {
        let name = |what| format!("{}: {what} of ours / {}", self.title, peer.name);
        let report = &mut bench.report;
        match self.threshold {
            Threshold::CpuAtMost(most) => report.at_most(&name("CPU"), ours.ratio_to(peer, CPU_US), most),
            Threshold::P99AtMost(most) => report.at_most(&name("p99"), ours.ratio_to(peer, P99_MS), most),
            Threshold::PerSecondAtLeast(least) => {
                report.at_least(&name("decisions/s"), ours.ratio_to(peer, PER_SECOND), least);
            }
        }
    }
}

impl Contender<'_> {
    async fn turn(&self) -> Result<Measure> {
        let callers = load::connect(self.server, self.api, CALLERS).await?;
        let (callers, _) = load::drive(callers, &Arc::new(self.load.first_part(WARM_UP_PARTS))).await?;
        let before = self.server.process.cpu_us()?;
        let (_, outcome) = load::drive(callers, &self.load).await?;
        let cpu_us = self.server.process.cpu_us()? - before;
        ensure!(outcome.allowed == outcome.decided, "{} were denied", outcome.decided - outcome.allowed);
        Ok(Measure {
            per_second: outcome.decided as f64 / outcome.elapsed.as_secs_f64(),
            cpu_us: cpu_us as f64 / outcome.decided as f64,
            p50_ms: outcome.percentile_ms(50),
            p99_ms: outcome.percentile_ms(99),
        })
    }

    fn all(&self, column: Column) -> Vec<f64> {
        self.measures.iter().map(column).collect()
    }

    /// Returns the median over rounds of this one's measure over the other's.
    fn ratio_to(&self, other: &Self, column: Column) -> f64 {
        ratio(&self.all(column), &other.all(column))
    }
}
