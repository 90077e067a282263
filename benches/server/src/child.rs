//! The server side: the shipped server, and a bare echo of the same messages.

use std::io::BufRead;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use throttlekit_proto::v1::rate_limiter_server::{RateLimiter, RateLimiterServer};
use throttlekit_proto::v1::{
    AdmitRequest, AdmitResponse, CheckManyRequest, CheckManyResponse, CheckRequest, CheckResponse,
    DebitRequest, DebitResponse, Decision, ForecastRequest, ForecastResponse, HeartbeatRequest,
    HeartbeatResponse, PeekRequest, PeekResponse, ReleaseRequest, ReleaseResponse, Retry, SessionRequest,
    SessionResponse,
};
use throttlekit_redis::RedisStore;
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tonic::{Request, Response, Status};

use crate::alloc;

/// More than all turns use. Windows on Redis are short: in one that began before the memory of the server, decisions are
/// bounded, and the server may have been started moments ago.
pub const POLICIES: &str = "
version: 1
policies:
  paced: {rate: {limit: 10, per: 1s, burst: 10}}
  strict: {rate: {algorithm: fixed_window, limit: 1000000000000, per: 10s}}
  leased: {rate: {algorithm: fixed_window, limit: 1000000000000, per: 10s, lease: {mode: leased, batch: 1000}}}
  lent: {rate: {algorithm: fixed_window, limit: 1000000000000, per: 1d}, fleet: {}}
";

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Connects with long deadlines, because a busy machine may delay a response.
pub async fn backend(store: &str) -> Result<Backend> {
    if store == "memory" {
        return Ok(Backend::memory());
    }
    let redis = RedisStore::builder(store).deadline(Duration::from_secs(5)).connect().await;
    Ok(Backend::redis(redis?))
}

/// A line that requests the number of allocations so far. The first one starts to count.
pub const ALLOCATIONS: &str = "allocations";

fn allocations() -> u64 {
    alloc::start();
    alloc::calls()
}

/// Serves until the pipe is closed. A line names a policy; the response is its number of calls to the store.
pub fn serve(store: &str) -> Result<()> {
    let file: PathBuf = std::env::temp_dir().join(format!("throttlekit-bench-{}.yaml", std::process::id()));
    std::fs::write(&file, POLICIES)?;
    let runtime = runtime()?;
    let server = runtime.block_on(async {
        let mut options = ServerOptions::new(file.clone(), backend(store).await?);
        options.secrets.trust_loopback = true;
        Server::start(options).await.map_err(|error| anyhow!(error))
    });
    let server = server.inspect_err(|_| drop(std::fs::remove_file(&file)))?;
    println!("{}", server.grpc());
    for policy in std::io::stdin().lock().lines() {
        let policy = policy?;
        if policy == ALLOCATIONS {
            println!("{}", allocations());
            continue;
        }
        let views = server.engine().policies();
        let view = views.iter().find(|view| view.name == policy);
        println!("{}", view.map_or(0, |view| view.store_calls));
    }
    std::fs::remove_file(&file)?;
    Ok(())
}

/// Serves the same listener without an engine behind it.
pub fn echo() -> Result<()> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = tonic::transport::Server::builder().add_service(RateLimiterServer::new(Echo));
        tokio::spawn(server.serve_with_incoming(incoming));
        anyhow::Ok(())
    })?;
    std::io::stdin().lock().lines().for_each(|_| println!("{}", allocations()));
    Ok(())
}

/// Sends the same response to every check, in a message of the size of the engine's responses.
struct Echo;

fn decision() -> Decision {
    Decision {
        allowed: true,
        limit: 10,
        remaining: 9,
        reset_at: 1_794_800_000_000,
        retry_after_ms: 0,
        retry: Retry::Now.into(),
        guarantee: "exact".into(),
        overshoot_bound: 0,
        binding_axis: String::new(),
        shadow_denied: false,
        limit_name: String::new(),
    }
}

fn none<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("an echo"))
}

#[tonic::async_trait]
impl RateLimiter for Echo {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        std::hint::black_box(request.into_inner());
        Ok(Response::new(CheckResponse { decision: Some(decision()) }))
    }

    async fn check_many(
        &self,
        request: Request<CheckManyRequest>,
    ) -> Result<Response<CheckManyResponse>, Status> {
        let decisions = request.into_inner().keys.iter().map(|_| decision()).collect();
        Ok(Response::new(CheckManyResponse { decisions }))
    }

    async fn peek(&self, _: Request<PeekRequest>) -> Result<Response<PeekResponse>, Status> {
        none()
    }

    async fn forecast(&self, _: Request<ForecastRequest>) -> Result<Response<ForecastResponse>, Status> {
        none()
    }

    async fn debit(&self, _: Request<DebitRequest>) -> Result<Response<DebitResponse>, Status> {
        none()
    }

    async fn admit(&self, _: Request<AdmitRequest>) -> Result<Response<AdmitResponse>, Status> {
        none()
    }

    async fn release(&self, _: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        none()
    }

    async fn heartbeat(&self, _: Request<HeartbeatRequest>) -> Result<Response<HeartbeatResponse>, Status> {
        none()
    }

    type SessionStream = tonic::codegen::BoxStream<SessionResponse>;

    async fn session(
        &self,
        _: Request<tonic::Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        none()
    }
}
