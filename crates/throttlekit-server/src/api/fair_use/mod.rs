//! Fair use of the server: the layer that gives each request its turn.

mod body;

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Extensions, Request, Response};
use hyper::body::{Bytes, Incoming};
use tonic::Status;
use tower::{Layer, Service};

use crate::access::{Caller, is_open};
use crate::limits::ENVOY_BYTES_MAX;
use crate::listen::{Counters, Peer, is_grpc, say};
use crate::share::{Shares, Who};
pub(crate) use body::HeldBytes;
use body::{Missing, Whole, whole};

/// The service whose streaming requests need no turn.
const STREAMED: &str = "/grpc.reflection.";

/// Path of sessions, whose messages take their turns themselves.
pub(crate) const SESSION: &str = "/throttlekit.v1.RateLimiter/Session";

/// Paths of Envoy's requests.
const ENVOY_ASKS: [&str; 2] = [
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    "/envoy.service.auth.v3.Authorization/Check",
];

/// Reads each request whole and gives it its turn, or sheds it. Follows [`Identify`](crate::access::Identify), whose
/// callers it distinguishes. Health is served immediately.
#[derive(Clone)]
pub(crate) struct FairUse {
    shares: Arc<Shares>,
    counters: Arc<Counters>,
}

impl FairUse {
    /// Creates the layer of a listener with these counters.
    pub(crate) fn new(shares: Arc<Shares>, counters: Arc<Counters>) -> Self {
        Self { shares, counters }
    }

    /// Returns the request with its body, and its turn unless it needs none; or the status for its client.
    async fn begin(&self, request: Request<Incoming>) -> Result<Request<Whole>, Status> {
        let (mut parts, body) = request.into_parts();
        if parts.uri.path().starts_with(STREAMED) || parts.uri.path() == SESSION {
            return Ok(Request::from_parts(parts, Whole::Comes { body }));
        }
        let who = who(&parts.extensions);
        if let Some(account) = parts.extensions.get::<Peer>().and_then(|peer| peer.account.as_ref()) {
            account.belongs_to(&who);
        }
        let asks_for_envoy = ENVOY_ASKS.contains(&parts.uri.path());
        let bytes_max = if asks_for_envoy { ENVOY_BYTES_MAX } else { self.shares.limits().message_bytes_max };
        let body = match whole(&self.shares, &who, body, bytes_max).await {
            Ok(body) => body,
            Err(why) => {
                let status = self.missing(why);
                return if asks_for_envoy {
                    Ok(crowded(parts, Whole::of(EMPTY_MESSAGE)))
                } else {
                    Err(status)
                };
            }
        };
        if is_open(parts.uri.path()) {
            return Ok(Request::from_parts(parts, body));
        }
        let Some(turn) = self.shares.turn(who).await else {
            self.counters.count_shed();
            return if asks_for_envoy { Ok(crowded(parts, body)) } else { Err(Status::unavailable(CROWDED)) };
        };
        if let Some(caller) = parts.extensions.get_mut::<Caller>() {
            caller.takes(turn);
        }
        Ok(Request::from_parts(parts, body))
    }

    fn missing(&self, why: Missing) -> Status {
        match why {
            Missing::Late => {
                self.counters.count_late();
                Status::deadline_exceeded("request body timed out: send the whole body at once")
            }
            Missing::Crowded => {
                self.counters.count_shed();
                Status::unavailable(CROWDED)
            }
            Missing::Broken => Status::cancelled("request body incomplete"),
        }
    }
}

/// Returns the group that a request with these extensions counts for.
pub(crate) fn who(extensions: &Extensions) -> Who {
    let unseen = || Peer::at((Ipv4Addr::UNSPECIFIED, 0).into()).who();
    let somebody = extensions.get::<Peer>().map_or_else(unseen, Peer::who);
    match extensions.get::<Caller>() {
        Some(caller) => named(somebody, caller),
        None => somebody,
    }
}

/// Returns the group that requests of this caller count for: that of its name, if it has one.
pub(crate) fn named(somebody: Who, caller: &Caller) -> Who {
    match caller.principal().name() {
        "" => somebody,
        _ => somebody.named(caller.principal().clone(), caller.weight()),
    }
}

/// Converts a request of Envoy to one that gets a response without a decision. Envoy allows a request on an error, and
/// its clients could cause one by sending many requests: so it gets a response.
fn crowded(mut parts: Parts, body: Whole) -> Request<Whole> {
    if let Some(caller) = parts.extensions.get_mut::<Caller>() {
        caller.gets_no_turn();
    }
    Request::from_parts(parts, body)
}

/// The empty message, as gRPC frames it.
const EMPTY_MESSAGE: Bytes = Bytes::from_static(&[0; 5]);

pub(crate) const CROWDED: &str = "too many requests of this caller in flight: retry later";

impl<S> Layer<S> for FairUse {
    type Service = Fair<S>;

    fn layer(&self, inner: S) -> Fair<S> {
        Fair { uses: self.clone(), inner }
    }
}

/// A service whose callers take turns.
#[derive(Clone)]
pub(crate) struct Fair<S> {
    uses: FairUse,
    inner: S,
}

impl<S, R> Service<Request<Incoming>> for Fair<S>
where
    S: Service<Request<Whole>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    R: Default + Send,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        // Calls the service that is ready, and keeps its clone.
        let clone = self.inner.clone();
        let (mut inner, uses) = (std::mem::replace(&mut self.inner, clone), self.uses.clone());
        Box::pin(async move {
            let is_grpc = is_grpc(&request);
            match uses.begin(request).await {
                Ok(request) => inner.call(request).await,
                Err(status) => Ok(say(is_grpc, status)),
            }
        })
    }
}
