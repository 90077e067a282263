//! A store in memory that is reached like an engine: over a connection that can break, hang or fall silent,
//! behind a deadline and a circuit breaker.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::store::{
    Background, Charge, Charges, Debit, Debited, HeartbeatOutcome, LeaseRequest, LeaseReturn, Leased,
    LocalShares, MembershipRecord, MembershipStore, MemoryStore, Occupancy, Outcome, RegionGrant,
    RegionRequest, RegionStore, Settlement, SlotAnswer, SlotLease, SlotRequest, SlotStore, Snapshot, Store,
    StoreError, Swapped,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::client::Client;
use super::kinds::over;
use super::schedule::{Schedule, Trouble};
use super::seeded::Bug;
use super::shared::{Bench, Boxed, Shared};

/// The server side: its faults and its connections.
#[derive(Default)]
pub(super) struct Server {
    state: Mutex<State>,
    /// Notified on every change.
    changed: Notify,
    connections: AtomicUsize,
    /// The duration of a round trip.
    latency: Duration,
}

#[derive(Clone, Copy, Default)]
struct State {
    trouble: Option<Trouble>,
    /// The number of connections made so far.
    made: u64,
    /// Connections with a number up to this one are silent.
    silent: u64,
}

/// One connection. It is open while this is held.
pub(super) struct Connection {
    number: u64,
    server: Arc<Server>,
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn change(&self, with: impl FnOnce(&mut State)) {
        with(&mut self.state());
        self.changed.notify_waiters();
    }

    /// Connects, as soon as the server responds.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Arc<Connection>, StoreError> {
        self.answer(None).await?;
        let mut state = self.state();
        state.made += 1;
        self.connections.fetch_add(1, SeqCst);
        Ok(Arc::new(Connection { number: state.made, server: self.clone() }))
    }

    /// Waits for a response over a connection, or for a new one.
    async fn answer(&self, connection: Option<u64>) -> Result<(), StoreError> {
        if !self.latency.is_zero() {
            sleep(self.latency).await;
        }
        loop {
            tokio::task::yield_now().await;
            let changed = self.changed.notified();
            let state = *self.state();
            let silent = connection.is_some_and(|number| number <= state.silent);
            match state.trouble {
                Some(Trouble::Refuses) if !silent => {
                    return Err(StoreError::unavailable("connection refused"));
                }
                Some(Trouble::Unusable) if !silent => {
                    return Err(StoreError::misconfigured("no rights"));
                }
                None if !silent => return Ok(()),
                _ => changed.await,
            }
        }
    }
}

impl Connection {
    pub(super) async fn round_trip(&self) -> Result<(), StoreError> {
        self.server.answer(Some(self.number)).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.server.connections.fetch_sub(1, SeqCst);
    }
}

/// The client side: a store whose every call crosses the connection.
pub(super) struct Remote {
    client: Client,
    memory: MemoryStore,
    background: Background,
    bug: Option<Bug>,
}

impl Remote {
    /// Creates a store on the current runtime.
    fn new(server: Arc<Server>, schedule: &Schedule, bug: Option<Bug>) -> Self {
        let driver = Background::default().with_deadline(schedule.timing.deadline);
        let here = || driver.clone().on(Handle::current());
        let background = if bug.is_some_and(Bug::moves_background) { here() } else { driver.clone() };
        let line = if bug == Some(Bug::CallsOnCallersRuntime) { here() } else { driver };
        let client = Client::new(server, line, schedule.timing, bug);
        Self { client, memory: MemoryStore::new(), background, bug }
    }

    /// Returns the store itself, once its connection has responded.
    async fn reach(&self) -> Result<&MemoryStore, StoreError> {
        self.client.call().await.map(|()| &self.memory)
    }

    async fn each<T: Clone>(&self, count: usize) -> Result<&MemoryStore, Vec<Result<T, StoreError>>> {
        self.reach().await.map_err(|error| vec![Err(error); count])
    }
}

