//! A gRPC client as small as can be, so that every byte and every limit is ours to choose.

use std::time::Duration;

use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Bytes;
use prost::Message;
use throttlekit_proto::v1::{CheckRequest, CheckResponse};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::sleep;
use tonic::Code;

use crate::attack::Listener;

#[derive(Clone)]
pub(crate) struct Client {
    send: SendRequest<Bytes>,
    authorization: Option<String>,
}

/// Why there was no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server said so.
    Status(Code),
    /// The connection or the stream is gone.
    Lost(String),
}

impl Failure {
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Status(code) => *code,
            Self::Lost(why) => panic!("no status: {why}"),
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Client {
    pub(crate) async fn connect(address: impl ToSocketAddrs) -> Result<Self, Failure> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        Self::over(tcp).await
    }

    /// One that shows a token with each request, if it has one.
    pub(crate) async fn connect_as(listener: &Listener) -> Result<Self, Failure> {
        Ok(Self { authorization: listener.authorization(), ..Self::connect(listener.address).await? })
    }

    pub(crate) async fn over<I>(io: I) -> Result<Self, Failure>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (send, connection) = h2::client::handshake(io).await?;
        tokio::spawn(connection);
        Ok(Self::with(send))
    }

    /// One over a connection that the caller drives.
    pub(crate) fn with(send: SendRequest<Bytes>) -> Self {
        Self { send, authorization: None }
    }

    /// Sends these bytes as the body, framed by the caller, and gives what came before the trailers.
    pub(crate) async fn raw(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Bytes,
    ) -> Result<Vec<u8>, Failure> {
        let (response, mut sending) = self.begin(path, headers).await?;
        // A server that refuses early ends the stream while we send.
        let _ = sending.send_data(body, true);
        whole(response.await?).await
    }

    /// Sends the body a moment after the headers.
    pub(crate) async fn late_body(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Vec<u8>, Failure> {
        let (response, mut sending) = self.begin(path, headers).await?;
        sleep(Duration::from_millis(2)).await;
        let _ = sending.send_data(framed(&[]), true);
        whole(response.await?).await
    }

    pub(crate) async fn begin(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Failure> {
        let mut request = Request::post(format!("http://server{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let authorization = self.authorization.iter().map(|value| ("authorization", value.as_str()));
        for (name, value) in headers.iter().copied().chain(authorization) {
            let mut value = HeaderValue::from_str(value).expect("a header");
            // So that it is written in full each time, whoever it is.
            value.set_sensitive(name == "authorization");
            request = request.header(name, value);
        }
        let mut ready = self.send.clone().ready().await?;
        Ok(ready.send_request(request.body(()).expect("a request"), false)?)
    }

    pub(crate) async fn call<R: Message + Default>(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        message: &impl Message,
    ) -> Result<R, Failure> {
        let answer = self.raw(path, headers, framed(&message.encode_to_vec())).await?;
        Ok(R::decode(answer.get(5..).unwrap_or_default())?)
    }

    pub(crate) async fn check(&self, policy: &str, key: &str) -> Result<CheckResponse, Failure> {
        self.check_as(&[], policy, key).await
    }

    pub(crate) async fn check_as(
        &self,
        headers: &[(&'static str, &str)],
        policy: &str,
        key: &str,
    ) -> Result<CheckResponse, Failure> {
        let ask = CheckRequest { policy: policy.into(), key: key.into(), ..CheckRequest::default() };
        self.call(CHECK, headers, &ask).await
    }
}

pub(crate) const CHECK: &str = "/throttlekit.v1.RateLimiter/Check";

/// A message with the five bytes that gRPC puts before it.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

/// Returns the body before the trailers.
async fn whole(response: Response<RecvStream>) -> Result<Vec<u8>, Failure> {
    if let Some(status) = status(response.headers()) {
        return Err(Failure::Status(status));
    }
    let (mut body, mut answer) = (response.into_body(), Vec::new());
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        answer.extend_from_slice(&chunk);
    }
    match status(&body.trailers().await?.unwrap_or_default()) {
        Some(Code::Ok) => Ok(answer),
        Some(code) => Err(Failure::Status(code)),
        None => Err(Failure::Lost("no trailers".into())),
    }
}

pub(crate) fn status(headers: &HeaderMap) -> Option<Code> {
    let status = headers.get("grpc-status")?;
    Some(Code::from_bytes(status.as_bytes()))
}
