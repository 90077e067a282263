//! Unary gRPC methods whose requests were received whole.
//!
//! tonic reads and writes every message as a stream, with a buffer of 8 KiB each way. That is a tenth of a check. Here one
//! message is decoded where it is and another is encoded as it is sent. Whatever is not one plain message goes to tonic,
//! which knows what is wrong with it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::{Body, Bytes, Frame};
use prost::Message;
use prost::bytes::{BufMut, BytesMut};
use tonic::Status;
use tower::Service;

use super::fair_use::Whole;
use crate::access::Caller;

/// Bytes before a message: whether it is compressed, and its length.
pub(crate) const HEAD_BYTES: usize = 5;
const ENCODING: &str = "grpc-encoding";

/// One unary method.
pub(crate) trait Method: Send + Sync + 'static {
    /// Its path.
    const PATH: &'static str;
    type Request: Message + Default + 'static;

    /// Answers a request. The response is a message as gRPC frames it.
    fn answer(
        &self,
        caller: Caller,
        request: Self::Request,
    ) -> impl Future<Output = Result<Bytes, Status>> + Send;
}

/// A service that answers the requests of one method, before a service for all others.
pub(crate) struct Unary<M, S> {
    method: Arc<M>,
    bytes_max: usize,
    others: S,
}

impl<M, S: Clone> Clone for Unary<M, S> {
    fn clone(&self) -> Self {
        Self { method: self.method.clone(), bytes_max: self.bytes_max, others: self.others.clone() }
    }
}

impl<M: Method, S> Unary<M, S> {
    /// Answers requests of at most `bytes_max` bytes. `others` must always be ready.
    pub(crate) fn new(method: M, bytes_max: usize, others: S) -> Self {
        Self { method: Arc::new(method), bytes_max, others }
    }

    /// Returns the caller and the message of a request that is one plain message of this method.
    fn read(&self, request: &Request<Whole>) -> Option<(Caller, M::Request)> {
        if request.uri().path() != M::PATH || request.headers().contains_key(ENCODING) {
            return None;
        }
        let (head, message) = request.body().bytes()?.split_first_chunk::<HEAD_BYTES>()?;
        let [0, length @ ..] = *head else { return None };
        let is_whole = usize::try_from(u32::from_be_bytes(length)) == Ok(message.len());
        if !is_whole || message.len() > self.bytes_max {
            return None;
        }
        let caller = request.extensions().get::<Caller>()?;
        Some((caller.clone(), M::Request::decode(message).ok()?))
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<tonic::body::Body>, Infallible>> + Send>>;

impl<M, S> Service<Request<Whole>> for Unary<M, S>
where
    M: Method,
    S: Service<Request<Whole>, Response = Response<tonic::body::Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Either<Answering, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.others.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Whole>) -> Self::Future {
        let Some((caller, message)) = self.read(&request) else {
            return Either::Right(self.others.call(request));
        };
        let method = self.method.clone();
        Either::Left(Box::pin(async move {
            Ok(match method.answer(caller, message).await {
                Ok(message) => response(message),
                Err(status) => status.into_http(),
            })
        }))
    }
}

fn response(message: Bytes) -> Response<tonic::body::Body> {
    let mut response = Response::new(tonic::body::Body::new(OneMessage::Due(message)));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Encodes a message as gRPC frames it.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// The body of a response: a message, and the status OK.
enum OneMessage {
    Due(Bytes),
    Sent,
    Done,
}

impl Body for OneMessage {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = match *self {
            Self::Due(_) => Self::Sent,
            Self::Sent | Self::Done => Self::Done,
        };
        Poll::Ready(match std::mem::replace(&mut *self, next) {
            Self::Due(message) => Some(Ok(Frame::data(message))),
            Self::Sent => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                Some(Ok(Frame::trailers(trailers)))
            }
            Self::Done => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Done)
    }
}
