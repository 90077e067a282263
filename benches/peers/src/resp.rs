//! Commands in Redis's protocol, single or pipelined.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Integers of a reply, as redis-cell defined it: the decision, limit, remaining, and two waits.
const INTEGERS: usize = 5;

/// One caller, with a connection of its own.
pub struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
    allowed: &'static [u8],
}

pub async fn connect(address: SocketAddr, allowed: &'static [u8]) -> Result<Caller> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Caller { stream, buffer: Vec::new(), allowed })
}

impl Caller {
    /// Sends the commands at once and returns how many of them are allowed.
    pub async fn call<'a>(&mut self, commands: impl Iterator<Item = &'a [u8]>) -> Result<usize> {
        self.buffer.clear();
        let mut sent = 0;
        for command in commands {
            self.buffer.extend_from_slice(command);
            sent += 1;
        }
        self.stream.write_all(&self.buffer).await?;
        self.buffer.clear();
        loop {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the server closed the connection");
            if let Some(allowed) = count_allowed(&self.buffer, sent, self.allowed)? {
                return Ok(allowed);
            }
        }
    }
}

/// Returns how many of the replies begin with this integer, once all of them are there.
fn count_allowed(replies: &[u8], expected: usize, allowed: &[u8]) -> Result<Option<usize>> {
    let mut lines = replies.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let mut count = 0;
    for _ in 0..expected {
        match lines.next() {
            None => return Ok(None),
            Some(b"*5\r\n") => {}
            Some(other) => bail!("no decision: {}", String::from_utf8_lossy(other).trim_end()),
        }
        for n in 0..INTEGERS {
            let Some(integer) = lines.next() else { return Ok(None) };
            count += usize::from(n == 0 && integer == allowed);
        }
    }
    Ok(Some(count))
}
