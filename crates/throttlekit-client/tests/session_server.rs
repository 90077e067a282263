//! A server with scripted sessions, which counts its calls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit_proto::v1::rate_limiter_server::{RateLimiter, RateLimiterServer};
use throttlekit_proto::v1::session_result::Result as Wire;
use throttlekit_proto::v1::{
    AdmitRequest, AdmitResponse, CheckManyRequest, CheckManyResponse, CheckRequest, CheckResponse,
    DebitRequest, DebitResponse, Decision, ForecastRequest, ForecastResponse, HeartbeatRequest,
    HeartbeatResponse, PeekRequest, PeekResponse, ReleaseRequest, ReleaseResponse, SessionRequest,
    SessionResponse, SessionResult, SessionStatus,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

/// The behavior of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Sessions are not supported.
    Unsupported,
    /// Allows all.
    Allows,
    /// Responds to each with this code.
    Refuses(Code),
    /// Sends a goaway instead of results, and ends with OK.
    Leaves,
    /// Ends with an error.
    Fails,
    /// Never responds.
    Hangs,
}

#[derive(Clone)]
pub(crate) struct Stub {
    does: Does,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Checks and debits without a session.
    unary: AtomicU64,
    /// Attempts to open a session.
    opened: AtomicU64,
    /// Calls in sessions.
    calls: AtomicU64,
}

impl Stub {
    /// Serves on a free port.
    pub(crate) async fn serve(does: Does) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stub = Self { does, counts: Arc::default() };
        let service = RateLimiterServer::new(stub.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
        (stub, address)
    }

    pub(crate) fn unary(&self) -> u64 {
        self.counts.unary.load(Relaxed)
    }

    pub(crate) fn opened(&self) -> u64 {
        self.counts.opened.load(Relaxed)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.counts.calls.load(Relaxed)
    }

    fn decided(&self) -> Option<Decision> {
        self.counts.unary.fetch_add(1, Relaxed);
        Some(decision())
    }

    /// Returns the response to a message, or the end of the session.
    fn answer(&self, request: &SessionRequest) -> Option<Result<SessionResponse, Status>> {
        self.counts.calls.fetch_add(request.calls.len() as u64, Relaxed);
        let each = |result: Wire| {
            let result = |id| SessionResult { id, result: Some(result.clone()) };
            let results = request.calls.iter().map(|call| result(call.id)).collect();
            Some(Ok(SessionResponse { results, ..SessionResponse::default() }))
        };
        match self.does {
            Does::Allows => each(Wire::Decision(decision())),
            Does::Refuses(code) => {
                let (code, message) = (code as i32, "refused".into());
                each(Wire::Status(SessionStatus { code, message, cause: String::new() }))
            }
            Does::Leaves => Some(Ok(SessionResponse { goaway: true, ..SessionResponse::default() })),
            Does::Fails => Some(Err(Status::unavailable("failed"))),
            Does::Hangs | Does::Unsupported => None,
        }
    }
}

fn decision() -> Decision {
    Decision { allowed: true, limit: 10, remaining: 9, guarantee: "exact".into(), ..Decision::default() }
}

fn none<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not here"))
}

#[tonic::async_trait]
impl RateLimiter for Stub {
    async fn check(&self, _: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        Ok(Response::new(CheckResponse { decision: self.decided() }))
    }

    async fn debit(&self, _: Request<DebitRequest>) -> Result<Response<DebitResponse>, Status> {
        Ok(Response::new(DebitResponse { decision: self.decided() }))
    }

    async fn check_many(&self, _: Request<CheckManyRequest>) -> Result<Response<CheckManyResponse>, Status> {
        none()
    }

    async fn peek(&self, _: Request<PeekRequest>) -> Result<Response<PeekResponse>, Status> {
        none()
    }

    async fn forecast(&self, _: Request<ForecastRequest>) -> Result<Response<ForecastResponse>, Status> {
        none()
    }

    async fn admit(&self, _: Request<AdmitRequest>) -> Result<Response<AdmitResponse>, Status> {
        none()
    }

    async fn release(&self, _: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        none()
    }

    async fn heartbeat(&self, _: Request<HeartbeatRequest>) -> Result<Response<HeartbeatResponse>, Status> {
        Ok(Response::new(HeartbeatResponse::default()))
    }

    type SessionStream = ReceiverStream<Result<SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.counts.opened.fetch_add(1, Relaxed);
        if self.does == Does::Unsupported {
            return none();
        }
        let (send, responses) = mpsc::channel(16);
        let _ = send.send(Ok(SessionResponse { window: 100, ..SessionResponse::default() })).await;
        let (mut requests, stub) = (request.into_inner(), self.clone());
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let Some(response) = stub.answer(&request) else { continue };
                let is_last = response.as_ref().map_or(true, |response| response.goaway);
                if send.send(response).await.is_err() || is_last {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(responses)))
    }
}
