//! Accepts connections until shutdown, and then lets them end.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tower::Service;

use super::capacity::{ConnectionCapacity, Full};
use super::connection::{self, Http, Protocol};
use super::counters::count;
use super::{Counters, Limits, Peer, Stats, Tls};
use crate::share::Processor;

/// Pause after the system fails to accept a connection, such as from a lack of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Minimum interval between log lines about that, for each listener.
const WARN_EVERY: Duration = Duration::from_secs(1);
/// Time for which connections are still accepted after shutdown: those that the system has accepted already would be
/// reset with the listener.
const LAST_WITHIN: Duration = Duration::from_millis(20);
/// Maximum number of connections that are accepted after that time.
const LAST_MAX: usize = 1_024;
/// Time to end in addition to the grace of each connection.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Protocols of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speaks {
    /// HTTP/2 only: gRPC.
    #[default]
    Http2,
    /// HTTP/1.1 and HTTP/2.
    Http,
    /// RESP2, the protocol of Redis.
    Resp,
}

/// Options of a listener.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    /// Limits of connections and requests.
    pub limits: Limits,
    /// The certificate, if connections are encrypted.
    pub tls: Option<Tls>,
    /// Protocols.
    pub speaks: Speaks,
    /// Counters of connections and requests.
    pub counters: Arc<Counters>,
    /// Shares processor time between callers, with other listeners of the same runtime.
    pub processor: Arc<Processor>,
}

/// Serves connections until `shutdown` completes. Then accepts no more, closes all gracefully, waits for requests in
/// flight up to the grace of [`Limits`], and closes the rest. Each request carries its [`Peer`] as an extension.
///
/// The service must always be ready, as a router is: it is called without waiting.
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    options: ListenOptions,
    shutdown: impl Future<Output = ()>,
) -> Stats
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Default + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    serve_protocol(listener, Http(service), options, shutdown).await
}

/// Serves connections of this protocol, as [`serve`] does.
pub(crate) async fn serve_protocol<P: Protocol>(
    listener: TcpListener,
    protocol: P,
    options: ListenOptions,
    shutdown: impl Future<Output = ()>,
) -> Stats {
    let (close, closing) = watch::channel(false);
    // Nothing is sent: it ends when the last connection has dropped its sender.
    let (alive, mut gone) = mpsc::channel::<Infallible>(1);
    let shared = Arc::new(options);
    let ListenOptions { limits, counters, .. } = &*shared;
    let accepting = Accepting {
        protocol,
        shared: shared.clone(),
        capacity: Arc::default(),
        closing,
        alive,
        warned: None,
    };
    accepting.until(listener, shutdown).await;
    // Fails if there is no connection.
    let _ = close.send(true);
    if timeout(limits.grace + END_WITHIN, gone.recv()).await.is_err() {
        tracing::warn!("connections abandoned after their grace period");
    }
    counters.stats()
}

/// Accepts connections and starts them.
struct Accepting<P> {
    protocol: P,
    shared: Arc<ListenOptions>,
    capacity: Arc<ConnectionCapacity>,
    /// Changes when connections have to close.
    closing: watch::Receiver<bool>,
    /// Dropped with the last connection.
    alive: mpsc::Sender<Infallible>,
    /// Time of the last log line about the system.
    warned: Option<Instant>,
}

impl<P: Protocol> Accepting<P> {
    /// Accepts connections until shutdown, and those that the system has accepted by then.
    async fn until(mut self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut over = std::pin::pin!(async {
            shutdown.await;
            sleep(LAST_WITHIN).await;
        });
        loop {
            let accepted = tokio::select! {
                biased;
                () = over.as_mut() => break,
                accepted = listener.accept() => accepted,
            };
            self.start(accepted).await;
        }
        self.accept_last(listener).await;
    }

    /// Accepts the connections that the system has accepted by now, and closes the listener. The system reports them, not
    /// the runtime, which may not have seen the latest yet: a client would get a reset for what it has sent.
    async fn accept_last(&mut self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        for _ in 0..LAST_MAX {
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                accepted => self.start(accepted.and_then(registered)).await,
            }
        }
    }

    async fn start(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        let ListenOptions { limits, counters, processor, .. } = &*self.shared;
        let Some((tcp, address)) = taken(accepted, counters, &mut self.warned).await else { return };
        let (peer, account) = Peer::at(address).connected(processor);
        let slot = match self.capacity.acquire(&peer, limits) {
            Ok(slot) => slot,
            // Closed immediately: a response would need the resources that are exhausted.
            Err(full) => {
                return count(if full == Full::All { &counters.over_cap } else { &counters.over_peer_cap });
            }
        };
        count(&counters.accepted);
        let held = (slot, self.alive.clone(), Ends(self.shared.clone()));
        let (protocol, shared, closing) = (self.protocol.clone(), self.shared.clone(), self.closing.clone());
        tokio::spawn(account.clone().run(async move {
            connection::run(tcp, (peer, account), protocol, &shared, closing).await;
            drop(held);
        }));
    }
}

/// Hands a connection to the runtime.
fn registered((tcp, address): (std::net::TcpStream, SocketAddr)) -> io::Result<(TcpStream, SocketAddr)> {
    tcp.set_nonblocking(true)?;
    Ok((TcpStream::from_std(tcp)?, address))
}

/// Counts the end of a connection, whatever ends it.
struct Ends(Arc<ListenOptions>);

impl Drop for Ends {
    fn drop(&mut self) {
        count(&self.0.counters.ended);
    }
}

/// Returns the connection, if there is one. A lack of file descriptors is temporary; a listener that stopped would not
/// recover.
async fn taken(
    accepted: io::Result<(TcpStream, SocketAddr)>,
    counters: &Counters,
    warned: &mut Option<Instant>,
) -> Option<(TcpStream, SocketAddr)> {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    match accepted {
        Ok(accepted) => Some(accepted),
        // A connection that was gone before it was accepted.
        Err(error)
            if matches!(
                error.kind(),
                ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
            ) =>
        {
            None
        }
        Err(error) => {
            count(&counters.accept_errors);
            if warned.is_none_or(|last| last.elapsed() >= WARN_EVERY) {
                *warned = Some(Instant::now());
                tracing::warn!(%error, "accept failed, retrying");
            }
            sleep(ACCEPT_AGAIN_AFTER).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lack_of_descriptors_is_counted_each_time_and_logged_once_a_second() {
        let (counters, began, mut warned) = (Counters::default(), Instant::now(), None);
        let mut logged = Vec::new();
        while began.elapsed() < WARN_EVERY * 3 {
            let none_left = io::Error::from_raw_os_error(24);
            assert!(taken(Err(none_left), &counters, &mut warned).await.is_none());
            logged.extend(warned);
        }
        logged.dedup();
        assert_eq!((counters.stats().accept_errors, logged.len()), (60, 3));
    }
}
