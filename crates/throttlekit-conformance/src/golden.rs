//! The golden vectors of the first implementation: nine rate suites and three of token budgets, in milliseconds.

use std::time::Duration;

use serde::Deserialize;
use throttlekit_core::rate::Cadence;
use throttlekit_core::{Cost, Decision, Timestamp};

use crate::difference::Difference;
use crate::{Spec, Subject};

/// The golden vectors as JSON. They also contain six suites of leases, which only a client over the wire can play.
pub const TEXT: &str = include_str!("../vectors/golden.json");

/// One suite: a limit, a key, and its requests in order.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The name in the first implementation.
    pub name: String,
    /// The limit.
    pub spec: Spec,
    /// The only key.
    pub key: String,
    /// The requests with the expected responses.
    pub asks: Vec<GoldenRequest>,
}

/// One request and the expected response.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct GoldenRequest {
    /// Time, in milliseconds since the epoch.
    pub now: u64,
    /// Cost of a request, or number of tokens of a debit.
    #[serde(alias = "tokens")]
    pub cost: Cost,
    /// The expected response.
    pub expect: GoldenDecision,
}

/// The five fields of version 1 of the wire format: times in milliseconds, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields of a Decision")]
pub struct GoldenDecision {
    pub allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    pub reset_at: u64,
    pub retry_after_ms: u64,
}

impl GoldenDecision {
    /// Rounds a decision for version 1 of the wire format. An infinite wait cannot be encoded there.
    pub fn of(decision: &Decision) -> Option<Self> {
        Some(Self {
            allowed: decision.allowed,
            limit: decision.limit,
            remaining: decision.remaining,
            reset_at: decision.reset_at.as_millis_ceil(),
            retry_after_ms: decision.retry_after.wait_ms()?,
        })
    }
}

impl Golden {
    /// Plays the suite and compares field by field.
    pub fn play(&self, subject: &mut impl Subject) -> Result<(), Difference> {
        for (index, ask) in self.asks.iter().enumerate() {
            let decision = subject.check(&self.key, ask.cost, Timestamp::from_millis(ask.now));
            if GoldenDecision::of(&decision) != Some(ask.expect) {
                let difference =
                    format!("{}: request {index}: want {:?}, got {decision:?}", self.name, ask.expect);
                return Err(difference.into());
            }
        }
        Ok(())
    }
}

/// Returns all suites about rates and budgets.
///
/// # Panics
///
/// If [`TEXT`] is malformed, which a test of this crate rules out.
pub fn suites() -> Vec<Golden> {
    parse(TEXT).unwrap_or_else(|problem| panic!("vectors/golden.json: {problem}"))
}

#[derive(Deserialize)]
struct File {
    suites: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Suite {
    name: String,
    strategy: Strategy,
    key: String,
    ops: Vec<GoldenRequest>,
}

/// A budget suite, which has no key of its own.
#[derive(Deserialize)]
struct BudgetSuite {
    name: String,
    options: BudgetOptions,
    ops: Vec<GoldenRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BudgetOptions {
    budget: u64,
    window_ms: u64,
}

#[derive(Deserialize)]
#[serde(tag = "kind", content = "options", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Strategy {
    Gcra { limit: u64, period_ms: u64, burst: u64 },
    TokenBucket { capacity: u64, refill_per_sec: u64 },
    FixedWindow { limit: u64, window_ms: u64 },
    SlidingWindow { limit: u64, window_ms: u64, buckets: u32 },
    SlidingWindowLog { limit: u64, window_ms: u64 },
}

fn parse(text: &str) -> Result<Vec<Golden>, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let known = |suite: &serde_json::Value| match suite["primitive"].as_str() {
        Some("rateLimit") => Some(rate_suite(suite)),
        Some("tokenBudget") => Some(budget_suite(suite)),
        _ => None,
    };
    file.suites.iter().filter_map(known).map(|suite| suite.map_err(|error| error.to_string())).collect()
}

fn rate_suite(suite: &serde_json::Value) -> serde_json::Result<Golden> {
    let suite = Suite::deserialize(suite)?;
    Ok(Golden { spec: suite.strategy.spec(), name: suite.name, key: suite.key, asks: suite.ops })
}

fn budget_suite(suite: &serde_json::Value) -> serde_json::Result<Golden> {
    let BudgetSuite { name, options, ops } = BudgetSuite::deserialize(suite)?;
    let length = Duration::from_millis(options.window_ms);
    let cadence = Cadence::Every { length, anchor: Timestamp::EPOCH };
    let spec = Spec::Budget { limit: options.budget, cadence };
    Ok(Golden { name, spec, key: "tokenBudget".into(), asks: ops })
}

impl Strategy {
    fn spec(&self) -> Spec {
        let ms = Duration::from_millis;
        match *self {
            Self::Gcra { limit, period_ms, burst } => {
                Spec::Gcra { units: limit, period: ms(period_ms), burst }
            }
            Self::TokenBucket { capacity, refill_per_sec } => {
                Spec::TokenBucket { capacity, units: refill_per_sec, period: ms(1_000) }
            }
            Self::FixedWindow { limit, window_ms } => Spec::Window {
                limit,
                cadence: Cadence::Every { length: ms(window_ms), anchor: Timestamp::EPOCH },
            },
            // The first implementation's wait is a hint there; ours is exact unless the hint is selected.
            Self::SlidingWindow { limit, window_ms, buckets } => {
                Spec::SlidingWindow { limit, length: ms(window_ms), buckets, exact: false }
            }
            Self::SlidingWindowLog { limit, window_ms } => Spec::SlidingLog { limit, length: ms(window_ms) },
        }
    }
}
