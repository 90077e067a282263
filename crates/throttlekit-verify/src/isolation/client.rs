//! The client of a store in memory: ours, or one with a seeded bug.

use std::sync::Arc;

use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::store::{Background, StoreClient, StoreClientOptions, StoreError};

use super::memory::{Connection, Server};
use super::schedule::Timing;
use super::seeded::{Bug, Seeded};

/// The maximum number of calls in flight.
pub(super) const IN_FLIGHT_MAX: usize = 16;

/// A client of one server.
pub(super) enum Client {
    /// The production code, as the crates of engines use it.
    Ours { core: Arc<Core>, line: StoreClient },
    /// A client of this harness, into which bugs can be seeded.
    Seeded(Arc<Seeded>),
}

impl Client {
    pub(super) fn new(server: Arc<Server>, background: Background, timing: Timing, bug: Option<Bug>) -> Self {
        let core = Arc::new(Core { server, current: Mutex::default() });
        if let Some(bug) = bug.filter(Bug::is_in_the_client) {
            return Self::Seeded(Seeded::new(core, timing, bug));
        }
        let options = StoreClientOptions {
            deadline: timing.deadline,
            in_flight_max: IN_FLIGHT_MAX,
            opens_after: timing.opens_after,
            probe_every: timing.probe_every,
        };
        let probed = core.clone();
        let probe = move || -> std::pin::Pin<Box<dyn Future<Output = _> + Send>> {
            let core = probed.clone();
            Box::pin(async move { core.revive().await })
        };
        Self::Ours { core, line: StoreClient::on(background, options, Box::new(probe)) }
    }

    /// Makes one round trip, within the deadline.
    pub(super) async fn call(&self) -> Result<(), StoreError> {
        match self {
            Self::Ours { core, line } => {
                let core = core.clone();
                line.call(async move { core.round_trip().await }).await
            }
            Self::Seeded(seeded) => seeded.call().await,
        }
    }

    pub(super) async fn dial(&self) -> Result<(), StoreError> {
        match self {
            Self::Ours { core, .. } => core.dial().await.map(drop),
            Self::Seeded(seeded) => seeded.begin().await,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Ours { line, .. } => line.stats().open,
            Self::Seeded(seeded) => seeded.is_open(),
        }
    }
}

/// The shared connection, which is replaced when it is lost.
pub(super) struct Core {
    pub(super) server: Arc<Server>,
    current: Mutex<Option<Arc<Connection>>>,
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.current.lock()
    }

    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        self.lock().clone()
    }

    pub(super) async fn dial(&self) -> Result<Arc<Connection>, StoreError> {
        let connection = self.server.connect().await?;
        *self.lock() = Some(connection.clone());
        Ok(connection)
    }

    /// Reconnects: the previous connection may have fallen silent. An unusable server counts as present.
    pub(super) async fn revive(&self) -> Result<(), StoreError> {
        match self.dial().await {
            Err(error) if error.is_outage() => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) async fn round_trip(&self) -> Result<(), StoreError> {
        let connection = match self.current() {
            Some(connection) => connection,
            None => self.dial().await?,
        };
        let answer = connection.round_trip().await;
        if answer.as_ref().is_err_and(StoreError::is_outage) {
            *self.lock() = None;
        }
        answer
    }
}
