//! A proxy to a real server for one schedule: it can refuse, hang, or swallow the traffic.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::background;
use super::schedule::Trouble;

/// A listener on loopback before a server.
pub struct Proxy {
    address: SocketAddr,
    way: Arc<Way>,
    accepts: JoinHandle<()>,
}

struct Way {
    server: SocketAddr,
    state: watch::Sender<State>,
    open: AtomicUsize,
}

#[derive(Clone, Copy, Default)]
struct State {
    trouble: Option<Trouble>,
    /// The number of connections accepted so far.
    accepted: u64,
    /// Connections with a number up to this one are silent.
    silent: u64,
}

/// The treatment of traffic on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    Waits,
    Swallowed,
    Broken,
}

impl State {
    fn fate(self, number: u64) -> Fate {
        match self.trouble {
            _ if number <= self.silent => Fate::Swallowed,
            Some(Trouble::Refuses) => Fate::Broken,
            Some(Trouble::Hangs) => Fate::Waits,
            _ => Fate::Passes,
        }
    }
}

impl Proxy {
    /// Creates a proxy to this server, on the harness's own runtime.
    pub fn to(server: SocketAddr) -> io::Result<Self> {
        background().block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let way = Arc::new(Way { server, state: watch::Sender::default(), open: AtomicUsize::new(0) });
            let accepts = background().spawn(accept(listener, way.clone()));
            Ok(Self { address, way, accepts })
        })
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Injects a fault.
    pub fn trouble(&self, trouble: Trouble) {
        self.way.state.send_modify(|state| match trouble {
            Trouble::Silent => state.silent = state.accepted,
            trouble => state.trouble = Some(trouble),
        });
    }

    /// Ends the fault, except for connections that fell silent.
    pub fn heal(&self) {
        self.way.state.send_modify(|state| state.trouble = None);
    }

    /// Returns the number of open client connections.
    pub fn open(&self) -> usize {
        self.way.open.load(SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

async fn accept(listener: TcpListener, way: Arc<Way>) {
    while let Ok((client, _)) = listener.accept().await {
        let mut number = 0;
        way.state.send_modify(|state| {
            state.accepted += 1;
            number = state.accepted;
        });
        way.open.fetch_add(1, SeqCst);
        let way = way.clone();
        tokio::spawn(async move {
            let _ = carry(client, &way, number).await;
            way.open.fetch_sub(1, SeqCst);
        });
    }
}

/// Copies bytes both ways until either side has closed.
async fn carry(client: TcpStream, way: &Way, number: u64) -> io::Result<()> {
    let mut state = way.state.subscribe();
    if pass(&mut state, number).await == Fate::Broken {
        return Ok(());
    }
    client.set_nodelay(true)?;
    let server = TcpStream::connect(way.server).await?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let mut there = pin!(pipe(from_client, to_server, way, number));
    let mut back = pin!(pipe(from_server, to_client, way, number));
    let mut broken = pin!(broken(state, number));
    // If either side disconnects, both are closed.
    poll_fn(|context| {
        let done = there.as_mut().poll(context).is_ready()
            || back.as_mut().poll(context).is_ready()
            || broken.as_mut().poll(context).is_ready();
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    Ok(())
}

async fn pipe(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: &Way, number: u64) -> io::Result<()> {
    let (mut state, mut piece) = (way.state.subscribe(), vec![0; 16 * 1024]);
    loop {
        let bytes = from.read(&mut piece).await?;
        match pass(&mut state, number).await {
            _ if bytes == 0 => return Ok(()),
            Fate::Swallowed => {}
            Fate::Broken => return Ok(()),
            _ => to.write_all(&piece[..bytes]).await?,
        }
    }
}

/// Waits while traffic is blocked. Returns its treatment after that.
async fn pass(state: &mut watch::Receiver<State>, number: u64) -> Fate {
    let moves = state.wait_for(|state| state.fate(number) != Fate::Waits).await;
    moves.map_or(Fate::Broken, |state| state.fate(number))
}

async fn broken(mut state: watch::Receiver<State>, number: u64) {
    let _ = state.wait_for(|state| state.fate(number) == Fate::Broken).await;
}
