//! The plan of a run: callers, capacity and behavior of the model.

use llm_gateway::metering::Meter;
use llm_gateway::tenants::{Config, Tenant};

/// Weights of the tenants that always want more than they get.
const WEIGHTS: [u64; 5] = [16, 12, 10, 8, 8];
/// Three more are held back by a limit of their own: requests a minute, requests at a time, and tokens at half of its share.
const BOUND_WEIGHTS: [u64; 3] = [2, 2, 4];

/// No prompt of the load has more tokens.
const PROMPT_MAX: u64 = 16;

/// Run a mock model, gateways and callers, by each metering mode, and check every bound.
#[derive(Clone, Debug, clap::Parser)]
pub struct Plan {
    /// Metering mode. Default: all of them, one after the other.
    #[arg(long, value_enum)]
    pub meter: Option<Meter>,
    /// Redis or Valkey that the gateways share.
    #[arg(long, value_name = "URL", env = "THROTTLEKIT_REDIS", default_value = "redis://127.0.0.1:6379")]
    pub redis: String,
    /// Number of gateway processes.
    #[arg(long, default_value_t = 3)]
    pub gateways: usize,
    /// Number of concurrent callers.
    #[arg(long, default_value_t = 64)]
    pub streams: usize,
    /// Number of windows to measure.
    #[arg(long, default_value_t = 4)]
    pub windows: u64,
    /// Milliseconds of a window.
    #[arg(long, default_value_t = 10_000)]
    pub window_ms: u64,
    /// Tokens of all tenants together per window.
    #[arg(long, default_value_t = 48_000)]
    pub capacity: u64,
    /// Gateways fetch tokens of the capacity in multiples of this.
    #[arg(long, default_value_t = 64)]
    pub quantum: u64,
    /// Maximum number of tokens reserved for a stream before it runs.
    #[arg(long, default_value_t = 128)]
    pub set_aside_max: u64,
    /// `max_tokens` of every request.
    #[arg(long, default_value_t = 4_096)]
    pub max_tokens: u64,
    /// Tokens per chunk.
    #[arg(long, default_value_t = 8)]
    pub chunk: u64,
    /// Milliseconds to generate a chunk.
    #[arg(long, default_value_t = 20)]
    pub delay_ms: u64,
    /// Seed of the lengths of completions.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Minimum part of the capacity that must be used. Default: 0.85, and 0.5 for windows of less than ten seconds.
    #[arg(long)]
    pub used_min: Option<f64>,
    /// Write the figures to this file, a line of JSON for each metering mode. `-`: standard output.
    #[arg(long, value_name = "FILE")]
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

    /// Returns the minimum part of the capacity that must be used. Short windows lose more where they begin and end.
    pub(super) fn used_min(&self) -> f64 {
        self.used_min.unwrap_or(if self.window_ms < 10_000 { 0.5 } else { 0.85 })
    }

    /// Returns the configuration of the gateways, with the model at this address.
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

    /// Returns whether a tenant is bound by its own limit, not by its share.
    pub(super) fn is_bound(&self, tenant: &Tenant) -> bool {
        tenant.rpm == 1 || tenant.concurrency == 1 || tenant.tpm < self.capacity
    }
}
