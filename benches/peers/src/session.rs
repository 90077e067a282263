//! Sessions over bare HTTP/2: one connection carries several, and each has one message in flight.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, StatusCode};
use prost::Message;
use throttlekit_proto::v1::SessionResponse;
use throttlekit_proto::v1::session_result::Result as Wire;
use tokio::net::TcpStream;

const PATH: &str = "/throttlekit.v1.RateLimiter/Session";
/// Bytes before a message: a flag and the length.
const FRAME: usize = 5;

/// One session.
pub struct Caller {
    send: SendStream<Bytes>,
    body: RecvStream,
    received: BytesMut,
    /// Keeps the connection open.
    _connection: SendRequest<Bytes>,
}

pub async fn connect(address: SocketAddr, callers: usize) -> Result<Vec<Caller>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (connection, driver) = client::handshake(stream).await?;
    // Ends when the last session is dropped. An error reaches the callers.
    tokio::spawn(driver);
    let mut all = Vec::new();
    for _ in 0..callers {
        all.push(Caller::open(address, connection.clone()).await?);
    }
    Ok(all)
}

impl Caller {
    async fn open(address: SocketAddr, connection: SendRequest<Bytes>) -> Result<Self> {
        let head = Request::post(format!("http://{address}{PATH}"));
        let head = head.header("content-type", "application/grpc").header("te", "trailers").body(())?;
        let mut connection = connection.ready().await?;
        let (response, send) = connection.send_request(head, false)?;
        let (head, body) = response.await?.into_parts();
        ensure!(head.status == StatusCode::OK, "HTTP status {}", head.status);
        ensure!(!head.headers.contains_key("grpc-status"), "no session: {:?}", head.headers);
        let mut caller = Self { send, body, received: BytesMut::new(), _connection: connection };
        ensure!(caller.next().await?.window > 0, "a session without a window");
        Ok(caller)
    }

    /// Sends calls in one message, and returns how many are allowed.
    pub async fn call<'a>(&mut self, calls: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<usize> {
        let count = calls.len();
        let mut message = BytesMut::new();
        message.put_bytes(0, FRAME);
        calls.for_each(|call| message.extend_from_slice(call));
        let length = (message.len() - FRAME) as u32;
        message[1..FRAME].copy_from_slice(&length.to_be_bytes());
        self.send.send_data(message.freeze(), false)?;
        let results = self.next().await?.results;
        ensure!(results.len() == count, "{} results of {count} calls", results.len());
        let mut allowed = 0;
        for result in results {
            match result.result {
                Some(Wire::Decision(decision)) => allowed += usize::from(decision.allowed),
                other => bail!("no decision: {other:?}"),
            }
        }
        Ok(allowed)
    }

    async fn next(&mut self) -> Result<SessionResponse> {
        loop {
            if let Some(message) = self.take() {
                return Ok(SessionResponse::decode(message)?);
            }
            let data = self.body.data().await.context("the session ended")??;
            self.body.flow_control().release_capacity(data.len())?;
            self.received.extend_from_slice(&data);
        }
    }

    /// Takes a message that was received whole.
    fn take(&mut self) -> Option<Bytes> {
        let (head, rest) = self.received.split_first_chunk::<FRAME>()?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if rest.len() < length {
            return None;
        }
        self.received.advance(FRAME);
        Some(self.received.split_to(length).freeze())
    }
}
