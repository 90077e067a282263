//! What is played: who asks, how much there is, how the model behaves.

use clap::Parser;

use crate::gate::Meter;
use crate::tenants::{Config, Tenant};

/// Weights of the tenants that always want more than they get.
const WEIGHTS: [u64; 5] = [16, 12, 10, 8, 8];
/// Three more are held back by a limit of their own: requests a minute, requests at a time, and tokens at half of its share.
const BOUND_WEIGHTS: [u64; 3] = [2, 2, 4];

/// No prompt of the load has more tokens.
const PROMPT_MAX: u64 = 16;

/// One run of the load.
#[derive(Clone, Debug, Parser)]
pub struct Plan {
    /// The meter to run: stream, reserve or count. Default: all of them, one after the other.
    #[arg(long)]
    pub meter: Option<Meter>,
    /// Where the store is.
    #[arg(long, env = "THROTTLEKIT_REDIS", default_value = "redis://127.0.0.1:6379")]
    pub redis: String,
    /// How many gateway processes there are.
    #[arg(long, default_value_t = 3)]
    pub gateways: usize,
    /// How many streams run at a time.
    #[arg(long, default_value_t = 64)]
    pub streams: usize,
    /// How many whole windows are looked at.
    #[arg(long, default_value_t = 4)]
    pub windows: u64,
    /// How long each is.
    #[arg(long, default_value_t = 10_000)]
    pub window_ms: u64,
    /// How many tokens the model gives in each.
    #[arg(long, default_value_t = 48_000)]
    pub capacity: u64,
    /// In multiples of how many tokens gateways fetch of them.
    #[arg(long, default_value_t = 64)]
    pub quantum: u64,
    /// The most that is set aside for a stream before it runs.
    #[arg(long, default_value_t = 128)]
    pub set_aside_max: u64,
    /// The most that a stream may generate.
    #[arg(long, default_value_t = 4_096)]
    pub max_tokens: u64,
    /// How many tokens a chunk has.
    #[arg(long, default_value_t = 8)]
    pub chunk: u64,
    /// How long the model takes for one.
    #[arg(long, default_value_t = 20)]
    pub delay_ms: u64,
    /// Where its dice begin.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What part of the capacity has to be used at least. Default: 0.85, and 0.5 for windows of less than ten seconds.
    #[arg(long)]
    pub used_min: Option<f64>,
    /// Where to write the figures, a line of JSON for each meter; `-` is standard output.
    #[arg(long)]
    pub json: Option<String>,
}

impl Plan {
    /// A run of some seconds, on a machine that has other things to do. Little is set aside and fetched at once, so that the
    /// bound on shares is close enough to tell weights from none.
    pub const SHORT: &str = "--meter stream --windows 1 --window-ms 8000 --capacity 8000 --streams 24 --set-aside-max 8 --quantum 8";

    /// The meters to compare.
    pub(super) fn meters(&self) -> Vec<Meter> {
        self.meter.map_or(Meter::ALL.to_vec(), |one| vec![one])
    }

    /// What part of the capacity has to be used at least. Of short windows more is lost where they begin and end.
    pub(super) fn used_min(&self) -> f64 {
        self.used_min.unwrap_or(if self.window_ms < 10_000 { 0.5 } else { 0.85 })
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

    /// Five that always want more, and three that are held back by a limit of their own.
    pub(super) fn tenants(&self) -> Vec<Tenant> {
        let weights = WEIGHTS.into_iter().chain(BOUND_WEIGHTS);
        let in_all: u64 = weights.clone().sum();
        let tenant = |(nth, weight): (usize, u64)| {
            let (name, key) = (format!("t{nth}"), format!("sk-load-{nth}"));
            let free = Tenant { name, key, weight, rpm: 1_000_000, tpm: self.capacity, concurrency: 64 };
            match nth.checked_sub(WEIGHTS.len()) {
                None => free,
                Some(0) => Tenant { rpm: 1, ..free },
                Some(1) => Tenant { concurrency: 1, ..free },
                Some(_) => Tenant { tpm: self.capacity * weight / in_all / 2, ..free },
            }
        };
        weights.enumerate().map(tenant).collect()
    }

    /// The most that is asked for at once: what is set aside for a prompt and its answer, a chunk, or what gateways fetch.
    pub(super) fn ask_max(&self) -> u64 {
        (PROMPT_MAX + self.set_aside_max).max(self.chunk).max(self.quantum)
    }

    /// Whether a limit of its own holds a tenant back, and not what others leave it.
    pub(super) fn is_bound(&self, tenant: &Tenant) -> bool {
        tenant.rpm == 1 || tenant.concurrency == 1 || tenant.tpm < self.capacity
    }
}
