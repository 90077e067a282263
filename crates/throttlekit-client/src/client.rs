//! The client of a server.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::Limit;
use throttlekit::rate::LimitError;
use throttlekit::store::{
    Background, StoreClient, StoreClientOptions, StoreClientStats, StoreError, random_name,
};
use throttlekit_proto::v1::HeartbeatRequest;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::channels::Channels;
use crate::error::lost;
use crate::renewer::Renewer;
use crate::token::Token;
use crate::{ClientBuilder, ClientError, FleetBuilder, LimiterBuilder, RemotePolicy};

/// A client of one server, or of several that share a store. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    servers: Vec<Arc<Server>>,
    /// Index of the first server to try, so that many clients spread over several servers.
    first: usize,
    token: Option<Token>,
    pub(crate) renewer: Renewer,
    pub(crate) lease_for: Duration,
    /// Identifies this client to people.
    pub(crate) name: String,
    /// The runtime on which connections are driven, permits renewed and released.
    pub(crate) background: Background,
}

/// One server: its connections and the circuit breaker that all calls to it share.
pub(crate) struct Server {
    channels: Arc<Channels>,
    line: StoreClient,
}

impl Server {
    pub(crate) fn new(
        endpoint: Endpoint,
        connections: usize,
        options: StoreClientOptions,
        background: &Background,
    ) -> Self {
        let channels = Arc::new(Channels::new(endpoint, connections, background.clone()));
        let probed = channels.clone();
        let probe = move || -> Pin<Box<dyn Future<Output = _> + Send>> { Box::pin(probe(probed.clone())) };
        let line = StoreClient::on(background.clone(), options, Box::new(probe));
        Self { channels, line }
    }
}

/// Probes the server over a new connection: those that calls use may have become silent.
async fn probe(channels: Arc<Channels>) -> Result<(), StoreError> {
    let channel = channels.connect();
    let asked = RateLimiterClient::new(channel.clone()).heartbeat(HeartbeatRequest::default()).await;
    // Any response of the server counts, a rejection too.
    if let Some(lost) = asked.err().as_ref().and_then(lost) {
        return Err(lost);
    }
    channels.replace_all(channel);
    Ok(())
}

impl Client {
    /// Creates a builder for a client of the server at this address: `http://host:port`, or `https://host:port` with
    /// [`trust`](ClientBuilder::trust).
    pub fn builder(uri: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(uri.into())
    }

    pub(crate) fn new(
        servers: Vec<Server>,
        token: Option<Token>,
        lease_for: Duration,
        background: Background,
    ) -> Self {
        let name = random_name();
        let first = (name % servers.len() as u128) as usize;
        let servers = servers.into_iter().map(Arc::new).collect();
        let (name, renewer) = (format!("{name:032x}"), Renewer::default());
        Self { inner: Arc::new(Inner { servers, first, token, renewer, lease_for, name, background }) }
    }

    /// Returns a limiter for one policy of the server. It fails closed while the server is unreachable.
    pub fn limiter(&self, policy: &str) -> RemotePolicy {
        RemotePolicy::closed(self.clone(), policy)
    }

    /// Creates a builder for the same with another fallback.
    pub fn limiter_builder(&self, policy: &str) -> LimiterBuilder {
        LimiterBuilder::new(self.clone(), policy)
    }

    /// Creates a builder for a limiter that leases units of a policy and spends them in this process. The limit must be
    /// that of the policy: the server determines how much it lends and for how long, the limit is used to compute
    /// responses.
    pub fn fleet<L: TryInto<Limit>>(&self, policy: &str, limit: L) -> FleetBuilder
    where
        LimitError: From<L::Error>,
    {
        FleetBuilder::new(self, policy, limit.try_into().map_err(LimitError::from))
    }

    /// Returns the call statistics, over all servers.
    pub fn stats(&self) -> StoreClientStats {
        let each = self.inner.servers.iter().map(|server| server.line.stats());
        each.fold(StoreClientStats::default(), StoreClientStats::plus)
    }

    /// Returns the server to use: the first whose circuit breaker is closed, or else the first.
    pub(crate) fn server(&self) -> Arc<Server> {
        let servers = &self.inner.servers;
        let order = || servers.iter().cycle().skip(self.inner.first).take(servers.len());
        let first = &servers[self.inner.first];
        if servers.len() == 1 { first } else { order().find(|s| !s.line.stats().open).unwrap_or(first) }
            .clone()
    }

    /// Makes one call to the server in use.
    pub(crate) async fn ask<Q, A, F>(
        &self,
        message: Q,
        rpc: impl FnOnce(Channel, Request<Q>) -> F,
    ) -> Result<A, ClientError>
    where
        A: Send + 'static,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
    {
        self.ask_at(&self.server(), message, rpc).await
    }

    /// Makes one call to this server.
    pub(crate) async fn ask_at<Q, A, F>(
        &self,
        server: &Server,
        message: Q,
        rpc: impl FnOnce(Channel, Request<Q>) -> F,
    ) -> Result<A, ClientError>
    where
        A: Send + 'static,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
    {
        let mut request = Request::new(message);
        if let Some(token) = &self.inner.token {
            request.metadata_mut().insert("authorization", token.header());
        }
        let in_use = server.channels.take();
        let asked = rpc(in_use.channel(), request);
        let work = async move {
            let answer = asked.await.map(Response::into_inner);
            if let Some(lost) = answer.as_ref().err().and_then(lost) {
                return Err(lost);
            }
            // A server that rejects, or reports that its store is unavailable, is reachable: the circuit breaker stays
            // closed.
            in_use.answered();
            Ok(answer.map_err(ClientError::from))
        };
        let answer = server.line.call(work).await.map_err(ClientError::Outage)?;
        if let (Err(ClientError::Forbidden(_)), Some(token)) = (&answer, &self.inner.token) {
            token.refused();
        }
        answer
    }
}

throttlekit::debug_fields!([] Client, |it| stats = it.stats());
