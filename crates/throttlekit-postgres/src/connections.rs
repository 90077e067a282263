//! A connection pool that never opens more connections than its capacity, also while the server hangs.
//!
//! A connection counts from before it is opened until it is closed. An abandoned call leaves a statement running on the
//! server. Its connection then counts until the server has responded, however long that takes: opening another instead
//! would leave one backend behind for each abandoned call, until the server has none left for anybody.
//!
//! ```text
//! Dialling  => InUse (dialled) | Closed (failed)
//! InUse     => Idle (given back) | Abandoned (dropped) | Closed (the server closed it)
//! Abandoned => Idle (answered, after a cancel request) | Closed (the peer is gone)
//! Idle      => InUse | Closed
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use throttlekit::internals::Mutex;
use throttlekit::store::{Background, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tokio_postgres::{CancelToken, Client, Error, Statement};

use crate::connect::{Connector, Driver};
use crate::seeded::{Seeded, SeededBug};

/// The wait between cancel requests for one connection doubles from this to the next constant: a stopped server finds
/// at most some tens of them when it resumes.
const CANCEL_AGAIN_MIN: Duration = Duration::from_millis(250);
const CANCEL_AGAIN_MAX: Duration = Duration::from_secs(10);
/// Time that a connection is unused after a cancel request. The request is sent on another connection, so it may be
/// processed after the statement has ended, and would then cancel the next one. A later one still costs one call its
/// response; that call is rolled back.
const CANCEL_SETTLES: Duration = Duration::from_millis(100);
/// The longest time that an unreferenced connection stays open: a silent peer never responds to what still runs on it.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// The connections of one kind to one server.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Shared>);

struct Shared {
    connector: Arc<Connector>,
    /// One permit for each connection that is being opened, in use or abandoned.
    capacity: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    /// The runtime on which connections are opened, driven and reclaimed.
    background: Background,
    seeded: Seeded,
}

/// One connection with its prepared statements.
pub(crate) struct Connection {
    client: Arc<Client>,
    prepared: Mutex<HashMap<Arc<str>, Statement>>,
    /// The generation of the server's history that it belongs to; zero until checked.
    generation: AtomicU64,
    /// Dropped with the connection, which then closes.
    _held: oneshot::Sender<Infallible>,
}

impl Connections {
    pub(crate) fn new(
        capacity: usize,
        connector: Arc<Connector>,
        background: Background,
        seeded: Seeded,
    ) -> Self {
        let capacity = Arc::new(Semaphore::new(capacity));
        Self(Arc::new(Shared { connector, capacity, idle: Mutex::default(), background, seeded }))
    }

    /// Waits for a connection, and opens one if none is idle. Has no timeout: every caller has one.
    pub(crate) async fn hold(&self) -> Result<Held, StoreError> {
        let permit = self.0.capacity.clone().acquire_owned().await.map_err(StoreError::unavailable)?;
        match self.0.take_idle() {
            Some(connection) => Ok(self.held(connection, permit)),
            None => self.dial(permit).await,
        }
    }

    /// Closes every idle connection.
    pub(crate) fn close_idle(&self) {
        self.0.idle.lock().clear();
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.0.connector
    }

    /// Opens a connection in a task: if the caller's deadline ends first, the next caller gets it.
    async fn dial(&self, permit: OwnedSemaphorePermit) -> Result<Held, StoreError> {
        let (tell, dialled) = oneshot::channel();
        let connections = self.clone();
        self.0.background.spawn(async move {
            let dialled = connections.0.dial().await;
            let held = dialled.map(|connection| connections.held(connection, permit));
            if let Err(Ok(unclaimed)) = tell.send(held) {
                unclaimed.give_back();
            }
        });
        dialled.await.unwrap_or_else(|_| Err(StoreError::unavailable("the background runtime has ended")))
    }

    fn held(&self, connection: Connection, permit: OwnedSemaphorePermit) -> Held {
        Held { taken: Some((connection, permit)), connections: self.clone() }
    }
}

impl Shared {
    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some(connection) = idle.pop() {
            if !connection.client.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    async fn dial(&self) -> Result<Connection, StoreError> {
        let (client, driver) = self.connector.dial().await?;
        let (held, dropped) = oneshot::channel();
        self.background.spawn(drive(driver, dropped));
        let (client, generation) = (Arc::new(client), AtomicU64::new(0));
        Ok(Connection { client, prepared: Mutex::default(), generation, _held: held })
    }

    /// Returns a connection. It is idle before its permit is free, so the next owner of the permit finds it.
    fn put_back(&self, connection: Connection, permit: OwnedSemaphorePermit) {
        if !connection.client.is_closed() {
            self.idle.lock().push(connection);
        }
        drop(permit);
    }
}

impl Connection {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    pub(crate) fn belongs_to(&self, generation: u64) {
        self.generation.store(generation, Relaxed);
    }

    /// Returns the prepared statement. There are as many as this crate has texts.
    pub(crate) async fn prepare(&self, text: &Arc<str>, types: &[Type]) -> Result<Statement, Error> {
        if let Some(prepared) = self.prepared.lock().get(text) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare_typed(text, types).await?;
        self.prepared.lock().insert(text.clone(), prepared.clone());
        Ok(prepared)
    }
}

/// A connection while a call uses it. Dropped before it is returned, it is abandoned: a statement may still run.
pub(crate) struct Held {
    taken: Option<(Connection, OwnedSemaphorePermit)>,
    connections: Connections,
}

impl Held {
    pub(crate) fn connection(&self) -> &Connection {
        &self.taken.as_ref().expect("taken until it is given back").0
    }

    pub(crate) fn client(&self) -> &Client {
        self.connection().client()
    }

    /// Gives back a connection on which nothing runs.
    pub(crate) fn give_back(mut self) {
        if let Some((connection, permit)) = self.taken.take() {
            self.connections.0.put_back(connection, permit);
        }
    }

    /// Closes a connection on which nothing runs and that cannot be used any more.
    pub(crate) fn close(mut self) {
        self.taken = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some((connection, permit)) = self.taken.take() else { return };
        let counts = !self.connections.0.seeded.has(SeededBug::AbandonedNotCounted);
        if !connection.client.is_closed() && counts {
            let connections = &self.connections.0;
            connections.background.spawn(reclaim(Arc::downgrade(connections), connection, permit));
        }
    }
}

/// Drives a connection until it ends, or until it has been dropped and does not end.
async fn drive(driver: Driver, dropped: oneshot::Receiver<Infallible>) {
    let closes = async {
        let _ = dropped.await;
        sleep(CLOSES_WITHIN).await;
    };
    first(pin!(driver), pin!(closes)).await;
}

/// Cancels the statement on an abandoned connection, and gives it back once the server has responded.
///
/// Ends when the server responds, when the connection is closed, or when the pool is dropped. A statement that no
/// cancel request ends keeps its connection, and the permit with it.
async fn reclaim(connections: Weak<Shared>, connection: Connection, permit: OwnedSemaphorePermit) {
    let token = connection.client.cancel_token();
    // Its response follows everything before it, and it ends a transaction that was left open.
    let client = connection.client.clone();
    let mut answered = pin!(client.batch_execute("ROLLBACK"));
    let mut wait = CANCEL_AGAIN_MIN;
    loop {
        let Some(connections) = connections.upgrade() else { return };
        let (connector, seeded) = (connections.connector.clone(), connections.seeded);
        drop(connections);
        let cancel = async move |token: &CancelToken| {
            if !seeded.has(SeededBug::NoCancel) {
                connector.cancel(token).await;
            }
            sleep(wait).await;
        };
        match first(answered.as_mut(), pin!(cancel(&token))).await {
            Some(Ok(())) => break,
            // Closed, or in an unknown state: it is dropped.
            Some(Err(_)) => return,
            None => wait = (wait * 2).min(CANCEL_AGAIN_MAX),
        }
    }
    sleep(CANCEL_SETTLES).await;
    if let Some(connections) = connections.upgrade() {
        connections.put_back(connection, permit);
    }
}

/// Returns the output of the first future, or nothing if the second ended before it.
async fn first<T>(mut one: Pin<&mut impl Future<Output = T>>, mut other: Pin<&mut impl Future>) -> Option<T> {
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => other.as_mut().poll(context).map(|_| None),
    })
    .await
}
