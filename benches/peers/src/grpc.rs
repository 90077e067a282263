//! gRPC calls over bare HTTP/2: one connection carries several callers.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{self, SendRequest};
use http::{HeaderMap, Request, StatusCode};
use tokio::net::TcpStream;

/// Bytes before a message: a flag and the length.
const FRAME: usize = 5;

/// One caller: has at most one call in flight.
pub struct Caller {
    connection: SendRequest<Bytes>,
    head: Request<()>,
    allowed: fn(&[u8]) -> Result<bool>,
}

pub async fn connect(
    address: SocketAddr,
    path: &str,
    allowed: fn(&[u8]) -> Result<bool>,
    callers: usize,
) -> Result<Vec<Caller>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (connection, driver) = client::handshake(stream).await?;
    // Ends when the last caller is dropped. An error reaches the callers.
    tokio::spawn(driver);
    let head = Request::post(format!("http://{address}{path}"));
    let head = head.header("content-type", "application/grpc").header("te", "trailers").body(())?;
    let caller = || Caller { connection: connection.clone(), head: head.clone(), allowed };
    Ok(std::iter::repeat_with(caller).take(callers).collect())
}

impl Caller {
    /// Sends a request and returns whether it is allowed.
    pub async fn call(&mut self, request: Bytes) -> Result<bool> {
        let mut connection = self.connection.clone().ready().await?;
        let (response, mut stream) = connection.send_request(self.head.clone(), false)?;
        stream.send_data(request, true)?;
        let (head, mut body) = response.await?.into_parts();
        ensure!(head.status == StatusCode::OK, "HTTP status {}", head.status);
        let message = read(&mut body).await?;
        let trailers = body.trailers().await?;
        check_status(trailers.as_ref().unwrap_or(&head.headers))?;
        ensure!(message.len() >= FRAME && message[0] == 0, "a response without a plain message");
        (self.allowed)(&message[FRAME..])
    }
}

async fn read(body: &mut RecvStream) -> Result<Bytes> {
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        message.extend_from_slice(&data);
    }
    Ok(message.freeze())
}

fn check_status(trailers: &HeaderMap) -> Result<()> {
    match trailers.get("grpc-status") {
        Some(status) if status == "0" => Ok(()),
        status => bail!("grpc-status {status:?}: {:?}", trailers.get("grpc-message")),
    }
}
