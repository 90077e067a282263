//! The client of a server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::BuildError;
use throttlekit::store::{
    Background, LocalShares, StoreClient, StoreClientOptions, StoreClientStats, StoreError, random_name,
};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::session_call::Call;
use throttlekit_proto::v1::{Decision, HeartbeatRequest};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::channels::Channels;
use crate::failure::{Failure, Unprocessed, is_forbidden, lost, unprocessed};
use crate::fallback::Fallback;
use crate::renewer::Renewer;
use crate::token::Token;
use crate::{ClientBuilder, RemotePolicy, RemoteStore};

/// Maximum number of times that a call is sent to a server whose connections close before it has processed the call. Its
/// deadline is one for all.
const SENDS_MAX: usize = 4;

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
    /// Sends calls over sessions where the server offers them.
    sessions: bool,
    pub(crate) renewer: Renewer,
    pub(crate) lease_for: Duration,
    /// Identifies this client to people.
    pub(crate) name: String,
    /// The runtime on which connections are driven, permits renewed and released.
    pub(crate) background: Background,
    /// The shares of limits that this process counts in an outage, for all its stores.
    pub(crate) shares: LocalShares,
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
    /// Creates a client of the server at this address, `http://host:port`, with the defaults of its
    /// [builder](Self::builder). It connects with the first call.
    pub fn new(uri: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(uri).build()
    }

    /// Creates a builder for a client of the server at this address: `http://host:port`, or `https://host:port` with
    /// [`trust`](ClientBuilder::trust).
    pub fn builder(uri: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(uri.into())
    }

    pub(crate) fn of(
        servers: Vec<Server>,
        (token, sessions): (Option<Token>, bool),
        lease_for: Duration,
        background: Background,
    ) -> Self {
        let name = random_name();
        let first = (name % servers.len() as u128) as usize;
        let servers = servers.into_iter().map(Arc::new).collect();
        let (name, renewer, shares) = (format!("{name:032x}"), Renewer::default(), LocalShares::default());
        let inner = Inner { servers, first, token, sessions, renewer, lease_for, name, background, shares };
        Self { inner: Arc::new(inner) }
    }

    /// Returns one policy of the server. It fails closed while the server is unreachable; [`RemotePolicy::builder`] sets
    /// another fallback.
    pub fn policy(&self, name: &str) -> RemotePolicy {
        RemotePolicy::new(self.clone(), name, None, Fallback::Closed)
    }

    /// Returns the server as a store, for a leased [`SharedLimiter`](throttlekit::SharedLimiter).
    pub fn store(&self) -> RemoteStore {
        RemoteStore::new(self.clone())
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
        if servers.len() == 1 { first } else { order().find(|s| !s.line.is_open()).unwrap_or(first) }.clone()
    }

    /// Returns the servers to try, in order: the one to use, and those after it.
    fn servers_from(&self, first: &Arc<Server>) -> impl Iterator<Item = &Arc<Server>> {
        let servers = &self.inner.servers;
        let at = servers.iter().position(|server| Arc::ptr_eq(server, first)).unwrap_or(0);
        servers.iter().cycle().skip(at).take(servers.len())
    }

    /// Makes one call to the server in use. If that has not processed it, the next server decides it.
    pub(crate) async fn ask<Q, A, F, R>(&self, message: Q, rpc: R) -> Result<A, Failure>
    where
        Q: Clone + Send + 'static,
        A: Send + 'static,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
        R: FnOnce(Channel, Request<Q>) -> F + Clone + Send + 'static,
    {
        let (_, answer) = self.ask_waiting(Duration::ZERO, message, rpc).await?;
        Ok(answer)
    }

    /// Makes one call, which a server may let wait for up to `wait`. Returns the server that decided it. Dropped, the
    /// call is cancelled if it may wait.
    pub(crate) async fn ask_waiting<Q, A, F, R>(
        &self,
        wait: Duration,
        message: Q,
        rpc: R,
    ) -> Result<(Arc<Server>, A), Failure>
    where
        Q: Clone + Send + 'static,
        A: Send + 'static,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
        R: FnOnce(Channel, Request<Q>) -> F + Clone + Send + 'static,
    {
        let first = self.server();
        let mut failure = None;
        for server in self.servers_from(&first) {
            // If all circuit breakers are open, the first server says since when.
            if server.line.is_open() && !Arc::ptr_eq(server, &first) {
                continue;
            }
            let unsent = Arc::<AtomicBool>::default();
            match self.ask_once(server, wait, message.clone(), rpc.clone(), &unsent).await {
                Ok(answer) => return Ok((server.clone(), answer)),
                Err(error) => failure = Some(error),
            }
            if !unsent.load(Relaxed) {
                break;
            }
        }
        Err(failure.unwrap_or_else(|| StoreError::unavailable("no server").into()))
    }

    /// Makes one call to this server.
    pub(crate) async fn ask_at<Q, A, F, R>(&self, server: &Server, message: Q, rpc: R) -> Result<A, Failure>
    where
        Q: Clone + Send + 'static,
        A: Send + 'static,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
        R: FnOnce(Channel, Request<Q>) -> F + Clone + Send + 'static,
    {
        self.ask_once(server, Duration::ZERO, message, rpc, &Arc::default()).await
    }

    /// Makes one call to this server, and sets `unsent` if that has not processed it.
    async fn ask_once<Q, A, F, R>(
        &self,
        server: &Server,
        wait: Duration,
        message: Q,
        rpc: R,
        unsent: &Arc<AtomicBool>,
    ) -> Result<A, Failure>
    where
        Q: Clone + Send + 'static,
        A: Send + 'static,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
        R: FnOnce(Channel, Request<Q>) -> F + Clone + Send + 'static,
    {
        let begun = Arc::<AtomicBool>::default();
        let work = {
            let (sends, begun) = (self.work(server, message, rpc, unsent.clone()), begun.clone());
            async move {
                begun.store(true, Relaxed);
                sends.await
            }
        };
        let answer = if wait.is_zero() {
            server.line.call(work).await
        } else {
            server.line.call_waiting(wait, work).await
        };
        // A circuit breaker that has opened since the server was chosen rejects the call before it begins.
        if matches!(answer, Err(StoreError::Unavailable(_))) && !begun.load(Relaxed) {
            unsent.store(true, Relaxed);
        }
        answer.map_err(Failure::Other)?.map_err(|status| self.failure(server, status))
    }

    /// Returns one call to a server. It is sent again, over the next connection, while a connection closes before the
    /// server has processed it. An error is one that the circuit breaker counts.
    fn work<Q, A, F, R>(
        &self,
        server: &Server,
        message: Q,
        rpc: R,
        unsent: Arc<AtomicBool>,
    ) -> impl Future<Output = Result<Result<A, Status>, StoreError>> + Send + 'static + use<Q, A, F, R>
    where
        Q: Clone + Send + 'static,
        A: Send + 'static,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
        R: FnOnce(Channel, Request<Q>) -> F + Clone + Send + 'static,
    {
        let (channels, token) = (server.channels.clone(), self.inner.token.as_ref().map(Token::header));
        async move {
            let mut sent = 0;
            loop {
                let mut request = Request::new(message.clone());
                token
                    .iter()
                    .for_each(|token| _ = request.metadata_mut().insert("authorization", token.clone()));
                let in_use = channels.take();
                let answer = rpc.clone()(in_use.channel(), request).await.map(Response::into_inner);
                sent += 1;
                let cause = answer.as_ref().err().and_then(unprocessed);
                if cause == Some(Unprocessed::Closed) && sent < SENDS_MAX {
                    continue;
                }
                unsent.store(cause.is_some(), Relaxed);
                if let Some(lost) = answer.as_ref().err().and_then(lost) {
                    return Err(lost);
                }
                // A server that rejects, or reports that its store is unavailable, is reachable: the circuit breaker
                // stays closed.
                in_use.answered();
                return Ok(answer);
            }
        }
    }

    /// Makes one call to this server over a session. `None` if there is no session, or it ended before the call was
    /// decided: then the call is made without one.
    pub(crate) async fn ask_session(
        &self,
        server: &Server,
        call: impl FnOnce() -> Call + Send,
    ) -> Option<Result<Decision, Failure>> {
        if !self.inner.sessions || server.line.is_open() {
            return None;
        }
        let token = || self.inner.token.as_ref().map(Token::header);
        let in_use = server.channels.take_session(token, || server.line.answers())?;
        let mut begun = false;
        let asked = async {
            begun = true;
            in_use.session().call(call(), self.inner.background.deadline()).await
        };
        let answer = server.line.call_here(asked).await;
        match answer {
            Ok(answer) => Some(answer?.map_err(|status| self.failure(server, status))),
            // The circuit breaker has opened since the server was chosen: another may decide the call.
            Err(StoreError::Unavailable(_)) if !begun => None,
            Err(error) => {
                if matches!(error, StoreError::Deadline(_)) {
                    in_use.silent();
                }
                Some(Err(Failure::Other(error)))
            }
        }
    }

    /// Converts a status of the server. If it does not accept the token, the next call uses the current one.
    fn failure(&self, server: &Server, status: Status) -> Failure {
        let token = self.inner.token.as_ref().filter(|_| is_forbidden(&status));
        if token.is_some_and(Token::refused) {
            server.channels.close_sessions();
        }
        status.into()
    }
}

throttlekit::debug_fields!([] Client, |it| stats = it.stats());
