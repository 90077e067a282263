//! A node: admits work as it comes, by its share alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock, LeaseClock};
use throttlekit::guard::{Ceiling, SharedGuardPermit, Split};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::MembershipStore;
use throttlekit::{Concurrency, SharedGuard};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::log::Log;
use super::post::{Bug, Limit, Order};
use throttlekit_conformance::Dice;

/// Requests come in batches of this interval.
const TICK: Duration = Duration::from_millis(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The boot clock, or one that stands still while the process is stopped.
#[derive(Clone)]
enum NodeClock {
    Boot,
    Awake(Arc<AtomicU64>),
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        match self {
            Self::Boot => BootClock.now(),
            Self::Awake(wound) => Timestamp::from_nanos(wound.load(SeqCst)),
        }
    }
}

impl LeaseClock for NodeClock {}

impl NodeClock {
    fn of(bug: Option<Bug>) -> Self {
        if bug != Some(Bug::ClockStands) {
            return Self::Boot;
        }
        let wound = Arc::new(AtomicU64::new(BootClock.now().as_nanos()));
        let clock = Self::Awake(wound.clone());
        std::thread::spawn(move || {
            loop {
                let before = BootClock.now();
                std::thread::sleep(Duration::from_millis(1));
                let passed = BootClock.now().since(before).min(Duration::from_millis(50));
                wound.fetch_add(passed.as_nanos() as u64, SeqCst);
            }
        });
        clock
    }
}

/// The connection to the backend: requests by number, each with the caller that waits for its response.
#[derive(Clone)]
struct Backend {
    next: Arc<AtomicU64>,
    requests: mpsc::UnboundedSender<String>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<bool>>>>,
}

impl Backend {
    async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the backend listens");
        let _ = stream.set_nodelay(true);
        let (reader, mut writer) = stream.into_split();
        let (requests, mut to_send) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            while let Some(request) = to_send.recv().await {
                writer.write_all(request.as_bytes()).await.expect("the backend is there");
            }
        });
        let waiting = Arc::<Mutex<HashMap<u64, oneshot::Sender<bool>>>>::default();
        let hears = waiting.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((id, done)) = line.split_once(' ') else { continue };
                let waits = hears.lock();
                let waits = { waits }.remove(&id.parse().unwrap_or(0));
                let _ = waits.map(|waits| waits.send(done == "1"));
            }
        });
        Self { next: Arc::default(), requests, waiting }
    }

    /// Sends work to the backend. Returns `true` if it was done.
    async fn work(&self, takes: Duration, dies: Timestamp) -> bool {
        let id = self.next.fetch_add(1, SeqCst);
        let (told, heard) = oneshot::channel();
        self.waiting.lock().insert(id, told);
        let _ = self.requests.send(format!("{id} {} {}\n", takes.as_micros(), dies.as_nanos()));
        heard.await.unwrap_or(false)
    }
}

pub(super) async fn serve<R: MembershipStore>(order: &Order, store: R) {
    let limit: Concurrency = match order.limit {
        Limit::Fixed(limit) => limit.into(),
        Limit::Inferred(most) => Ceiling::between(4, most).starting_at(8).into(),
    };
    let guard = SharedGuard::builder(store, &order.name, limit)
        .divided()
        .clock(NodeClock::of(order.bug))
        .lease(order.lives)
        .heartbeat_every(order.lives / 4)
        .heartbeat_spacing(order.lives / 40)
        .split(if order.equal { Split::Equal } else { Split::Demand })
        .build()
        .expect("a limit in total");
    let (backend, log) = (Backend::connect(order.port).await, Arc::new(Mutex::new(Log::append(&order.log))));
    let real = Arc::new(AtomicU32::new(0));
    let asks = tokio::spawn(ask(guard.clone(), backend, order.clone(), real, log.clone()));
    let looks = tokio::spawn(look(guard.clone(), log));
    super::post::input_ends().await;
    for task in [asks, looks] {
        task.abort();
        let _ = task.await;
    }
    guard.close().await;
}

async fn look(guard: SharedGuard<NodeClock>, log: Arc<Mutex<Log>>) {
    loop {
        log.lock().stats(BootClock.now(), &guard.stats().division.expect("a divided guard"));
        sleep(LOOK_EVERY).await;
    }
}

/// Sends random requests at a mean rate at which the number in flight would equal the demand. A denied
/// request is not retried.
async fn ask(
    guard: SharedGuard<NodeClock>,
    backend: Backend,
    order: Order,
    real: Arc<AtomicU32>,
    log: Arc<Mutex<Log>>,
) {
    let mut dice = Dice::new(BootClock.now().as_nanos());
    let mean_nanos = (order.work[0] + order.work[1]).as_nanos() as u64 / 2;
    let (mut before, mut due_milli) = (BootClock.now(), 0_u64);
    loop {
        sleep(TICK).await;
        let now = BootClock.now();
        // A stopped node does not catch up.
        let passed = now.since(before).min(40 * TICK).as_nanos() as u64;
        before = now;
        // A random whole number of requests: twice as many or none, each as likely.
        due_milli += order.demand_milli * passed / mean_nanos * dice.below(3);
        while due_milli >= 1_000 {
            due_milli -= 1_000;
            let span = (order.work[1] - order.work[0]).as_micros() as u64;
            let takes = order.work[0] + Duration::from_micros(dice.below(span + 1));
            let Some(Ok(permit)) = guard.try_acquire_owned(()) else { continue };
            if order.bug == Some(Bug::TornReport) {
                let limit = guard.stats().limit;
                let dies = permit.deadline().unwrap_or_default();
                permit.ignored();
                if real.load(SeqCst) < limit {
                    real.fetch_add(1, SeqCst);
                    let (backend, real) = (backend.clone(), real.clone());
                    tokio::spawn(async move {
                        backend.work(takes, dies).await;
                        real.fetch_sub(1, SeqCst);
                    });
                }
                continue;
            }
            tokio::spawn(work(permit, backend.clone(), takes, order.bug, log.clone()));
        }
    }
}

async fn work(
    permit: SharedGuardPermit<NodeClock>,
    backend: Backend,
    takes: Duration,
    bug: Option<Bug>,
    log: Arc<Mutex<Log>>,
) {
    let (from, dies) = (BootClock.now(), permit.deadline().unwrap_or_default());
    let never = Timestamp::from_nanos(u64::MAX >> 1);
    let done = match bug {
        Some(Bug::WorkOutlives) => Ok(backend.work(takes, never).await),
        Some(Bug::ClockStands) => permit.run(backend.work(takes, never)).await,
        _ => permit.run(backend.work(takes, dies)).await,
    };
    // A slot whose grant expired was held until then at most.
    let to = if done.is_ok() { BootClock.now() } else { BootClock.now().min(dies) };
    log.lock().held(from, to.max(from));
    match done {
        Ok(true) => permit.success(),
        Ok(false) => permit.dropped(),
        Err(_) => drop(permit),
    }
}
