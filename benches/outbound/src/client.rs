//! A client process: its part of the arrivals, each a task, by one contender.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::arrivals::{self, Arrival};
use crate::contenders::Sender;
use crate::run::Done;
use crate::scenario::{Contender, DRAIN, MEASURED, PERIOD, Scenario, WARM_UP};

/// The arguments of a client.
pub struct Client {
    pub scenario: String,
    pub contender: Contender,
    pub processes: usize,
    pub process: usize,
    pub uri: String,
    /// Common start, since the epoch.
    pub start: Duration,
    pub redis: String,
}

impl Client {
    pub fn args(&self) -> [String; 7] {
        let contender = Contender::ALL.iter().position(|each| *each == self.contender).unwrap_or(0);
        [
            self.scenario.clone(),
            contender.to_string(),
            self.processes.to_string(),
            self.process.to_string(),
            self.uri.clone(),
            self.start.as_micros().to_string(),
            self.redis.clone(),
        ]
    }

    fn parse(args: &[&str]) -> Result<Self> {
        let [scenario, contender, processes, process, uri, start, redis] = args else {
            anyhow::bail!("a client has seven arguments")
        };
        let [scenario, uri, redis] = [scenario, uri, redis].map(|text| (*text).to_owned());
        let contender = *Contender::ALL.get(contender.parse::<usize>()?).context("a contender")?;
        let (processes, process, start) = (processes.parse()?, process.parse()?, start.parse()?);
        let start = Duration::from_micros(start);
        Ok(Self { scenario, contender, processes, process, uri, start, redis })
    }
}

/// Runs a client to its end, and prints its calls.
pub fn run(args: &[&str]) -> Result<()> {
    let client = Client::parse(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for done in runtime.block_on(call_all(&client))? {
        println!("{}", done.print());
    }
    Ok(())
}

async fn call_all(client: &Client) -> Result<Vec<Done>> {
    let scenarios = Scenario::all();
    let scenario =
        scenarios.iter().find(|scenario| scenario.name == client.scenario).context("a scenario")?;
    let sender = Arc::new(Sender::new(client, scenario).await?);
    let ahead = client.start.saturating_sub(SystemTime::now().duration_since(UNIX_EPOCH)?);
    let start = Instant::now() + ahead;
    let end = start + PERIOD * (WARM_UP + MEASURED) + DRAIN;
    let arrivals = arrivals::all(client.processes);
    let own = arrivals.into_iter().filter(|arrival| arrival.process == client.process);
    let calls: Vec<_> = own.map(|arrival| tokio::spawn(call(sender.clone(), arrival, start, end))).collect();
    let mut done = Vec::new();
    for call in calls {
        done.extend(call.await??);
    }
    Ok(done)
}

/// Makes one call when it arrives. `None` if it did not end in time.
async fn call(sender: Arc<Sender>, arrival: Arrival, start: Instant, end: Instant) -> Result<Option<Done>> {
    sleep_until(start + arrival.at).await;
    let Ok(sent) = timeout_at(end, sender.send(arrival.tokens)).await else { return Ok(None) };
    Ok(Some(Done { arrived: arrival.at, sent: sent?.saturating_duration_since(start) }))
}
