//! A server for each test that can be killed and started again, and a network with fault injection.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit_client::{Client, ClientBuilder};
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Creates a runtime for one side.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The shipped server on a runtime of its own.
pub(crate) struct Running {
    options: ServerOptions,
    running: Option<(Runtime, Server)>,
}

impl Running {
    /// Serves these policies.
    pub(crate) fn start(policies: &str, backend: Backend) -> Self {
        Self::with(policies, backend, |_| {})
    }

    /// Serves these policies with further options.
    pub(crate) fn with(policies: &str, backend: Backend, more: impl FnOnce(&mut ServerOptions)) -> Self {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let name = format!("throttlekit-client-{}-{}.yaml", std::process::id(), FILES.fetch_add(1, Relaxed));
        let file: PathBuf = std::env::temp_dir().join(name);
        std::fs::write(&file, format!("version: 1\npolicies:\n{policies}")).expect("a file");
        let mut options = ServerOptions::new(file, backend);
        options.secrets.trust_loopback = true;
        more(&mut options);
        let mut running = Self { options, running: None };
        running.restart();
        running
    }

    /// Ends it like a crash: nothing is returned, connections break.
    pub(crate) fn kill(&mut self) {
        if let Some((runtime, server)) = self.running.take() {
            drop(server);
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// Starts it again on the same address.
    pub(crate) fn restart(&mut self) {
        let runtime = runtime();
        let server = runtime.block_on(Server::start(self.options.clone())).expect("a server");
        self.options.grpc = server.grpc();
        self.running = Some((runtime, server));
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.options.grpc
    }

    /// Returns a client of it, with deadlines for a busy machine.
    pub(crate) fn client(&self) -> ClientBuilder {
        client_of(self.address())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.options.policies);
    }
}

pub(crate) fn client_of(address: SocketAddr) -> ClientBuilder {
    Client::builder(format!("http://{address}")).deadline(Duration::from_secs(2))
}

/// A proxy to a server that delays and breaks connections.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    trouble: Arc<Trouble>,
}

/// The faults of every chunk that passes.
#[derive(Default)]
struct Trouble {
    /// The maximum delay of responses in milliseconds.
    late_ms: AtomicU64,
    /// One chunk in this many breaks the connection; 0 for none.
    breaks_one_in: AtomicU64,
    dice: AtomicU64,
}

impl Trouble {
    fn roll(&self) -> u64 {
        let seed = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    }
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr, late_ms: u64, breaks_one_in: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let trouble = Arc::new(Trouble::default());
        trouble.late_ms.store(late_ms, Relaxed);
        trouble.breaks_one_in.store(breaks_one_in, Relaxed);
        let shared = trouble.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, shared.clone()));
            }
        });
        Self { address, trouble }
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        self.trouble.late_ms.store(0, Relaxed);
        self.trouble.breaks_one_in.store(0, Relaxed);
    }
}

async fn carry(client: TcpStream, server: SocketAddr, trouble: Arc<Trouble>) {
    let Ok(upstream) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = upstream.into_split();
    let there = pipe(from_client, to_server, trouble.clone(), false);
    let back = pipe(from_server, to_client, trouble, true);
    // If either side disconnects, both are closed.
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

async fn pipe(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    trouble: Arc<Trouble>,
    is_late: bool,
) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(bytes) = from.read(&mut piece).await {
        let late = trouble.late_ms.load(Relaxed);
        if is_late && late > 0 {
            tokio::time::sleep(Duration::from_millis(trouble.roll() % (late + 1))).await;
        }
        let breaks = trouble.breaks_one_in.load(Relaxed);
        let broken = breaks > 0 && trouble.roll().is_multiple_of(breaks);
        if bytes == 0 || broken || to.write_all(&piece[..bytes]).await.is_err() {
            return;
        }
    }
}
