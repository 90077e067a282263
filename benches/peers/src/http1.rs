//! HTTP/1.1 requests, one after another on a connection.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const RESPONSE_MAX: usize = 64 * 1024;
const BLANK_LINE: &[u8] = b"\r\n\r\n";

/// One caller, with a connection of its own.
pub struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
    allowed: fn(u16, &[u8]) -> Result<bool>,
}

pub async fn connect(address: SocketAddr, allowed: fn(u16, &[u8]) -> Result<bool>) -> Result<Caller> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Caller { stream, buffer: Vec::new(), allowed })
}

impl Caller {
    /// Sends a request and returns whether it is allowed.
    pub async fn call(&mut self, request: &Bytes) -> Result<bool> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the server closed the connection");
            ensure!(self.buffer.len() < RESPONSE_MAX, "a response of more than {RESPONSE_MAX} bytes");
            if let Some((status, body)) = parse(&self.buffer)? {
                return (self.allowed)(status, body);
            }
        }
    }
}

/// Returns the status and the body, once all of it is there.
fn parse(response: &[u8]) -> Result<Option<(u16, &[u8])>> {
    let end = response.windows(BLANK_LINE.len()).position(|window| window == BLANK_LINE);
    let Some(end) = end else { return Ok(None) };
    let head = std::str::from_utf8(&response[..end]).context("a head that is not text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.with_context(|| format!("no status in {head:?}"))?;
    let length = lines.filter_map(|line| line.split_once(": "));
    let length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.last().and_then(|(_, length)| length.parse::<usize>().ok());
    let length = length.with_context(|| format!("no content-length in {head:?}"))?;
    let body = &response[end + BLANK_LINE.len()..];
    Ok((body.len() >= length).then_some((status, body)))
}
