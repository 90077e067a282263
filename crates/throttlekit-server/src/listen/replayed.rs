//! A connection whose first bytes were read already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that is read from these bytes first. Not vectored, as [`CountedIo`](super::watchdog::CountedIo).
#[derive(Debug)]
pub(super) struct Replayed<I> {
    received: Vec<u8>,
    /// Number of these bytes that were read again.
    read: usize,
    io: I,
}

impl<I> Replayed<I> {
    pub(super) fn new(received: Vec<u8>, io: I) -> Self {
        Self { received, read: 0, io }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Replayed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let rest = &this.received[this.read..];
        if rest.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let count = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..count]);
        this.read += count;
        if this.read == this.received.len() {
            (this.received, this.read) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Replayed<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn bytes_are_read_again_before_the_rest_in_pieces_of_any_size() {
        for size in 1..12 {
            let mut io = Replayed::new(b"first".to_vec(), &b" and the rest"[..]);
            let (mut all, mut piece) = (Vec::new(), vec![0; size]);
            while let count @ 1.. = io.read(&mut piece).await.unwrap() {
                all.extend_from_slice(&piece[..count]);
            }
            assert_eq!(all, b"first and the rest");
        }
    }
}
