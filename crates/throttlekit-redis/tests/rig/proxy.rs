//! A proxy on loopback that forwards, delays, falls silent, loses replies and resets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// The treatment of bytes. Connections are counted by generations, so that old ones can stay unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Forward,
    Delay(Duration),
    /// Requests pass, and replies wait.
    HoldReplies,
    /// Sockets stay open, and nothing is read or written.
    Silent,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    upstream: AtomicU16,
    mode: watch::Sender<Mode>,
    /// Connections made before this number are silent forever.
    silenced_before: AtomicU64,
    made: AtomicU64,
    /// The next reply is dropped, and its connection closed.
    lose_next_reply: AtomicBool,
    lost: AtomicU64,
    /// The number of next requests that are also executed a second time, with that reply dropped.
    repeat: AtomicU64,
    repeated: AtomicU64,
    resets: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            upstream: upstream.into(),
            mode: watch::Sender::new(Mode::Forward),
            silenced_before: AtomicU64::new(0),
            made: AtomicU64::new(0),
            lose_next_reply: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            repeat: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            resets: watch::Sender::new(0),
        });
        let accepting = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = accepting.clone();
                tokio::spawn(async move { state.serve(client).await });
            }
        });
        Self { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the number of connections made so far.
    pub(crate) fn connections(&self) -> u64 {
        self.state.made.load(SeqCst)
    }

    /// Returns the number of replies lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.state.lost.load(SeqCst)
    }

    /// Makes all connections, present and future, silent while their sockets stay open.
    pub(crate) fn fall_silent(&self) {
        self.state.mode.send_replace(Mode::Silent);
    }

    /// Lets new connections work; old ones stay silent.
    pub(crate) fn heal_for_new_connections(&self) {
        self.state.silenced_before.store(self.connections(), SeqCst);
        self.state.mode.send_replace(Mode::Forward);
    }

    /// Delays every reply by this much.
    pub(crate) fn delay(&self, by: Duration) {
        self.state.mode.send_replace(Mode::Delay(by));
    }

    /// Lets requests pass, and keeps replies until [`forward`](Self::forward).
    pub(crate) fn hold_replies(&self) {
        self.state.mode.send_replace(Mode::HoldReplies);
    }

    pub(crate) fn forward(&self) {
        self.state.mode.send_replace(Mode::Forward);
    }

    /// Forwards the next request, drops its reply and closes the connection.
    pub(crate) fn lose_next_reply(&self) {
        self.state.lose_next_reply.store(true, SeqCst);
    }

    /// Sends the next requests a second time, like a proxy that retries.
    pub(crate) fn repeat_next_requests(&self, requests: u64) {
        self.state.repeat.store(requests, SeqCst);
    }

    /// Returns the number of requests sent a second time so far.
    pub(crate) fn repeated(&self) -> u64 {
        self.state.repeated.load(SeqCst)
    }

    /// Closes all connections; new ones go to this port.
    pub(crate) fn lead_to(&self, port: u16) {
        self.state.upstream.store(port, SeqCst);
        self.reset_all();
    }

    /// Closes all connections.
    pub(crate) fn reset_all(&self) {
        self.state.resets.send_modify(|resets| *resets += 1);
    }
}

impl State {
    async fn serve(&self, mut client: TcpStream) {
        let number = self.made.fetch_add(1, SeqCst);
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.upstream.load(SeqCst))).await else {
            return;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let mut resets = self.resets.subscribe();
        resets.mark_unchanged();
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        tokio::select! {
            () = self.requests(number, &mut from_client, &mut to_server) => {}
            () = self.replies(number, &mut from_server, &mut to_client) => {}
            _ = resets.changed() => {}
        }
    }

    async fn requests(
        &self,
        number: u64,
        from: &mut (impl AsyncReadExt + Unpin),
        to: &mut (impl AsyncWriteExt + Unpin),
    ) {
        let mut bytes = [0; 16_384];
        loop {
            self.passable(number).await;
            let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
            self.passable(number).await;
            if to.write_all(&bytes[..read]).await.is_err() {
                return;
            }
            if self.repeat.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                self.again(&bytes[..read]).await;
            }
        }
    }

    /// Sends the same bytes over another connection, up to the first of the replies.
    async fn again(&self, request: &[u8]) {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.upstream.load(SeqCst))).await else {
            return;
        };
        if server.write_all(request).await.is_ok() && server.read(&mut [0; 1_024]).await.is_ok() {
            self.repeated.fetch_add(1, SeqCst);
        }
    }

    async fn replies(
        &self,
        number: u64,
        from: &mut (impl AsyncReadExt + Unpin),
        to: &mut (impl AsyncWriteExt + Unpin),
    ) {
        let mut bytes = [0; 16_384];
        loop {
            let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
            self.passable(number).await;
            let _ = self.mode.subscribe().wait_for(|mode| *mode != Mode::HoldReplies).await;
            if self.lose_next_reply.swap(false, SeqCst) {
                self.lost.fetch_add(1, SeqCst);
                return;
            }
            let mode = *self.mode.borrow();
            if let Mode::Delay(by) = mode {
                sleep(by).await;
            }
            if to.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    }

    /// Returns when bytes of this connection may pass: for a silenced one, never.
    async fn passable(&self, number: u64) {
        let mut mode = self.mode.subscribe();
        let _ = mode.wait_for(|mode| *mode != Mode::Silent).await;
        if number < self.silenced_before.load(SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}
