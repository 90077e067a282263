//! Callers of a server that charge a few keys, strictly and by its leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result};
use throttlekit::clock::{Clock, WallClock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{CheckRequest, Decision};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

use super::Bug;
use super::windows::Windows;

/// Long enough for a failover to end within it.
pub(super) const WINDOW: Duration = Duration::from_secs(6);
/// So little that all keys are spent within a second, before a fault and again after it, also on a busy machine.
pub(super) const LIMIT: u64 = 12;
/// Keys of a round; in a cluster some are on each node. Half of them are leased by the server.
const KEYS: u32 = 12;
const CALLERS: u32 = 6;
/// The pause of a caller after each admission.
const REST: Duration = Duration::from_millis(2);
/// The pause after any other response: nothing is left, or the store is away.
const REST_DENIED: Duration = Duration::from_millis(20);
/// Longer than the server waits for its store.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The time limit of the first decision.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
const POLICIES: [&str; 2] = ["strict", "leased"];

/// Returns the policy file.
pub(super) fn policies() -> String {
    let rate = |more: &str| {
        let seconds = WINDOW.as_secs();
        format!(
            "{{rate: {{algorithm: fixed_window, limit: {LIMIT}, per: {seconds}s{more}}}, on_outage: closed}}"
        )
    };
    let [strict, leased] = POLICIES;
    let [each, by_leases] = [rate(""), rate(", lease: {mode: leased, batch: 3}")];
    format!("version: 1\npolicies:\n  {strict}: {each}\n  {leased}: {by_leases}\n")
}

/// A client of the server under test.
#[derive(Clone)]
pub(super) struct Client(RateLimiterClient<Channel>);

impl From<RateLimiterClient<Channel>> for Client {
    fn from(client: RateLimiterClient<Channel>) -> Self {
        Self(client)
    }
}

impl Client {
    /// Requests one unit. Returns `None` if nothing was decided.
    async fn check(&mut self, policy: &str, key: &str) -> Option<Decision> {
        let request =
            CheckRequest { policy: policy.into(), key: key.into(), cost: 1, ..CheckRequest::default() };
        timeout(ANSWER_MAX, self.0.check(request)).await.ok()?.ok()?.into_inner().decision
    }

    /// Waits until the decisions on every key are labelled exact. Returns `false` if they are not in time. In a cluster
    /// each slot has evidence of its own, which begins with the first decision: so all keys are asked in turns.
    pub(super) async fn is_exact(&self, within: Duration) -> bool {
        let mut client = self.clone();
        let exact = async {
            let mut is_exact = false;
            while !is_exact {
                sleep(REST_DENIED).await;
                is_exact = true;
                for key in 0..KEYS {
                    let decision = client.check(policy(key), &name(key)).await;
                    is_exact &= decision.is_some_and(|decision| decision.guarantee == "exact");
                }
            }
        };
        timeout(within, exact).await.is_ok()
    }

    /// Waits until a window begins. Returns its end.
    pub(super) async fn next_window(&self) -> Result<Timestamp> {
        let mut client = self.clone();
        let end = async {
            loop {
                let decision = client.check(policy(0), &name(0)).await.unwrap_or_default();
                match u64::try_from(decision.reset_at) {
                    Ok(ends @ 1..) => return Timestamp::from_millis(ends),
                    _ => sleep(REST_DENIED).await,
                }
            }
        };
        let ends = timeout(ANSWERS_WITHIN, end).await.context("no decision before the fault")?;
        sleep(ends.since(WallClock.now())).await;
        Ok(ends + WINDOW)
    }
}

fn policy(key: u32) -> &'static str {
    POLICIES[key as usize % 2]
}

/// The keys are those of every round: a round has a window of its own.
fn name(key: u32) -> String {
    format!("key{key}")
}

/// Callers that go on until they are stopped.
pub(super) struct Load {
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    over: AtomicBool,
    /// Set when the fault begins.
    struck: AtomicBool,
    windows: Mutex<Windows>,
    /// The units that each key got.
    got: [AtomicU64; KEYS as usize],
    bug: Option<Bug>,
}

impl Load {
    pub(super) fn start(client: &Client, bug: Option<Bug>) -> Self {
        let shared = Arc::new(Shared {
            over: AtomicBool::default(),
            struck: AtomicBool::default(),
            windows: Mutex::default(),
            got: Default::default(),
            bug,
        });
        let mut tasks = JoinSet::new();
        for caller in 0..CALLERS {
            tasks.spawn(charge(client.clone(), shared.clone(), caller));
        }
        Self { tasks, shared }
    }

    /// Waits until every key got this many units, but at most for this long: a mode may not admit that many.
    pub(super) async fn until_got(&self, units: u64, within: Duration) {
        let all = async {
            while self.shared.got.iter().any(|got| got.load(SeqCst) < units) {
                sleep(REST).await;
            }
        };
        let _ = timeout(within, all).await;
    }

    /// Notes that the fault begins: decisions from now on need not be exact.
    pub(super) fn struck(&self) {
        self.shared.struck.store(true, SeqCst);
    }

    /// Ends the callers. Returns what was decided.
    pub(super) async fn finish(mut self) -> Windows {
        self.shared.over.store(true, SeqCst);
        while self.tasks.join_next().await.is_some() {}
        std::mem::take(&mut *self.shared.windows.lock())
    }
}

async fn charge(mut client: Client, shared: Arc<Shared>, caller: u32) {
    for turn in caller.. {
        if shared.over.load(SeqCst) {
            return;
        }
        let key = turn % KEYS;
        let decision = client.check(policy(key), &name(key)).await;
        let allowed = decision.as_ref().is_some_and(|decision| decision.allowed);
        if let Some(decision) = decision {
            let is_healthy = !shared.struck.load(SeqCst);
            shared.windows.lock().add(key, &decision, is_healthy, shared.bug);
        }
        if allowed {
            shared.got[key as usize].fetch_add(1, SeqCst);
        }
        sleep(if allowed { REST } else { REST_DENIED }).await;
    }
}
