//! Guarantee `isolated-callers` for the remote client: a limiter shared by several runtimes, of which one
//! misbehaves, over a real server behind a connection that breaks. `cargo xtask verify isolated-callers` runs
//! it at its full size.

use std::sync::{Arc, Weak};
use std::time::Duration;

use throttlekit::internals::Mutex;
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::store::StoreClientStats;
use throttlekit::{Answer, Call, SharedLimiter, StoreError};
use throttlekit_client::{Client, RemotePolicy, RemoteStore};
use throttlekit_conformance::Dice;
use throttlekit_server::internals::engine::Backend;
use throttlekit_verify::isolation::{
    Bench, Boxed, Engine, Kind, Proxy, Schedule, Seen, Shared, Step, Timing, Trouble, examine,
};

use crate::common::Running;

const POLICIES: &str = "  api: {rate: {algorithm: fixed_window, limit: 1000000000, per: 1h}, fleet: {}}\n";
const HOUR: Duration = Duration::from_secs(3_600);
const UNITS: u64 = 1_000_000_000;
/// Small, so that units are leased again and again.
const BATCH: u64 = 3;
/// The number of schedules in an ordinary test; an environment variable sets that of a verification.
const SCHEDULES: u64 = 24;
const SCHEDULES_VARIABLE: &str = "ISOLATION_SCHEDULES";
const AT_ONCE: usize = 8;

/// A limiter of either kind, and its client.
struct Remote {
    client: Client,
    strict: RemotePolicy,
    leased: Option<SharedLimiter<RemoteStore>>,
    timing: Timing,
    /// A unique key, as all schedules share one server.
    key: String,
}

fn seen(answer: Option<Result<Answer, StoreError>>) -> Seen {
    match answer {
        None => Seen::GaveUp,
        Some(Ok(Answer { outage: Some(outage), .. })) => Seen::Outage(outage.to_string()),
        Some(Ok(_)) => Seen::Answer,
        Some(Err(error)) => Seen::Error(error.to_string()),
    }
}

/// One call for each request; or leased units, with a wait of up to nine deadlines.
impl Shared for Remote {
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen> {
        Box::pin(async move {
            let key = format!("{}{}", self.key, Dice::new(step.dice).below(2));
            let (ask, deadline) = (Call::by(&key), self.timing.deadline);
            match &self.leased {
                None => seen(step.watch.within("a check", deadline, self.strict.check(ask)).await),
                Some(leased) => {
                    seen(step.watch.within("a leased check", deadline * 9, leased.check(ask)).await)
                }
            }
        })
    }
}

struct RemoteBench {
    proxy: Proxy,
    remote: Arc<Mutex<Weak<Remote>>>,
}

impl RemoteBench {
    fn remote(&self) -> Option<Arc<Remote>> {
        self.remote.lock().upgrade()
    }
}

impl Bench for RemoteBench {
    fn build(&self, schedule: Schedule) -> Boxed<Result<Arc<dyn Shared>, String>> {
        let (kept, address, timing) = (self.remote.clone(), self.proxy.address(), schedule.timing);
        Box::pin(async move {
            let client = Client::builder(format!("http://{address}"))
                .deadline(timing.deadline)
                .breaker(timing.opens_after, timing.probe_every)
                .build()
                .map_err(|error| error.to_string())?;
            let window = throttlekit::Limit::fixed_window(UNITS, HOUR).map_err(|error| error.to_string())?;
            let leasing = Leasing::new().batch(Batch::Fixed(BATCH));
            let leased = SharedLimiter::builder(client.store(), "api", window).leased_with(leasing).build();
            let leased = leased.map_err(|error| error.to_string())?;
            let remote = Arc::new(Remote {
                strict: client.policy("api"),
                leased: (schedule.kind == Kind::RemoteLeased).then_some(leased),
                client,
                timing,
                key: format!("{}-", schedule.seed),
            });
            *kept.lock() = Arc::downgrade(&remote);
            // Like a service that waits for the first connection before serving.
            let _ = remote.strict.check(Call::by("first")).await;
            Ok(remote as Arc<dyn Shared>)
        })
    }

    fn trouble(&self, trouble: Trouble) {
        self.proxy.trouble(trouble);
    }

    fn heal(&self) {
        self.proxy.heal();
    }

    fn breaker_open(&self) -> Option<bool> {
        self.remote().map(|remote| StoreClientStats::default().plus(remote.client.stats()).open)
    }

    fn connections(&self) -> (usize, usize) {
        (self.proxy.open(), 1)
    }

    fn is_held(&self) -> bool {
        self.remote().is_some()
    }
}

#[test]
fn isolated_callers_of_a_remote_limiter() {
    let schedules = std::env::var(SCHEDULES_VARIABLE).ok().and_then(|n| n.parse().ok()).unwrap_or(SCHEDULES);
    let server = Running::start(POLICIES, Backend::memory());
    let address = server.address();
    let benches = |_: &Schedule| -> Result<Box<dyn Bench>, String> {
        let proxy = Proxy::to(address).map_err(|error| error.to_string())?;
        Ok(Box::new(RemoteBench { proxy, remote: Arc::default() }))
    };
    let examined = examine(Engine::Server, &Kind::REMOTE, 0..schedules, AT_ONCE, &benches, &|| {});
    for violation in examined.confirmed.iter().chain(&examined.unchecked) {
        println!("VIOLATION {violation}");
    }
    for violation in &examined.unconfirmed {
        println!("unconfirmed {violation}");
    }
    println!("part: {}", serde_json::json!(examined.figure()));
    assert!(examined.confirmed.is_empty() && examined.unchecked.is_empty(), "see above");
    assert!(examined.tally.answered > schedules, "nothing was examined: {:?}", examined.tally);
}
