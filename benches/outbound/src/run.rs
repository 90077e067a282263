//! One contender: a provider, processes that call it, and the results of their calls.

use std::collections::HashSet;
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::client::Client;
use crate::provider::{Provider, Served};
use crate::scenario::{Contender, Scenario};

/// Time for all processes to start.
const START: Duration = Duration::from_millis(1_500);

/// The results of all calls of a run. Times are since the start.
pub struct Calls {
    /// As the provider counted them.
    pub served: Vec<Served>,
    /// Those that ended, as their processes saw them.
    pub done: Vec<Done>,
}

/// A call that ended.
pub struct Done {
    pub arrived: Duration,
    /// The time at which it was sent for the last time.
    pub sent: Duration,
}

/// Runs a contender from a common start of the provider and all processes.
pub async fn run(scenario: &Scenario, contender: Contender, processes: usize, redis: &str) -> Result<Calls> {
    let start = SystemTime::now().duration_since(UNIX_EPOCH)? + START;
    let provider = Provider::start(scenario.account.clone(), START).await?;
    let children = (0..processes).map(|process| {
        let (uri, redis) = (provider.uri(), redis.to_owned());
        start_client(&Client {
            scenario: scenario.name.into(),
            contender,
            processes,
            process,
            uri,
            start,
            redis,
        })
    });
    let children: Vec<_> = children.collect::<Result<_>>()?;
    let mut done = Vec::new();
    for child in children {
        let output = child.await?.context("cannot wait for a client")?;
        ensure!(output.status.success(), "a client failed: {}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8(output.stdout)?.lines() {
            done.push(Done::parse(line).with_context(|| format!("a client printed {line:?}"))?);
        }
    }
    let served = provider.served();
    let clients: HashSet<u32> = served.iter().map(|served| served.client).collect();
    ensure!(clients.len() == processes, "{} of {processes} clients called", clients.len());
    Ok(Calls { served, done })
}

type Ended = tokio::task::JoinHandle<std::io::Result<Output>>;

/// Starts this program as a client.
fn start_client(client: &Client) -> Result<Ended> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("client").args(client.args()).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command.stderr(Stdio::piped());
    Ok(tokio::spawn(command.spawn().context("cannot start a client")?.wait_with_output()))
}

impl Done {
    pub fn print(&self) -> String {
        format!("{} {}", self.arrived.as_micros(), self.sent.as_micros())
    }

    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split(' ').map(|text| text.parse().ok().map(Duration::from_micros));
        Some(Self { arrived: numbers.next()??, sent: numbers.next()?? })
    }
}
