//! What is played: who asks, how much there is, how the model behaves.

use anyhow::Result;

use crate::args::Args;
use crate::gate::Meter;
use crate::tenants::{Config, Tenant};

/// Weights of the tenants that always want more than they get.
const WEIGHTS: [u64; 7] = [8, 6, 5, 4, 3, 2, 2];
/// One more is held back by its own budget before its share is used up.
const MODEST_WEIGHT: u64 = 2;

/// No prompt of the load has more tokens.
const PROMPT_MAX: u64 = 16;

/// One run of the load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The meters to compare.
    pub meters: Vec<Meter>,
    /// Where the store is.
    pub redis: String,
    /// How many gateway processes there are.
    pub gateways: usize,
    /// How many streams run at a time.
    pub streams: usize,
    /// How many whole windows are looked at.
    pub windows: u64,
    /// How long each is.
    pub window_ms: u64,
    /// How many tokens the model gives in each.
    pub capacity: u64,
    /// In multiples of how many tokens gateways fetch of them.
    pub quantum: u64,
    /// The most that is set aside for a stream before it runs.
    pub set_aside_max: u64,
    /// The most that a stream may generate.
    pub max_tokens: u64,
    /// How many tokens a chunk has.
    pub chunk: u64,
    /// How long the model takes for one.
    pub delay_ms: u64,
    /// Where its dice begin.
    pub seed: u64,
    /// Where to write the figures, a line of JSON for each meter; `-` is standard output.
    pub json: Option<String>,
}

impl Plan {
    /// From the command line.
    pub fn read(mut args: Args) -> Result<Self> {
        let meters: Option<Meter> = args.take("meter")?;
        let redis = std::env::var("THROTTLEKIT_REDIS");
        let plan = Self {
            meters: meters.map_or(Meter::ALL.to_vec(), |one| vec![one]),
            redis: args.or("redis", redis.unwrap_or("redis://127.0.0.1:6379".to_owned()))?,
            gateways: args.or("gateways", 3)?,
            streams: args.or("streams", 64)?,
            windows: args.or("windows", 4)?,
            window_ms: args.or("window-ms", 10_000)?,
            capacity: args.or("capacity", 48_000)?,
            quantum: args.or("quantum", 64)?,
            set_aside_max: args.or("set-aside-max", 128)?,
            max_tokens: args.or("max-tokens", 4_096)?,
            chunk: args.or("chunk", 8)?,
            delay_ms: args.or("delay-ms", 20)?,
            seed: args.or("seed", 1)?,
            json: args.take("json")?,
        };
        args.done()?;
        Ok(plan)
    }

    /// What the gateways are told, with the model at this address.
    pub(super) fn config(&self, upstream: &str) -> Config {
        Config {
            upstream: upstream.to_owned(),
            upstream_key: None,
            capacity: self.capacity,
            quantum: Some(self.quantum),
            window_ms: self.window_ms,
            max_tokens_default: self.max_tokens,
            bound_by: None,
            set_aside_max: Some(self.set_aside_max),
            tenants: self.tenants(),
        }
    }

    /// Seven that always want more, and one that its own budget holds back, at half of its share.
    pub(super) fn tenants(&self) -> Vec<Tenant> {
        let weights = WEIGHTS.into_iter().chain([MODEST_WEIGHT]);
        let share = self.capacity * MODEST_WEIGHT / (WEIGHTS.iter().sum::<u64>() + MODEST_WEIGHT);
        let tenant = |(nth, weight): (usize, u64)| Tenant {
            name: format!("t{nth}"),
            key: format!("sk-load-{nth}"),
            weight,
            rpm: 1_000_000,
            tpm: if nth < WEIGHTS.len() { self.capacity } else { share / 2 },
            concurrency: 64,
        };
        weights.enumerate().map(tenant).collect()
    }

    /// The most that is asked for at once: what is set aside for a prompt and its answer, a chunk, or what gateways fetch.
    pub(super) fn ask_max(&self) -> u64 {
        (PROMPT_MAX + self.set_aside_max).max(self.chunk).max(self.quantum)
    }

    /// Whether a tenant always wants more than its own limits give it.
    pub(super) fn is_modest(&self, tenant: &Tenant) -> bool {
        tenant.tpm < self.capacity
    }
}
