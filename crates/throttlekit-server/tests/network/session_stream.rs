//! One stream of `Session`, message by message.

use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use hyper::body::Bytes;
use prost::Message;
use throttlekit_proto::v1::session_call::Call;
use throttlekit_proto::v1::session_result::Result as Wire;
use throttlekit_proto::v1::{
    CheckRequest, Decision, SessionCall, SessionRequest, SessionResponse, SessionResult,
};
use tonic::Code;

use crate::client::{Client, Failure, framed, status};

pub(crate) const SESSION: &str = "/throttlekit.v1.RateLimiter/Session";

/// A session that was opened, and its window.
pub(crate) struct Stream {
    pub(crate) window: i64,
    pub(crate) send: SendStream<Bytes>,
    body: RecvStream,
    received: Vec<u8>,
    next_id: u64,
}

impl Stream {
    pub(crate) async fn open(client: &Client) -> Result<Self, Failure> {
        Self::open_as(client, &[]).await
    }

    /// Opens a session with these headers.
    pub(crate) async fn open_as(client: &Client, headers: &[(&'static str, &str)]) -> Result<Self, Failure> {
        let (response, send) = client.begin(SESSION, headers).await?;
        Self::of(response, send).await
    }

    async fn of(response: ResponseFuture, send: SendStream<Bytes>) -> Result<Self, Failure> {
        let response = response.await?;
        if let Some(code) = status(response.headers()) {
            return Err(Failure::Status(code));
        }
        let (body, received) = (response.into_body(), Vec::new());
        let mut stream = Self { window: 0, send, body, received, next_id: 1 };
        stream.window = stream.next().await?.expect("a first response").window;
        Ok(stream)
    }

    /// Sends calls in one message, and returns their IDs.
    pub(crate) fn send(&mut self, calls: Vec<Call>, deadline_ms: i64) -> Result<Vec<u64>, Failure> {
        let first = self.next_id;
        self.next_id += calls.len() as u64;
        let calls = (first..).zip(calls).map(|(id, call)| SessionCall { id, call: Some(call) });
        let request = SessionRequest { calls: calls.collect(), deadline_ms };
        self.send.send_data(framed(&request.encode_to_vec()), false)?;
        Ok((first..self.next_id).collect())
    }

    /// Closes this side.
    pub(crate) fn close(&mut self) {
        // Fails if the server has reset the stream.
        let _ = self.send.send_data(Bytes::new(), true);
    }

    /// Returns the next response, or `None` if the stream ended with OK.
    pub(crate) async fn next(&mut self) -> Result<Option<SessionResponse>, Failure> {
        loop {
            if let Some(message) = self.take() {
                return Ok(Some(SessionResponse::decode(&message[..])?));
            }
            match self.body.data().await {
                Some(data) => {
                    let data = data?;
                    self.body.flow_control().release_capacity(data.len())?;
                    self.received.extend_from_slice(&data);
                }
                None => break,
            }
        }
        match status(&self.body.trailers().await?.unwrap_or_default()) {
            Some(Code::Ok) => Ok(None),
            Some(code) => Err(Failure::Status(code)),
            None => Err(Failure::Lost("no trailers".into())),
        }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let (head, rest) = self.received.split_first_chunk::<5>()?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let message = rest.get(..length)?.to_vec();
        self.received.drain(..5 + length);
        Some(message)
    }

    /// Sends calls in one message, and returns their results in order.
    pub(crate) async fn call(&mut self, calls: Vec<Call>, deadline_ms: i64) -> Result<Vec<Outcome>, Failure> {
        let ids = self.send(calls, deadline_ms)?;
        let mut results: Vec<SessionResult> = Vec::new();
        while results.len() < ids.len() {
            let response = self.next().await?;
            results.extend(response.ok_or_else(|| Failure::Lost("ended early".into()))?.results);
        }
        results.sort_by_key(|result| result.id);
        assert!(results.iter().map(|result| result.id).eq(ids), "each call has one result");
        Ok(results.into_iter().map(outcome).collect())
    }
}

/// A decision, or the code and the text of a status.
pub(crate) type Outcome = Result<Decision, (Code, String)>;

fn outcome(result: SessionResult) -> Outcome {
    match result.result {
        Some(Wire::Decision(decision)) => Ok(decision),
        Some(Wire::Status(status)) => Err((Code::from_i32(status.code), status.message)),
        None => panic!("neither a decision nor a status"),
    }
}

/// The code of an outcome.
pub(crate) fn code(outcome: &Outcome) -> Code {
    outcome.as_ref().map_or_else(|(code, _)| *code, |_| Code::Ok)
}

pub(crate) fn check(policy: &str, key: &str) -> Call {
    Call::Check(CheckRequest { policy: policy.into(), key: key.into(), ..CheckRequest::default() })
}
