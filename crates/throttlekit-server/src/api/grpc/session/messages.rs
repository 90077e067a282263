//! The messages of a stream, as gRPC frames them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Buf, Bytes};
use prost::bytes::BytesMut;
use tonic::Status;

use crate::api::unary::HEAD_BYTES;

/// Size of what was received for which memory is kept while nothing is.
const KEPT_BYTES: usize = 4 << 10;

/// Messages from a body.
pub(super) struct Messages<B> {
    body: B,
    bytes_max: usize,
    /// Received bytes that are not a whole message yet.
    received: BytesMut,
    is_ended: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Messages<B> {
    /// Reads messages of at most `bytes_max` bytes.
    pub(super) fn of(body: B, bytes_max: usize) -> Self {
        Self { body, bytes_max, received: BytesMut::new(), is_ended: false }
    }

    /// Returns the number of bytes of an incomplete message.
    pub(super) fn incomplete_bytes(&self) -> usize {
        self.received.len()
    }

    /// Returns the next message, or `None` at the end.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(message) = self.take()? {
                return Poll::Ready(Ok(Some(message)));
            }
            if self.is_ended {
                return Poll::Ready(self.end());
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => self.receive(frame.data_ref()),
                Some(Err(_)) => return Poll::Ready(Err(Status::cancelled("the client reset the stream"))),
                None => self.is_ended = true,
            }
        }
    }

    fn receive(&mut self, data: Option<&Bytes>) {
        if self.received.is_empty() && self.received.capacity() > KEPT_BYTES {
            self.received = BytesMut::new();
        }
        data.into_iter().for_each(|data| self.received.extend_from_slice(data));
    }

    /// Takes a message that was received whole.
    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((head, rest)) = self.received.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [compressed, length @ ..] = *head;
        if compressed != 0 {
            return Err(Status::unimplemented("compressed messages are not supported"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.bytes_max {
            let why =
                format!("a message of {length} bytes is too long: at most {} are allowed", self.bytes_max);
            return Err(Status::out_of_range(why));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.received.advance(HEAD_BYTES);
        Ok(Some(self.received.split_to(length).freeze()))
    }

    fn end(&self) -> Result<Option<Bytes>, Status> {
        if self.received.is_empty() {
            return Ok(None);
        }
        Err(Status::invalid_argument("the last message is incomplete"))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tonic::Code;

    use super::*;

    /// Returns the messages in these bytes, received in pieces of this size, and the code of the end.
    async fn read(bytes: &[u8], piece: usize) -> (Vec<Bytes>, Code) {
        let pieces: Vec<_> = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
        let frames = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let mut messages = Messages::of(StreamBody::new(stream::iter(frames)), 10);
        let mut all = Vec::new();
        loop {
            match poll_fn(|cx| messages.poll_next(cx)).await {
                Ok(Some(message)) => all.push(message),
                Ok(None) => return (all, Code::Ok),
                Err(status) => return (all, status.code()),
            }
        }
    }

    #[tokio::test]
    async fn messages_are_read_however_they_are_cut() {
        let bytes = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x0a0123456789";
        for piece in 1..=bytes.len() {
            let (all, end) = read(bytes, piece).await;
            assert_eq!((&all[..], end), (&[&b"abc"[..], b"", b"0123456789"].map(Bytes::from)[..], Code::Ok));
        }
    }

    #[tokio::test]
    async fn what_is_no_message_ends_the_stream() {
        for (bytes, code) in [
            (&b"\0\0\0\0\x0b01234567890"[..], Code::OutOfRange),
            (b"\x01\0\0\0\0", Code::Unimplemented),
            (b"\0\0\0\0\x03ab", Code::InvalidArgument),
            (b"\0\0", Code::InvalidArgument),
        ] {
            assert_eq!(read(bytes, 1).await, (Vec::new(), code), "{bytes:?}");
        }
    }
}