/// The responses, or for each item the error.
macro_rules! each {
    ($remote:expr, $items:expr, $memory:ident => $call:expr) => {
        match $remote.each($items.len()).await {
            Ok($memory) => $call.await,
            Err(errors) => errors,
        }
    };
}

impl Store for Remote {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.reach().await?.admit(asks).await
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        each!(self, debits, memory => memory.debit(debits))
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        self.reach().await?.peek(charges).await
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        self.reach().await?.settle(settlements).await
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        each!(self, asks, memory => memory.lease(asks))
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        self.reach().await?.give_back(backs).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.reach().await?.reset(keys).await
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        self.memory.local_shares()
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}

impl SlotStore for Remote {
    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        self.reach().await?.acquire(ask).await
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        if self.bug == Some(Bug::HeartbeatNeverAnswered) {
            std::future::pending::<()>().await;
        }
        each!(self, leases, memory => memory.heartbeat(leases, lives))
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        if self.bug == Some(Bug::ReleaseNeverAnswered) {
            std::future::pending::<()>().await;
        }
        each!(self, leases, memory => memory.release(leases))
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        self.reach().await?.occupancy(keys).await
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}

impl MembershipStore for Remote {
    async fn load(&self, key: &str) -> Result<MembershipRecord, StoreError> {
        self.reach().await?.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> Result<Swapped, StoreError> {
        self.reach().await?.swap(key, version, bytes, keeps).await
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}

impl RegionStore for Remote {
    async fn grant(&self, ask: &RegionRequest<'_>) -> Result<RegionGrant, StoreError> {
        self.reach().await?.grant(ask).await
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}

/// A server in memory for one schedule, and the one store that is connected to it.
pub struct MemoryBench {
    server: Arc<Server>,
    store: Arc<Mutex<Weak<Remote>>>,
    bug: Option<Bug>,
}

impl MemoryBench {
    /// Creates a server for this schedule; its client has this bug, if any.
    pub fn new(schedule: &Schedule, bug: Option<Bug>) -> Self {
        // Half of them respond without a wait, and half take a while.
        let latency = Duration::from_millis(if schedule.seed.is_multiple_of(2) { 0 } else { 2 });
        Self { server: Arc::new(Server { latency, ..Server::default() }), store: Arc::default(), bug }
    }

    fn store(&self) -> MutexGuard<'_, Weak<Remote>> {
        self.store.lock()
    }
}

impl Bench for MemoryBench {
    fn build(&self, schedule: Schedule) -> Boxed<Result<Arc<dyn Shared>, String>> {
        let (server, bug, kept) = (self.server.clone(), self.bug, self.store.clone());
        Box::pin(async move {
            let store = Arc::new(Remote::new(server, &schedule, bug));
            *kept.lock() = Arc::downgrade(&store);
            if bug == Some(Bug::HandleKeptByATask) {
                super::background().spawn(keep(store.clone()));
            }
            // Like a store that is connected when it is returned.
            store.client.dial().await.map_err(|error| error.to_string())?;
            over(store, &schedule).await
        })
    }

    fn trouble(&self, trouble: Trouble) {
        self.server.change(|state| match trouble {
            Trouble::Silent => state.silent = state.made,
            trouble => state.trouble = Some(trouble),
        });
    }

    fn heal(&self) {
        self.server.change(|state| state.trouble = None);
    }

    fn breaker_open(&self) -> Option<bool> {
        self.store().upgrade().map(|store| store.client.is_open())
    }

    fn connections(&self) -> (usize, usize) {
        // One in use, and one that a probe has just made.
        (self.server.connections.load(SeqCst), 2)
    }

    fn is_held(&self) -> bool {
        self.store().strong_count() > 0
    }
}

/// A task that never ends.
async fn keep(store: Arc<Remote>) {
    std::future::pending::<()>().await;
    drop(store);
}
