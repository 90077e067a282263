//! A guard in front of a backend that changes, with the load that shows it.

mod backend;
mod load;
mod show;

pub use backend::Backend;
pub use show::{csv, table};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use throttlekit::clock::{BootClock, Clock};
use throttlekit::guard::GuardStats;
use throttlekit::http::{AdmissionLayer, fixed};
use throttlekit::{BuildError, Concurrency, Guard};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use load::Latencies;

/// What the backend is like for a while.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// For how long.
    pub lasts: Duration,
    /// How many requests it works on at a time.
    pub at_a_time: usize,
    /// For how long it works on each.
    pub work: Duration,
}

/// What was seen at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since the beginning.
    pub since: Duration,
    /// How many at a time the guard allowed.
    pub limit: u32,
    /// How many there were.
    pub in_flight: u32,
    /// How long requests took that were served since the moment before, on average; nothing if there were none.
    pub latency: Option<Duration>,
    /// How many were served since then.
    pub served: u32,
}

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The service: one route, and the guard before it.
pub fn app(guard: Guard, backend: Arc<Backend>) -> Result<Router, BuildError> {
    let work = async |State(backend): State<Arc<Backend>>| {
        backend.serve().await;
        "done"
    };
    let layer = AdmissionLayer::new(guard, fixed("all"))?;
    Ok(Router::new().route("/work", get(work)).with_state(backend).layer(layer))
}

/// Plays the acts to so many clients that ask without pause, and looks every fiftieth of a second.
pub async fn played(acts: &[Act], clients: usize) -> std::io::Result<Vec<Moment>> {
    let first = acts[0];
    let guard = Guard::new(Concurrency::adaptive(4..=200)).expect("bounds in order");
    let backend = Arc::new(Backend::new(first.at_a_time, first.work));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    let service = app(guard.clone(), Arc::clone(&backend)).map_err(std::io::Error::other)?;
    tasks.spawn(async move { axum::serve(listener, service).await.unwrap_or_default() });
    let latencies = clients_at(address, clients, &mut tasks);
    let mut watch = Watch { guard, latencies, begun: BootClock.now().as_nanos(), moments: Vec::new() };
    for act in acts {
        backend.becomes(act.at_a_time, act.work).await;
        watch.look_for(act.lasts).await;
    }
    tasks.shutdown().await;
    Ok(watch.moments)
}

fn clients_at(address: SocketAddr, clients: usize, tasks: &mut JoinSet<()>) -> Arc<Latencies> {
    let latencies = Arc::new(Latencies::default());
    for _ in 0..clients {
        tasks.spawn(load::client(address, Arc::clone(&latencies)));
    }
    latencies
}

struct Watch {
    guard: Guard,
    latencies: Arc<Latencies>,
    begun: u64,
    moments: Vec<Moment>,
}

impl Watch {
    async fn look_for(&mut self, lasts: Duration) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ends = BootClock.now() + lasts;
        while BootClock.now() < ends {
            looks.tick().await;
            let since = Duration::from_nanos(BootClock.now().as_nanos() - self.begun);
            let GuardStats { limit, in_flight, .. } = self.guard.stats();
            let (served, latency) = self.latencies.take();
            self.moments.push(Moment { since, limit, in_flight, latency, served });
        }
    }
}
