//! Takes connections until it is told to stop, and then lets them end.

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
use super::connection;
use super::counters::count;
use super::{Counters, Limits, Peer, Stats, Tls};
use crate::share::Processor;

/// How long to wait when the system has no connection to give, such as for want of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How often that is logged at the most, by each listener.
const WARN_EVERY: Duration = Duration::from_secs(1);
/// Beyond the grace that each connection has.
const END_WITHIN: Duration = Duration::from_secs(2);

/// What is spoken on a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/2 alone: gRPC.
    #[default]
    Http2,
    /// HTTP/1.1 and HTTP/2.
    Http,
}

/// How a listener serves.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    /// What connections and requests may cost.
    pub limits: Limits,
    /// The certificate, if connections are encrypted.
    pub tls: Option<Tls>,
    /// What is spoken.
    pub speaks: Speaks,
    /// What happens is counted here.
    pub counters: Arc<Counters>,
    /// Shares processor time between callers, with other listeners of the same runtime.
    pub processor: Arc<Processor>,
}

/// Serves whoever connects until `shutdown` is over. Then takes nobody in, tells everybody to go, waits for what is
/// under way up to the grace of [`Limits`], and ends the rest. Each request carries its [`Peer`] as an extension.
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
    let shared = Arc::new(options);
    let ListenOptions { limits, counters, processor, .. } = &*shared;
    let (capacity, (close, closing)) = (Arc::<ConnectionCapacity>::default(), watch::channel(false));
    // Never sent on: it ends when the last connection has dropped its end.
    let (alive, mut gone) = mpsc::channel::<Infallible>(1);
    let (mut shutdown, mut warned) = (std::pin::pin!(shutdown), None);
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.as_mut() => break,
            accepted = listener.accept() => accepted,
        };
        let Some((tcp, address)) = taken(accepted, counters, &mut warned).await else { continue };
        let (peer, account) = Peer::at(address).connected(processor);
        let slot = match capacity.acquire(&peer, limits) {
            Ok(slot) => slot,
            Err(full) => {
                // Closed at once: an answer would cost what there is none left of.
                count(if full == Full::All { &counters.over_cap } else { &counters.over_peer_cap });
                continue;
            }
        };
        count(&counters.accepted);
        let held = (slot, alive.clone(), Ends(shared.clone()));
        let (service, shared, closing) = (service.clone(), shared.clone(), closing.clone());
        tokio::spawn(account.clone().run(async move {
            connection::run(tcp, (peer, account), service, &shared, closing).await;
            drop(held);
        }));
    }
    drop((listener, alive));
    // Fails if nobody is connected.
    let _ = close.send(true);
    if timeout(limits.grace + END_WITHIN, gone.recv()).await.is_err() {
        tracing::warn!("connections outlived their grace and are abandoned");
    }
    counters.stats()
}

/// Counts the end of a connection, whatever ends it.
struct Ends(Arc<ListenOptions>);

impl Drop for Ends {
    fn drop(&mut self) {
        count(&self.0.counters.ended);
    }
}

/// The connection, if there is one. Lack of file descriptors passes; a listener that gave up would not.
async fn taken(
    accepted: io::Result<(TcpStream, SocketAddr)>,
    counters: &Counters,
    warned: &mut Option<Instant>,
) -> Option<(TcpStream, SocketAddr)> {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    match accepted {
        Ok(accepted) => Some(accepted),
        // Of one connection that was gone before it was taken.
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
                tracing::warn!(%error, "no connection can be taken; trying again");
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
